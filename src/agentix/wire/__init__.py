"""What crosses between host, server and worker: one description that all three import.

``protocol`` names the version and the limits, ``messages`` the messages and ``fields`` what may be
in them, ``frames`` how a message and its payload lie in bytes, ``arguments`` how arguments enter a
sandbox, ``values`` how results leave it, ``records`` what a sandbox's journal holds, ``plain`` the
data of events, ``columns`` how either is kept free of maps.
Nothing here imports more than the standard library and msgpack before it is needed.
"""
