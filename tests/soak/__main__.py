"""Soak the whole call path: ``make soak``, or ``python tests/soak --minutes N``.

Everything at once against one runtime, every result checked. The exit code says whether nothing
was wrong, lost, repeated or hung, and whether nothing has grown.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import get_args

sys.path[0] = str(Path(__file__).resolve().parents[1])


def main() -> int:
    """Soak for a while, and say what has grown."""
    from local_runtime import LocalRuntime

    from soak.busy import Where, busy
    from soak.run import soak

    parser = argparse.ArgumentParser(prog="soak", description="Soak the whole call path.")
    parser.add_argument("--minutes", type=float, default=10.0)
    minutes = parser.parse_args().minutes
    for where in get_args(Where):
        print(f"soak: the loop of the {where} is busy for a minute", flush=True)
        with LocalRuntime() as runtime:
            asyncio.run(busy(runtime, where, 60))
    grown = asyncio.run(soak(60 * minutes, lambda text: print(f"soak: {text}", flush=True)))
    print("soak: " + ("; ".join(["grown", *grown]) if grown else "nothing has grown"))
    return bool(grown)


if __name__ == "__main__":
    sys.exit(main())
