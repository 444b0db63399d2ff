"""What the uv provider makes of bundles and machines that are not as they should be."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from agentix import SandboxConfig
from agentix.errors import BundleError, ProviderError
from agentix.provider.uv import UvProvider
from agentix.provider.uv.environments import _add_project

if TYPE_CHECKING:
    from agentix.provider.kit import CachedBundle, RuntimeFolder


def bundle_of(folder: Path, entry_points: str = "") -> CachedBundle:
    """Make as much of a bundle, with one project in it, as the provider looks at."""
    info = folder / "store/root/runtime/environment/lib/python3.11/site-packages/x-1.dist-info"
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text(entry_points)
    manifest = SimpleNamespace(root="root", title="b", tools=())
    return cast("CachedBundle", SimpleNamespace(nix=folder, manifest=manifest))


@pytest.mark.parametrize("script", ["python", "python3"])
def test_no_script_of_a_project_is_written_over_the_machines_interpreter(
    tmp_path: Path, script: str
) -> None:
    interpreter, programs = tmp_path / "interpreter", tmp_path / "bin"
    interpreter.write_text("the machine's own")
    programs.mkdir()
    for name in ("python", "python3"):
        (programs / name).symlink_to(interpreter)
    (tmp_path / "packages").mkdir()
    bundle = bundle_of(tmp_path / "nix", f"[console_scripts]\n{script} = x:main\n")
    with pytest.raises(BundleError, match=f"project x-1 of bundle b has a script '{script}'"):
        _add_project(bundle, "x-1", tmp_path / "packages", programs)
    assert interpreter.read_text() == "the machine's own"


async def test_a_folder_that_cannot_be_made_is_said_on_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(folder: RuntimeFolder, _: object) -> None:
        shutil.rmtree(folder.path)

    def find(*_: Any) -> tuple[CachedBundle, Path]:
        return bundle_of(tmp_path / "nix"), Path(sys.prefix)

    monkeypatch.setattr("agentix.provider.uv.provider._warn", lost)
    monkeypatch.setattr(UvProvider, "_find", find)
    with tempfile.TemporaryDirectory(prefix="ax") as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        with pytest.raises(ProviderError, match=r"cannot make the folder of a sandbox, .*/work: "):
            await UvProvider().create(SandboxConfig(image="host", bundle="b"))
        assert list(Path(short, "agentix").iterdir()) == []
