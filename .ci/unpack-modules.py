"""unpack-modules.py WHEEL: put what was compiled for a wheel where a build in this tree puts it.

Standard library only.  A tree that cannot be built where its tests are to run, as under emulation, becomes one that
was.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE, INSTALLED = "workers/", "tisfast/_workers/"  # of the worker runtime


def main(wheel: str) -> None:
    """Modules, the libraries beside them, and the protobuf descriptors."""
    with zipfile.ZipFile(wheel) as file:
        for name in file.namelist():
            if name.endswith("/") or not (name.endswith((".so", ".desc")) or name.startswith("tisfast.libs/")):
                continue
            target = ROOT / name.replace(INSTALLED, SOURCE)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read(name))


main(sys.argv[1])
