"""Give a bundle's Python back the environment that it was started with, for its children to see.

A bundle's programs move the loader's variables (LD_PRELOAD, LD_LIBRARY_PATH, …) to AGENTIX_ASIDE_*
before they start its interpreter, and the interpreter itself sets LC_CTYPE where no locale is set.
Once it runs, all of that is undone. A .pth file in every bundle imports this.
"""

import os
import sys

_PREFIX = "AGENTIX_ASIDE_"

for _name in [name for name in os.environ if name.startswith(_PREFIX)]:
    os.environ[_name[len(_PREFIX) :]] = os.environ.pop(_name)

if os.environ.get("LC_CTYPE") in ("C.UTF-8", "C.utf8", "UTF-8"):
    try:
        with open("/proc/self/environ", "rb") as _file:  # noqa: PTH123 - pathlib is slow to import
            _given = [entry for entry in _file.read().split(b"\0") if entry[:9] == b"LC_CTYPE="]
    except OSError:
        pass
    else:
        if _given:
            os.environ["LC_CTYPE"] = os.fsdecode(_given[0][9:])
        else:
            del os.environ["LC_CTYPE"]

# Children started as sys.executable have to be set aside in the same way, by the bundle's wrapper.
_wrapper = os.path.join(sys.prefix, "bin", "python")  # noqa: PTH118
if os.access(_wrapper, os.X_OK):
    sys.executable = _wrapper
