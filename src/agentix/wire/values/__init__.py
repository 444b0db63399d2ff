"""Results on their way out of a sandbox: a closed, typed data model, encoded as msgpack.

The sandbox encodes (``encode``), the host decodes (``decode``); nothing that a sandbox names is
ever imported. ``tags`` is the grammar.
"""
