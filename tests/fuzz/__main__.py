"""Fuzz the readers with atheris: ``make fuzz``, or ``python tests/fuzz [target [input]]``.

Each target runs for SECONDS (60) in a process of its own, beginning with real encodings and with
what earlier runs found interesting. The first input that breaks a reader ends it and is shown.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / ".cache" / "fuzz"
sys.path.insert(0, str(ROOT / "tests"))

_LONGEST = 64 << 10  # bytes of one input
_SLOWEST = 10  # seconds for one input
_MOST = 2048  # MiB of memory


def main() -> None:
    """Fuzz all targets or one, or run one input again."""
    if sys.argv[1:2] == ["--run"]:
        _fuzz(sys.argv[2], sys.argv[3:])
    from fuzz.targets import TARGETS

    seconds = int(os.environ.get("SECONDS", "60"))
    match sys.argv[1:]:
        case []:
            broken = [name for name in TARGETS if not _ran(name, seconds)]
            sys.exit(f"fuzz: broken: {', '.join(broken)}" if broken else 0)
        case [name] if name in TARGETS:
            sys.exit(not _ran(name, seconds))
        case [name, path] if name in TARGETS:
            TARGETS[name](Path(path).read_bytes())
            print(f"fuzz: {name} bears {path}")
        case _:
            sys.exit(f"usage: python tests/fuzz [{'|'.join(TARGETS)} [INPUT]]")


def _ran(name: str, seconds: int) -> bool:
    """Fuzz one target in a process of its own; tell whether nothing broke."""
    from fuzz.seeds import SEEDS

    kept, crashes = WORK / "kept" / name, WORK / "crashes" / name
    seeds = WORK / "seeds" / name
    for folder in (kept, crashes, seeds):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[name]()):
        (seeds / str(number)).write_bytes(seed)
    before = set(crashes.iterdir())
    print(f"fuzz: {name} for {seconds} s", flush=True)
    log = WORK / f"{name}.log"
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={_LONGEST}",
        f"-timeout={_SLOWEST}",
        f"-rss_limit_mb={_MOST}",
        f"-artifact_prefix={crashes}/",
        "-print_final_stats=1",
    ]
    command = [sys.executable, __file__, "--run", name, *options, str(kept), str(seeds)]
    with log.open("wb") as output:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=seconds + 300,
        )
    said = log.read_text(errors="replace")
    runs = next((line.split()[-1] for line in said.splitlines() if "executed_units" in line), "?")
    print(f"fuzz: {name} {'broke after' if ended.returncode else 'bore'} {runs} inputs", flush=True)
    if ended.returncode == 0:
        return True
    print("\n".join(line for line in said.splitlines() if "Instrumenting" not in line)[-4000:])
    for path in sorted(set(crashes.iterdir()) - before):
        data = path.read_bytes()
        print(f"fuzz: {len(data):,} bytes: {data[:400]!r}")
        print(f"fuzz: again: {sys.executable} tests/fuzz {name} {path.relative_to(ROOT)}")
        print(f"fuzz: once it is mended: mv {path.relative_to(ROOT)} tests/fuzz/found/{name}/")
    return False


def _fuzz(name: str, options: list[str]) -> None:
    import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]

    with atheris.instrument_imports(include=["agentix", "agentix_runtime", "socketio"]):
        from fuzz.mutate import distort
        from fuzz.targets import TARGETS, joined, split

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        if name == "values":
            document, buffers = split(data)
            made: bytes = joined(distort(document, chance), buffers)
            return made[:most]
        at = chance.choice((0, 1)) if name in ("http", "record") else 0
        changed: bytes = data[:at] + distort(data[at:], chance)
        return changed[:most]

    atheris.Setup([sys.argv[0], *options], TARGETS[name], custom_mutator=mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
