"""Make the root of a bundle: what a sandbox starts, and what there is to know about it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import launcher
import licences
import step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from email.message import Message

RUNTIME = "/nix/runtime"
LONGEST = 1000  # characters of a requirement; a manifest admits no more
# What a tool says that a lock names: which of its packages, and how each is licensed.
LICENCES = "licences.json"
NIX_TOOL, SCRIPT = "a Nix tool", "a script"


def main() -> None:
    """Make the bundle of this step."""
    config: dict[str, Any] = step.config()
    environment, toolchain = Path(config["environment"]), Path(config["toolchain"])
    runtime = step.out() / "runtime"
    runtime.mkdir(parents=True)
    (runtime / "environment").symlink_to(environment)
    bootstrap(runtime / "bootstrap.sh", config["busybox"], environment)
    programs(runtime / "bin", config)
    others(runtime / "nix", config["nix"])
    # Where our libraries look instead of in the image; see PATHS in toolchain.py.
    (runtime / "cert.pem").symlink_to(toolchain / "etc/ssl/certs/ca-certificates.crt")
    (runtime / "lc").symlink_to(toolchain / "lib/locale")
    aliases(runtime, config["tools"])
    site = environment / f"lib/python{config['python']}/site-packages"
    value = info(config, step.toolchain(toolchain), site)
    (step.out() / "info.json").write_text(json.dumps(value, indent=2) + "\n")


def bootstrap(path: Path, busybox: str, environment: Path) -> None:
    """Write the one command that starts the runtime in a sandbox."""
    command = [f"{environment}/libexec/python3", "-I", "-m", "agentix_runtime"]
    path.write_text(launcher.python(busybox, command, append=f"{RUNTIME}/bin"))
    path.chmod(0o755)


def aliases(runtime: Path, tools: str | None) -> None:
    """Make the links by which the system tools find their data; see paths.py."""
    folder = Path(tools, "alias") if tools else None
    if folder is not None and folder.is_dir():
        for alias in sorted(folder.iterdir()):
            (runtime / alias.name).symlink_to(alias.readlink())


def programs(folder: Path, config: dict[str, Any]) -> None:
    """Offer the tools' programs and the project's own scripts; of one name, the later of these."""
    folder.mkdir()
    known: dict[str, str] = {}
    lines = starting(config["tools"])
    for kind, root in offering(config):
        for program in sorted((root / "bin").iterdir()) if (root / "bin").is_dir() else ():
            place = folder / program.name
            if program.name in known:
                what = f"{known[program.name]} and {kind}"
                step.warn(f"{program.name} is {what}; taking the {kind.partition(' ')[2]}")
                place.unlink()
            known[program.name] = kind
            if kind == SCRIPT:
                place.symlink_to(Path(config["environment"], "bin", program.name))
                continue
            dropped = launcher.DROPPED_FOR_OTHERS if kind == NIX_TOOL else launcher.DROPPED
            first = tuple(lines.get(program, ()))
            place.write_text(launcher.tool(config["busybox"], str(program), dropped, first))
            place.chmod(0o755)


def starting(tools: str | None) -> dict[Path, list[str]]:
    """Return what the launchers of some system tools have to do first, as lines of them."""
    if tools is None or not (file := Path(tools, "launch.json")).is_file():
        return {}
    value: dict[str, list[str]] = json.loads(file.read_bytes())
    return {Path(tools, "bin", name): lines for name, lines in value.items()}


def offering(config: dict[str, Any]) -> Iterator[tuple[str, Path]]:
    """Yield what has programs in its ``bin``, and what these are."""
    if config["tools"] is not None:
        yield "a system tool", Path(config["tools"])
    yield from (("an npm tool", Path(tool)) for tool in config["npm"])
    yield from ((NIX_TOOL, Path(tool)) for tool in config["nix"])
    yield SCRIPT, Path(config["project"])


def others(folder: Path, derivations: list[str]) -> None:
    """Refer to what a Nix file gives, so that all of it is in the bundle, programs or not."""
    for derivation in derivations:
        folder.mkdir(exist_ok=True)
        link = folder / Path(derivation).name
        if not link.is_symlink():
            link.symlink_to(derivation)


def info(config: dict[str, Any], toolchain: dict[str, Any], site: Path) -> dict[str, Any]:
    """Return what ``info.json`` says."""
    about = config["about"]
    found = metadata(site)
    names = {normal(p["package"]) for p in about["packages"]}
    # A package of Debian and one of npm may have one name.
    debs = licences_of(Path(config["tools"], LICENCES)) if config["tools"] else {}
    npm: dict[str, list[str]] = {}
    for root in config["npm"]:
        npm |= licences_of(Path(root, LICENCES))
    return {
        "format": 2,
        "name": about["name"],
        "version": about["version"],
        "platform": config["platform"],
        "python": toolchain["python"],
        "toolchain": toolchain["name"],
        "libc": toolchain["libc"],
        "protocol": protocol(site / "agentix/wire/protocol.py"),
        "agentix": agentix(site),
        "packages": by_name(
            package(p, found.get(normal(p["package"])), names) for p in about["packages"]
        ),
        "tools": by_name(tool(t, npm if t.get("kind") == "npm" else debs) for t in about["tools"]),
        "base": by_name(tool(t, toolchain["licences"]) for t in about["base"]),
        **({"plugins": about["plugins"]} if about.get("plugins") else {}),
    }


def by_name(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return *items* in the one order in which they are listed."""
    return sorted(items, key=lambda item: (str(item.get("name", item.get("package"))), str(item)))


