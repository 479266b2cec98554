"""Archive, wheel and installation, as a person who types `pip install tisfast` meets them.

    python -m tests.install.smoke [PYTHON...]

Makes the source archive, and for each PYTHON (all CPythons 3.10 and newer that are found, when none is named) the wheel
from that archive and a fresh environment with it; then uses what is installed, far from the source tree.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.install.installed import HELP_IMPORTS, Installed, imports_little
from tests.install.pythons import interpreters

ROOT: Final = Path(__file__).resolve().parents[2]
INSTALLED_BYTES_MAX: Final = 100_000_000
COMMAND_SECONDS_MAX: Final = 600
BUILD_SECONDS_MAX: Final = 2400  # three minutes of one core, where a machine has a tenth of one left
FOR_USERS: Final = ("tisfast/client/testing.py",)  # for the tests of those who write models, and so in every wheel
PARTS: Final = (  # of a wheel: what must be in it
    "tisfast/py.typed",
    "tisfast/native/memory.pyi",
    "tisfast/wire/proto/triton.desc",
    "tisfast_workers.pth",
    "tisfast/_docs/models.md",
    "tisfast/first_model/model.py.txt",
    "tisfast/_workers/__main__.py",
    "tisfast/_workers/libtisfast_shm.so",
    "tisfast/_workers/backends/python.py",
    "triton_python_backend_utils-stubs/__init__.pyi",
    *FOR_USERS,
)
COMPILED_WORKER: Final = "tisfast/_workers/tisfast_worker/loop."  # and the tag of the Python that the wheel is for
LEGAL: Final = ("/LICENSE", "/NOTICE")
FOREIGN: Final = (".c", ".h", ".o", ".pyx", ".pxd", ".pyc")  # and what must not
FOREIGN_WORDS: Final = ("test", "examples", "perf/", "csrc/")


class Failed(Exception):
    """What is wrong with the archive, the wheel or the installation."""


def main(names: list[str]) -> int:
    """Check each Python; returns the exit code."""
    failed = []
    with tempfile.TemporaryDirectory(prefix="tisfast-install") as scratch:
        archive = make_archive(Path(scratch))
        for python in names or interpreters():
            began = time.monotonic()
            try:
                said = check(python, archive, Path(scratch))
            except (Failed, AssertionError) as e:
                failed.append(python)
                said = f"FAILED\n{e}"
            print(f"{python}: {said} ({time.monotonic() - began:.0f} s)", flush=True)
    return 1 if failed else 0


def check(python: str, archive: Path, scratch: Path) -> str:
    """Build the wheel with one Python, install it, use it.  Returns what was seen, or raises Failed."""
    place = Path(tempfile.mkdtemp(dir=scratch))
    wheel = make_wheel(python, archive, place)
    installed = install(python, wheel, place)
    sizes = installed.sizes()
    print("\n".join(f"  {name:24}{nbytes / 1e6:6.1f} MB" for name, nbytes in sizes.items()))
    if sum(sizes.values()) > INSTALLED_BYTES_MAX:
        raise Failed(f"{sum(sizes.values())} bytes are installed, at most {INSTALLED_BYTES_MAX} should be")
    check_commands(installed)
    installed.serves()
    return f"{wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB, installed {sum(sizes.values()) / 1e6:.1f} MB: works"


def make_wheel(python: str, archive: Path, place: Path) -> Path:
    """Build a wheel from the source archive, and look at what is in it."""
    run(python, "-m", "venv", place / "build")
    pip = (place / "build/bin/python", "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", place, archive, seconds_max=BUILD_SECONDS_MAX)
    (wheel,) = place.glob("*.whl")
    check_contents(wheel)
    return wheel


def install(python: str, wheel: Path, place: Path) -> Installed:
    """A fresh environment with a wheel and what it needs."""
    run(python, "-m", "venv", place / "venv")
    run(place / "venv/bin/python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", wheel)
    return Installed(place / "venv", place / "home", ROOT / "examples/models")


def make_archive(target: Path) -> Path:
    """The source archive, from which wheels must be buildable without a protobuf compiler."""
    hook = f"import backend; print(backend.build_sdist({str(target)!r}))"
    archive = target / run(sys.executable, "-c", hook, cwd=ROOT).splitlines()[-1]
    with tarfile.open(archive) as tar:
        if not any(name.endswith("/triton.desc") for name in tar.getnames()):
            raise Failed(f"{archive.name} lacks triton.desc")
    return archive


def check_contents(wheel: Path) -> None:
    """All that it needs is in the wheel, and nothing else."""
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    missing = [part for part in PARTS if part not in names]
    if not any(name.startswith(COMPILED_WORKER) and name.endswith(".so") for name in names):
        missing.append(f"{COMPILED_WORKER}*.so")
    others = [name for name in names if name not in FOR_USERS]
    foreign = [name for name in others if name.endswith(FOREIGN) or any(word in name for word in FOREIGN_WORDS)]
    legal = all(any(name.endswith(each) for name in names) for each in LEGAL)
    if missing or foreign or not legal:
        raise Failed(f"{wheel.name}: missing {missing}, foreign {foreign}, {LEGAL} among {len(names)} files: {legal}")


def check_commands(installed: Installed) -> None:
    """What answers without serving."""
    if not (said := installed.run("tisfast", "version")).startswith("tisfast "):
        raise Failed(f"tisfast version said {said!r}")
    installed.run("tisfast", "--help")
    if not imports_little(said := installed.run("python", "-c", HELP_IMPORTS)):
        raise Failed(f"tisfast --help imports too much: {said.splitlines()[-1]}")
    installed.run("tisfast", "check", str(installed.models))
    if not installed.run("tisfast", "docs", "models").startswith("# Models"):
        raise Failed("tisfast docs models prints another page")
    with tempfile.TemporaryDirectory() as first:
        installed.run("tisfast", "init", first)
        installed.run("tisfast", "check", "--run", first)
    said = installed.run("python", "-c", "import triton_python_backend_utils as p; print(p.Tensor, p.TritonError(''))")
    if "Tensor" not in said:
        raise Failed(f"import triton_python_backend_utils: {said!r}")


def run(*command: str | Path, cwd: Path | None = None, seconds_max: int = COMMAND_SECONDS_MAX) -> str:
    """Output of a command.  Raises Failed with all of it."""
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=dict(outside()),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds_max,
    )
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}"[-4000:])
    return done.stdout


def outside() -> Iterator[tuple[str, str]]:
    """The environment without what leads Python back to the source tree."""
    return ((name, value) for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
