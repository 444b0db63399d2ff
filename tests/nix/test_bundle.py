from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentix.bundle.inventory import Needs

if TYPE_CHECKING:
    from collections.abc import Callable

SITE = "lib/python3.11/site-packages"
METADATA = {
    "zeta.zeta-2": "License: BSD\nRequires-Dist: Alpha>=1 ; extra == 'x'\nRequires-Dist: absent",
    "alpha-1": "License-Expression: MIT",
}


def wheel(file: str) -> dict[str, Any]:
    return {"file": file, "sha256": "ab", "size": 7}


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, Any]:
    """The value of a bundle step, and all that it names."""
    environment, project, tools = (tmp_path / n for n in ("environment", "project", "tools"))
    (environment / SITE / "agentix/wire").mkdir(parents=True)
    (environment / SITE / "agentix/wire/protocol.py").write_text("import x\n\nPROTOCOL = 7\n")
    (environment / SITE / "agentix-0.4.0.dist-info").mkdir()
    (environment / SITE / "agentix_runtime-9.dist-info").mkdir()
    for name, more in METADATA.items():
        (environment / SITE / f"{name}.dist-info").mkdir()
        text = f"Name: {name.partition('-')[0]}\n{more}\n\nDescription: x\n"
        (environment / SITE / f"{name}.dist-info/METADATA").write_text(text)
    built = tmp_path / "built"
    built.mkdir()
    (built / "zeta_zeta-2-py3-none-any.whl").write_bytes(b"wheel")
    (tools / "licences.json").parent.mkdir(exist_ok=True)
    (tools / "licences.json").write_text('{"jq": ["Expat"]}')
    programs = {
        environment: ("mine", "both", "dep"),
        project: ("mine", "both"),
        tools: ("jq", "both"),
    }
    for folder, contents in programs.items():
        (folder / "bin").mkdir(parents=True)
        for name in contents:
            (folder / "bin" / name).write_text("")
    toolchain = tmp_path / "toolchain"
    toolchain.mkdir()
    known = {
        "name": "debian-12",
        "python": "3.11.2",
        "libc": "glibc 2.36",
        "licences": {"libc6": ["LGPL-2.1+"]},
    }
    (toolchain / "toolchain.json").write_text(json.dumps(known))
    return {
        "busybox": "/busybox",
        "python": "3.11",
        "platform": "linux/amd64",
        "environment": str(environment),
        "project": str(project),
        "tools": str(tools),
        "npm": [],
        "nix": [],
        "toolchain": str(toolchain),
        "about": {
            "name": "called-so",
            "version": "1.0",
            "packages": [
                {"package": "zeta-zeta", "version": "2", "sha256": None, "wheel": str(built)},
                {"package": "alpha", "version": "1", **wheel("alpha.whl")},
            ],
            "tools": [{"package": "jq", "version": "1.6", **wheel("jq_1.6_amd64.deb")}],
            "base": [
                {"package": "libc6", "version": "2.36", **wheel("libc6_2.36_amd64.deb")},
                {"package": "busybox", "version": "1", **wheel("b.deb"), "licences": ["GPL-2"]},
            ],
        },
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_metadata_in_other_letters_ends_no_build(
    tmp_path: Path, parts: dict[str, Any], run_step: Callable[..., Any]
) -> None:
    (file,) = (Path(parts["environment"]) / SITE).glob("alpha-1.dist-info/METADATA")
    lines = ["Name: alpha", "License: Zürich Licence", "Classifier: License :: Ö", "", "Größe"]
    file.write_bytes("\n".join([*lines, "Requires-Dist: zeta-zeta"]).encode() + b"\xff")
    done = run_step("bundle.py", parts, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    alpha, _ = json.loads((tmp_path / "out/info.json").read_text())["packages"]
    assert (alpha["name"], alpha["licences"], alpha["requires"]) == ("alpha", [], [])


def test_packages_of_debian_and_of_npm_may_have_one_name(
    tmp_path: Path, parts: dict[str, Any], run_step: Callable[..., Any]
) -> None:
    (tmp_path / "npm/bin").mkdir(parents=True)
    (tmp_path / "npm/licences.json").write_text('{"jq": ["ISC"]}')
    parts["npm"] = [str(tmp_path / "npm")]
    parts["about"]["tools"].append(
        {"package": "jq", "version": "9", "kind": "npm", **wheel("jq-9.tgz")}
    )
    done = run_step("bundle.py", parts, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    tools = json.loads((tmp_path / "out/info.json").read_text())["tools"]
    assert {tool["version"]: tool["licences"] for tool in tools} == {"1.6": ["Expat"], "9": ["ISC"]}


def test_info_tells_all_there_is_to_know(
    tmp_path: Path, parts: dict[str, Any], run_step: Callable[..., Any]
) -> None:
    done = run_step("bundle.py", parts, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out/info.json").read_text()) == {
        "format": 2,
        "name": "called-so",
        "version": "1.0",
        "platform": "linux/amd64",
        "python": "3.11.2",
        "toolchain": "debian-12",
        "libc": "glibc 2.36",
        "protocol": 7,
        "agentix": "0.4.0",
        "packages": [
            {
                "name": "alpha",
                "version": "1",
                **wheel("alpha.whl"),
                "licences": ["MIT"],
                "requires": [],
            },
            {
                "name": "zeta-zeta",
                "version": "2",
                "sha256": None,
                "built": hashlib.sha256(b"wheel").hexdigest(),
                "file": "zeta_zeta-2-py3-none-any.whl",
                "size": 5,
                "licences": ["BSD"],
                "requires": ["Alpha>=1 ; extra == 'x'"],
            },
        ],
        "tools": [
            {
                "package": "jq",
                "version": "1.6",
                **wheel("jq_1.6_amd64.deb"),
                "licences": ["Expat"],
            }
        ],
        "base": [
            {"package": "busybox", "version": "1", **wheel("b.deb"), "licences": ["GPL-2"]},
            {
                "package": "libc6",
                "version": "2.36",
                **wheel("libc6_2.36_amd64.deb"),
                "licences": ["LGPL-2.1+"],
            },
        ],
    }


def test_programs_are_the_tools_and_the_projects_own_scripts(
    tmp_path: Path, parts: dict[str, Any], run_step: Callable[..., Any]
) -> None:
    done = run_step("bundle.py", parts, tmp_path / "out")
    folder = tmp_path / "out/runtime/bin"
    assert names(folder) == ["both", "jq", "mine"]
    assert (folder / "mine").resolve() == tmp_path / "environment/bin/mine"
    assert (folder / "both").resolve() == tmp_path / "environment/bin/both"
    assert f"{tmp_path}/tools/bin/jq" in (folder / "jq").read_text()
    assert done.stderr == "agentix warning: both is a system tool and a script; taking the script\n"


def test_of_programs_with_one_name_the_order_decides(
    tmp_path: Path, parts: dict[str, Any], run_step: Callable[..., Any]
) -> None:
    for root, programs in {"npm-a": "jq a x", "npm-b": "x", "nix-a": "y", "nix-b": "x y"}.items():
        (tmp_path / root / "bin").mkdir(parents=True)
        for program in programs.split():
            (tmp_path / root / "bin" / program).write_text("")
    (tmp_path / "nix-c").mkdir()  # gives no programs, and is needed all the same
    more = {
        "npm": [str(tmp_path / "npm-a"), str(tmp_path / "npm-b")],
        "nix": [str(tmp_path / name) for name in ("nix-a", "nix-b", "nix-c")],
    }
    done = run_step("bundle.py", {**parts, **more}, tmp_path / "out")
    folder = tmp_path / "out/runtime/bin"
    assert names(folder) == ["a", "both", "jq", "mine", "x", "y"]
    for program, root in {"jq": "npm-a", "a": "npm-a", "x": "nix-b", "y": "nix-b"}.items():
        assert f"{tmp_path}/{root}/bin/{program}" in (folder / program).read_text()
    assert done.stderr.splitlines() == [
        "agentix warning: jq is a system tool and an npm tool; taking the npm tool",
        "agentix warning: x is an npm tool and an npm tool; taking the npm tool",
        "agentix warning: x is an npm tool and a Nix tool; taking the Nix tool",
        "agentix warning: y is a Nix tool and a Nix tool; taking the Nix tool",
        "agentix warning: both is a system tool and a script; taking the script",
    ]
    # Others than ours find their libraries later than where an image may say.
    assert "LD_LIBRARY_PATH" in (folder / "y").read_text()
    assert "LD_LIBRARY_PATH" not in (folder / "a").read_text()
    links = {link.name: str(link.readlink()) for link in (tmp_path / "out/runtime/nix").iterdir()}
    assert links == {Path(path).name: path for path in more["nix"]}


def test_a_plugin_is_listed_with_what_it_asked_for(
    tmp_path: Path, parts: dict[str, Any], run_step: Callable[..., Any]
) -> None:
    plugins = {"acme": {"npm": ["tool@1.0.0"], "system": []}}
    parts["about"]["plugins"] = plugins
    run_step("bundle.py", parts, tmp_path / "out")
    value = json.loads((tmp_path / "out/info.json").read_text())
    assert value["plugins"] == plugins
    assert Needs.model_validate_json(json.dumps(value["plugins"]["acme"])).npm == ("tool@1.0.0",)
    parts["about"]["plugins"] = {}
    run_step("bundle.py", parts, tmp_path / "without")
    assert b"plugins" not in (tmp_path / "without/info.json").read_bytes()


def test_a_bundle_without_tools_has_none(
    tmp_path: Path, parts: dict[str, Any], run_step: Callable[..., Any]
) -> None:
    run_step("bundle.py", {**parts, "tools": None}, tmp_path / "out")
    assert names(tmp_path / "out/runtime/bin") == ["both", "mine"]


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("agentix/wire/protocol.py", None, "the environment has no agentix in it; "),
        ("agentix/wire/protocol.py", "OTHER = 1\n", "protocol.py of the bundled agentix does not "),
    ],
)
def test_a_bundle_without_its_runtime_is_refused(
    tmp_path: Path,
    parts: dict[str, Any],
    run_step: Callable[..., Any],
    file: str,
    content: str | None,
    sentence: str,
) -> None:
    path = tmp_path / "environment" / SITE / file
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    done = run_step("bundle.py", parts, tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(sentence)


@pytest.mark.parametrize("annotation", ["", ": Final", ": Final[int]"])
def test_the_protocol_is_read_however_it_is_annotated(
    tmp_path: Path, builders: Any, annotation: str
) -> None:
    (tmp_path / "protocol.py").write_text(f'"""PROTOCOL = 9"""\nPROTOCOL{annotation} = 3\n')
    assert builders.bundle.protocol(tmp_path / "protocol.py") == 3
