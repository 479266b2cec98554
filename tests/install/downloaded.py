"""A downloaded wheel in a system without a compiler: installed, used, and how long that takes.

    python3 -m tests.install.downloaded FOLDER [floor]

FOLDER has the wheel of tisfast and those of all that it needs; nothing else is asked.  Needs the standard library only.
Processor seconds tell what it takes where a machine is busy.  With `floor` it also says what the least program with the
same dependencies takes: they are installed, and numpy is imported.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.install.installed import Installed
from tests.install.smoke import ROOT, check_commands, run
from tests.install.wheel import brings_its_own_http2

COMPILERS: Final = ("cc", "gcc", "clang", "c++", "g++")


def main(wheels: Path, *, compared: bool) -> int:
    """compared: with the floor.  Returns the exit code."""
    found = [name for name in COMPILERS if shutil.which(name)]
    if found:
        print(f"this system has {', '.join(found)}, and is to be one without a compiler", file=sys.stderr)
        return 2
    (wheel,) = wheels.glob("tisfast-*.whl")
    with tempfile.TemporaryDirectory(prefix="tisfast-downloaded") as scratch:
        place = Path(scratch)
        least = floor(place / "floor", wheels) if compared else ""
        watch = Stopwatch()
        watch.of_pip(place / "venv", wheels, [wheel])
        installed = Installed(place / "venv", place / "home", ROOT / "examples/models")
        installed.serves()
        watch.stop()
        brings_its_own_http2(installed, wheel.name)
        check_commands(installed)
    system = f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {os.uname().machine}"
    print(
        f"{wheel.name} on {system}, CPython {platform.python_version()}: {watch.said} until it had served and ended"
        f"{least}",
        flush=True,
    )
    return 0


def floor(venv: Path, wheels: Path) -> str:
    """What the dependencies alone take."""
    needed = [path for path in wheels.iterdir() if not path.name.startswith("tisfast-")]
    watch = Stopwatch()
    run(watch.of_pip(venv, wheels, needed), "-c", "import numpy")
    watch.stop()
    return f"; the dependencies alone with an import of numpy: {watch.said}"


class Stopwatch:
    """Seconds, and processor seconds of the processes that were waited for: of pip, and from pip to the end."""

    def __init__(self) -> None:
        """It runs from the first pip."""
        self.said = ""
        self._began = self._installed = (0.0, 0.0)

    def of_pip(self, venv: Path, wheels: Path, wanted: list[Path]) -> Path:
        """Install wheels into a fresh environment, which is made before the time begins; returns its Python."""
        run(sys.executable, "-m", "venv", venv)
        python = venv / "bin/python"
        self._began = _now()
        run(python, "-m", "pip", "install", "--quiet", "--no-index", f"--find-links={wheels}", *wanted)
        self._installed = _now()
        return python

    def stop(self) -> None:
        """Say what was seen."""
        wall, busy = (end - began for end, began in zip(_now(), self._began, strict=True))
        pip_wall, pip_busy = (end - began for end, began in zip(self._installed, self._began, strict=True))
        self.said = f"{wall:.1f} s ({pip_wall:.1f} s pip), {busy:.1f} s of a processor ({pip_busy:.1f} s pip)"


def _now() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic(), used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), compared="floor" in sys.argv[2:]))