def normal(name: str) -> str:
    """Return the one spelling of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def metadata(site: Path) -> dict[str, Message]:
    """Return the METADATA of every distribution in the environment, by normal name."""
    found = {}
    for file in sorted(site.glob("*.dist-info/METADATA")):
        message = licences.parse_metadata(file.read_bytes())
        found[normal(message["Name"] or "")] = message
    return found


def package(known: dict[str, Any], message: Message | None, names: set[str]) -> dict[str, Any]:
    """Return what there is to know of a Python distribution, a wheel or what became one."""
    value = {"name": known["package"], "version": known["version"], "sha256": known["sha256"]}
    if "wheel" in known:
        (wheel,) = Path(known["wheel"]).glob("*.whl")
        with wheel.open("rb") as file:
            value["built"] = hashlib.file_digest(file, "sha256").hexdigest()
        value |= {"file": wheel.name, "size": wheel.stat().st_size}
        value |= {"source": known["source"]} if known.get("source") else {}
    else:
        value |= {"file": known["file"], "size": known["size"]}
    if message is None:
        return {**value, "licences": [], "requires": []}
    value["licences"] = licences.of_metadata(message)
    value["requires"] = requires(message.get_all("Requires-Dist") or [], names)
    return value


def requires(lines: list[str], names: set[str]) -> list[str]:
    """Return the requirements that something in the bundle may be there for."""
    found = []
    for line in lines:
        text = " ".join(line.split())
        name = re.match(r"[A-Za-z0-9._-]+", text)
        plain = text.isascii() and text.isprintable() and len(text) <= LONGEST
        if name is not None and normal(name[0]) in names and plain:
            found.append(text)
    return sorted(set(found))


def tool(known: dict[str, Any], licensed: dict[str, list[str]]) -> dict[str, Any]:
    """Return what there is to know of a package of Debian or of npm."""
    return {"licences": licensed.get(known["package"], []), **known}


def licences_of(file: Path) -> dict[str, list[str]]:
    """Return the licences by package that the tools' step has noted, if it has."""
    value: dict[str, list[str]] = json.loads(file.read_bytes()) if file.is_file() else {}
    return value


def protocol(file: Path) -> int:
    """Return the version of the wire protocol that the bundle's runtime speaks."""
    if not file.is_file():
        step.fail("the environment has no agentix in it; is agentix among the dependencies?")
    found = re.search(r"^PROTOCOL(?:: [\w\[\]]+)? = (\d+)$", file.read_text("utf-8"), re.MULTILINE)
    if found is None:
        step.fail(f"{file.name} of the bundled agentix does not say which PROTOCOL it speaks")
    return int(found[1])


def agentix(site: Path) -> str:
    """Return the version of agentix in the environment."""
    found = [folder.name for folder in site.glob("agentix-*.dist-info")]
    if not found:
        step.fail("the environment has no metadata of agentix")
    return found[0].removeprefix("agentix-").removesuffix(".dist-info")


if __name__ == "__main__":
    os.umask(0o022)
    main()
