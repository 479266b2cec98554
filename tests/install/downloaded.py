"""A downloaded wheel in a system without a compiler: installed, used, and how long that takes.

    python3 -m tests.install.downloaded FOLDER

FOLDER has the wheel of tisfast and those of all that it needs; nothing else is asked.  Needs the standard library only.
"""

from __future__ import annotations

import os
import platform
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


def main(wheels: Path) -> int:
    """Returns the exit code."""
    found = [name for name in COMPILERS if shutil.which(name)]
    if found:
        print(f"this system has {', '.join(found)}, and is to be one without a compiler", file=sys.stderr)
        return 2
    (wheel,) = wheels.glob("tisfast-*.whl")
    with tempfile.TemporaryDirectory(prefix="tisfast-downloaded") as scratch:
        place = Path(scratch)
        run(sys.executable, "-m", "venv", place / "venv")
        began = time.monotonic()
        run(place / "venv/bin/python", "-m", "pip", "install", "--quiet", "--no-index", f"--find-links={wheels}", wheel)
        installed_after = time.monotonic() - began
        installed = Installed(place / "venv", place / "home", ROOT / "examples/models")
        installed.serves()
        served_after = time.monotonic() - began
        brings_its_own_http2(installed, wheel.name)
        check_commands(installed)
    system = f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {os.uname().machine}"
    print(
        f"{wheel.name} on {system}, CPython {platform.python_version()}: installed after {installed_after:.1f} s; "
        f"had served and ended after {served_after:.1f} s",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
