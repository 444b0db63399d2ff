"""What may be called inside a sandbox: functions that the sandbox can import by name."""

from __future__ import annotations

import functools
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any


class RemoteCallable(str):
    """The name of a function as it crosses into a sandbox: ``module::qualname``."""

    __slots__ = ()

    @property
    def module(self) -> str:
        """The module that the sandbox imports."""
        return self.partition("::")[0]

    @property
    def qualname(self) -> str:
        """The path to the function inside its module."""
        return self.partition("::")[2]

    @classmethod
    def validate(cls, fn: Any) -> RemoteCallable:
        """Name a function that can be called remotely.

        Raises TypeError that says which rule the function breaks: it has to be a function of an
        importable module, found there under its own name.
        """
        return cls(f"{_module(fn, qualname := _qualname(fn))}::{qualname}")


def _qualname(fn: Any) -> str:
    """Give the function's path inside its module, or say why it has none."""
    if isinstance(fn, functools.partial | functools.partialmethod):
        raise _refusal(fn, "a partial; pass its arguments to remote()")
    if isinstance(fn, type):
        raise _refusal(fn, "a class; call a function that makes the object")
    if isinstance(fn, types.MethodType):
        raise _refusal(fn, "a bound method; call a module's function and pass the object to it")
    if isinstance(fn, types.BuiltinFunctionType) and not isinstance(
        fn.__self__, types.ModuleType | None
    ):
        raise _refusal(fn, "a bound method; call a module's function and pass the object to it")
    qualname = getattr(fn, "__qualname__", None)
    if not callable(fn) or type(qualname) is not str or not getattr(fn, "__module__", None):
        kind = "a callable object" if callable(fn) else "not callable"
        raise _refusal(fn, f"{kind}; call a function of a module")
    if "<lambda>" in qualname:
        raise _refusal(fn, "a lambda; define it with def at the top of a module")
    if "<locals>" in qualname:
        raise _refusal(fn, "a closure; move it to the top of its module")
    return qualname


def _module(fn: Any, qualname: str) -> str:
    """Give the importable name of the function's module, having found the function in it."""
    module = sys.modules.get(fn.__module__)
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is not fn:
        raise _refusal(
            fn, f"not what {fn.__module__}.{qualname} names; call the function found there"
        )
    if fn.__module__ != "__main__":
        name: str = fn.__module__
        return name
    if module is None or (name_of_main := importable_name(module)) is None:
        raise _refusal(
            fn,
            "defined in __main__, which the sandbox cannot import; move it to a project's module",
        )
    return name_of_main


def _refusal(fn: Any, rule: str) -> TypeError:
    name = getattr(fn, "__qualname__", None) or repr(fn)
    module = getattr(fn, "__module__", None)
    return TypeError(f"cannot call {f'{module}.{name}' if module else name} remotely: it is {rule}")


def importable_name(main: types.ModuleType) -> str | None:
    """Find the name under which a running ``__main__`` can be imported, if there is one.

    ``python -m pkg.main`` says it; for ``python path/main.py`` it follows from the package that the
    file lies in, else from its place below an entry of ``sys.path``, the script's own folder last.
    """
    if (spec := main.__spec__) is not None:
        return spec.name
    if (path := getattr(main, "__file__", None)) is None:
        return None
    return _name_of_script(str(Path(path).resolve()))


@functools.lru_cache
def _name_of_script(path: str) -> str | None:
    file = Path(path)
    if not file.stem.isidentifier():
        return None
    top = file.parent
    while (top / "__init__.py").exists() and top.name.isidentifier():
        top = top.parent
    entries = {Path(entry).resolve() for entry in sys.path}
    roots = [top] if top != file.parent else []
    roots += sorted(
        (entry for entry in entries if entry != file.parent and file.is_relative_to(entry)),
        key=lambda entry: len(entry.parts),
        reverse=True,
    )
    for root in [*roots, file.parent]:
        parts = file.relative_to(root).with_suffix("").parts
        if all(part.isidentifier() for part in parts) and _finds(name := ".".join(parts), file):
            return name
    return None


def _finds(name: str, file: Path) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file
