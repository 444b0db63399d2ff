"""Finish a relocated CPython: what it needs added, what leads astray removed, byte code made.

Runs after ``toolchain.sh``, inside the new prefix; nothing of the target is executed.
"""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import bytecode
import elf
import licences
import step

if TYPE_CHECKING:
    from pathlib import Path

# Below lib/: parts of the standard library for a display, for Windows or for tests, what Debian
# adds for the benefit of its own packages, libraries for debugging the C library, and such as no
# part of the standard library is linked to.
UNUSED = (
    "{python}/EXTERNALLY-MANAGED",
    "{python}/__phello__",
    "{python}/_distutils_system_mod.py",
    "{python}/ctypes/macholib",
    "{python}/distutils/command/*.exe",
    "{python}/ensurepip",
    "{python}/idlelib",
    "{python}/lib-dynload/_*test*.so",
    "{python}/lib-dynload/nis.*.so",
    "{python}/lib-dynload/xx*.so",
    "{python}/lib2to3",
    "{python}/pydoc_data/topics.py",
    "{python}/sitecustomize.py",
    "{python}/test",
    "{python}/turtle.py",
    "{python}/turtledemo",
    "libBrokenLocale.so.1",
    "libc_malloc_debug.so.0",
    "libexpatw.so*",
    "libhistory.so*",
    "libmemusage.so",
    "libnss_hesiod.so.2",
    "libpcprofile.so",
    "libthread_db.so*",
)

# Paths of the image that libraries have compiled in, and what they become: of the same length,
# so that the files can be edited in place. An image must not preload into our interpreter, and
# what it lacks (certificates, the C.UTF-8 locale) is at hand in every bundle.
PATHS = {
    "ld-linux": (b"/etc/ld.so.preload", b"/nix/ld.so.preload"),
    "libc.so": (b"/usr/lib/locale", b"/nix/runtime/lc"),
    "libcrypto.so": (b"/usr/lib/ssl", b"/nix/runtime"),
}


def main() -> None:
    """Complete the prefix that the environment names as ``out``."""
    config = step.config()
    prefix = step.out()
    root = prefix / ".root"
    stdlib = prefix / "lib" / f"python{config['python']}"
    prune(prefix / "lib", stdlib.name)
    search(prefix, config["patchelf"])
    redirect(prefix / "lib")
    certificates(root / "usr/share/ca-certificates", prefix / "etc/ssl/certs")
    locale(root / "usr/lib/locale", prefix / "lib/locale")
    time_zones(root / "usr/share/zoneinfo", prefix / "share/zoneinfo", stdlib)
    bytecode.compile_tree(stdlib, f"{stdlib}/")
    describe(config, root, prefix / "toolchain.json")


def prune(libraries: Path, python: str) -> None:
    """Remove what a runtime never uses or must not meet."""
    for pattern in UNUSED:
        folder, _, name = pattern.format(python=python).rpartition("/")
        # Not by glob(): it does not see links that lead nowhere, and some of these do.
        for path in sorted((libraries / folder).iterdir()) if (libraries / folder).is_dir() else ():
            if not fnmatch.fnmatch(path.name, name):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def search(prefix: Path, patchelf: str) -> None:
    """Replace what libraries say themselves: it would go before the program's DT_RPATH."""
    for path in sorted((prefix / "lib").rglob("*.so*")):
        if path.is_file() and not path.is_symlink():
            linked = elf.read(path)
            if linked is not None and linked.search:
                command = [f"{patchelf}/bin/patchelf", "--force-rpath", "--set-rpath"]
                subprocess.run([*command, f"{prefix}/lib", str(path)], check=True)


def redirect(libraries: Path) -> None:
    """Give compiled-in paths of the image their counterpart below ``/nix``."""
    for prefix, (old, new) in PATHS.items():
        found = [
            path
            for path in sorted(libraries.iterdir())
            if path.name.startswith(prefix) and not path.is_symlink()
        ]
        if not found:
            step.fail(f"the packages of the toolchain have no {prefix}*")
        for path in found:
            content = path.read_bytes()
            if old not in content:
                step.fail(f"{path.name} does not contain {old.decode()}; is it built otherwise?")
            # The file may be in use by this very process: replace it, leave the old one alone.
            edited = path.with_name(f"{path.name}.new")
            edited.write_bytes(content.replace(old, new))
            edited.chmod(path.stat().st_mode)
            edited.replace(path)


def certificates(source: Path, destination: Path) -> None:
    """Join the certificate authorities into the one file that OpenSSL reads."""
    destination.mkdir(parents=True)
    joined = b"".join(path.read_bytes() for path in sorted(source.rglob("*.crt")))
    (destination / "ca-certificates.crt").write_bytes(joined)


def locale(source: Path, destination: Path) -> None:
    """Take the C.UTF-8 locale along, where the packages have it."""
    if source.is_dir():
        shutil.copytree(source, destination, symlinks=True)


def time_zones(source: Path, destination: Path, stdlib: Path) -> None:
    """Take the time zones along, for images that have none of their own."""
    if not source.is_dir():
        return
    ignored = shutil.ignore_patterns("posix", "right", "localtime", "posixrules")
    shutil.copytree(source, destination, symlinks=True, ignore=ignored)
    for path in sorted(stdlib.glob("_sysconfigdata_*.py")):
        if not path.is_symlink():
            text = path.read_text()
            # Not by its path: byte code has a hash of its source, and must not depend on it.
            ours = "' + __import__('sys').base_prefix + '/share/zoneinfo'"
            edited = text.replace("zoneinfo:/etc/zoneinfo'", f"zoneinfo:{ours}")
            if edited == text:
                step.fail(f"{path.name} does not set TZPATH as expected")
            path.write_text(edited)


def describe(config: dict[str, Any], root: Path, path: Path) -> None:
    """Say which Python and which C library these are, and how the packages are licensed."""
    name = f"python{config['python']}-minimal"
    versions = {package["package"]: package["version"] for package in config["packages"]}
    if name not in versions:
        step.fail(f"the toolchain {config['name']} does not have the package {name}")
    licensed = licences.Debian()
    for package in versions:
        licensed.add(root, package)
    value = {
        "name": config["name"],
        "python": versions[name].split("-")[0],
        "libc": f"glibc {config['glibc']}",
        "licences": licensed.names(),
    }
    path.write_text(json.dumps(value, indent=2) + "\n")


if __name__ == "__main__":
    os.umask(0o022)
    main()
