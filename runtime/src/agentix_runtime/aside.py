"""Give a bundle's Python back the environment that was set aside to start it untouched.

A bundle's programs move the loader's variables (LD_PRELOAD, LD_LIBRARY_PATH, …) to AGENTIX_ASIDE_*
before they start its interpreter. Once that runs, the variables belong in the environment again,
for the image's own programs that are started from here. A .pth file in every bundle imports this.
"""

import os
import sys

_PREFIX = "AGENTIX_ASIDE_"

# Python adds this one where the image asks for no locale (PEP 538); the image's own is set aside.
os.environ.pop("LC_CTYPE", None)
for _name in [name for name in os.environ if name.startswith(_PREFIX)]:
    os.environ[_name[len(_PREFIX) :]] = os.environ.pop(_name)

# Children started as sys.executable have to be set aside in the same way, by the bundle's wrapper.
_wrapper = os.path.join(sys.prefix, "bin", "python")  # noqa: PTH118 - pathlib is slow to import
if os.access(_wrapper, os.X_OK):
    sys.executable = _wrapper
