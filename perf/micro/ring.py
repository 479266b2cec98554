"""Compiles and runs ring.c: rings have no Python of their own to measure."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/ring"
        sources = [str(ROOT / "perf/micro/ring.c"), *map(str, sorted((ROOT / "csrc").glob("tf_*.c")))]
        flags = ["-O2", "-DNDEBUG", "-std=c11", f"-I{ROOT / 'csrc'}"]
        subprocess.run([*os.environ.get("CC", "cc").split(), *flags, "-o", program, *sources], check=True)
        subprocess.run([program], check=True)


if __name__ == "__main__":
    main()
