"""Make the root of a bundle: what a sandbox starts, and what there is to know about it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import launcher
import step

RUNTIME = "/nix/runtime"


def main() -> None:
    """Make the bundle of this step."""
    config: dict[str, Any] = step.config()
    environment, toolchain = Path(config["environment"]), Path(config["toolchain"])
    runtime = step.out() / "runtime"
    runtime.mkdir(parents=True)
    (runtime / "environment").symlink_to(environment)
    bootstrap(runtime / "bootstrap.sh", config["busybox"], environment)
    programs(runtime / "bin", config)
    # Where our libraries look instead of in the image; see PATHS in toolchain.py.
    (runtime / "cert.pem").symlink_to(toolchain / "etc/ssl/certs/ca-certificates.crt")
    (runtime / "lc").symlink_to(toolchain / "lib/locale")
    site = environment / f"lib/python{config['python']}/site-packages"
    value = info(config["about"], config["platform"], step.toolchain(toolchain), site)
    (step.out() / "info.json").write_text(json.dumps(value, indent=2) + "\n")


def bootstrap(path: Path, busybox: str, environment: Path) -> None:
    """Write the one command that starts the runtime in a sandbox."""
    command = [f"{environment}/libexec/python3", "-I", "-m", "agentix_runtime"]
    path.write_text(launcher.python(busybox, command, append=f"{RUNTIME}/bin"))
    path.chmod(0o755)


def programs(folder: Path, config: dict[str, Any]) -> None:
    """Offer the declared tools' programs, and the project's own scripts before those."""
    folder.mkdir()
    if config["tools"] is not None:
        for program in sorted(Path(config["tools"], "bin").iterdir()):
            wrapper = folder / program.name
            wrapper.write_text(launcher.tool(config["busybox"], str(program)))
            wrapper.chmod(0o755)
    scripts = Path(config["project"], "bin")
    if scripts.is_dir():
        for script in sorted(scripts.iterdir()):
            link = folder / script.name
            if link.exists():
                step.warn(f"{script.name} is a system tool and a script; taking the script")
                link.unlink()
            link.symlink_to(Path(config["environment"], "bin", script.name))


def info(
    about: dict[str, Any], platform: str, toolchain: dict[str, str], site: Path
) -> dict[str, Any]:
    """Return what ``info.json`` says."""
    return {
        "format": 1,
        "name": about["name"],
        "version": about["version"],
        "platform": platform,
        "python": toolchain["python"],
        "toolchain": toolchain["name"],
        "libc": toolchain["libc"],
        "protocol": protocol(site / "agentix/wire/protocol.py"),
        "agentix": agentix(site),
        "packages": sorted(
            (
                {"name": p["package"], "version": p["version"], "sha256": p["sha256"]}
                for p in about["packages"]
            ),
            key=lambda package: str(package["name"]),
        ),
        "tools": sorted(about["tools"], key=lambda tool: str(tool["package"])),
    }


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
