"""The page on namespaces: its two files are run, and print what it says."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local_runtime import plugin

if TYPE_CHECKING:
    import pytest
    from local_runtime import LocalRuntime

PAGE = Path(__file__).parents[2] / "docs" / "namespaces.md"


async def test_the_example_prints_what_its_comments_say(
    fresh: LocalRuntime,
    make_host: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        (tmp_path / name).write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("approvals", "main"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    main = importlib.import_module("main")
    try:
        async with make_host(fresh.url, fresh.token) as preparing:
            await preparing.remote(plugin.look_in, str(tmp_path))
        await main.main(sandbox := make_host(fresh.url, fresh.token))
        await sandbox.close()
    finally:
        for name in ("approvals", "main"):
            del sys.modules[name]
    said = re.findall(
        r"print\(await.*\)  # (.*?)(?::.*)?$|print\(appr.*\)  # (.*)$",
        (tmp_path / "main.py").read_text(),
        re.MULTILINE,
    )
    expected = [one or other for one, other in said]
    assert len(expected) == 5
    assert [line for line in capsys.readouterr().out.splitlines() if line in expected] == expected
