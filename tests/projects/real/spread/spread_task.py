EXPECTED = {
    "headers": "greenlet.h",
    "data": "Python 3 (ipykernel)",
    "namespaces": "sphinxcontrib sphinxcontrib zope zope",
    "pth": "True",
    "switched": "2",
}


def use() -> dict[str, str]:
    """Find what wheels install beside their modules, and parts of packages that several share."""
    import importlib.util
    import json
    import sys
    from pathlib import Path

    import greenlet

    prefix = Path(sys.prefix)
    kernel = json.loads((prefix / "share/jupyter/kernels/python3/kernel.json").read_text())
    names = ("sphinxcontrib.jsmath", "sphinxcontrib.applehelp", "zope.event", "zope.interface")
    found = [name for name in names if importlib.util.find_spec(name)]
    return {
        "headers": next(path.name for path in prefix.glob("include/**/greenlet.h")),
        "data": kernel["display_name"],
        "namespaces": " ".join(name.partition(".")[0] for name in found),
        "pth": str("_distutils_hack" in sys.modules),
        "switched": str(greenlet.greenlet(lambda x: x + 1).switch(1)),
    }
