"""What crosses between host, server and worker: one description that all three import.

``protocol`` names the version and the limits, ``messages`` the messages, ``frames`` how a message
and its payload lie in bytes, ``arguments`` how arguments enter a sandbox, ``values`` how results
leave it, ``records`` what a sandbox's journal holds.
Nothing here imports more than the standard library and msgpack before it is needed.
"""
