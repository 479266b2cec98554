"""Install the real tritonserver (2.51) and perf_analyzer (2.41) from public wheels into a cache folder.

Running it again does nothing when all is there, and two runs at once wait for each other.  The folder is
$TISFAST_ORACLE_HOME, by default ~/.cache/tisfast-oracle; it holds

    server/            virtual environment with the wheel that carries tritonserver
    client/            virtual environment with the wheel that carries perf_analyzer
    backends/python/   the Python backend with the stub of server/'s Python version
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

SERVER_WHEEL: Final = "nvidia-pytriton==0.7.0"  # carries tritonserver 2.51.0 (October 2024)
CLIENT_WHEELS: Final = ("tritonclient==2.41.1", "nvidia-cuda-runtime-cu12")  # perf_analyzer links libcudart
PYTHONS: Final = ("3.11", "3.10", "3.12", "3.13", "3.9")  # the wheel has stubs for these
BASE64_LIBRARY: Final = ("libb64.so.0d", "libb64-0d")  # what tritonserver links; Debian's name for it
INSTALL_SECONDS_MAX: Final = 900

_FACTS = """
import sys, sysconfig
v = sysconfig.get_config_var
print("%d.%d" % sys.version_info[:2], v("Py_ENABLE_SHARED") or 0, v("LIBDIR"), sysconfig.get_path("purelib"), sep="\\n")
"""


class OracleMissing(RuntimeError):
    """The real Triton cannot be installed or run here; the text says what to do."""


class PythonFacts(NamedTuple):
    """What the launcher must know of an interpreter: version as "3.11", shared libpython, folders."""

    version: str
    shared: bool
    libraries: str
    packages: Path


def home() -> Path:
    """The cache folder."""
    return Path(os.environ.get("TISFAST_ORACLE_HOME") or Path.home() / ".cache" / "tisfast-oracle")


def facts(python: Path | str) -> PythonFacts:
    """Ask an interpreter about itself."""
    answer = subprocess.run([str(python), "-I", "-c", _FACTS], capture_output=True, text=True, check=True, timeout=60)
    version, shared, libraries, packages = answer.stdout.split("\n")[:4]
    return PythonFacts(version, shared == "1", libraries, Path(packages))


def install() -> Path:
    """Install what is missing, and return the cache folder.  Raises OracleMissing with the reason."""
    folder = home()
    if _complete(folder):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _complete(folder):
            _install_into(folder)
    return folder


def _complete(folder: Path) -> bool:
    marks = [folder / "server/.done", folder / "client/.done", folder / "backends/python/triton_python_backend_stub"]
    return all(mark.exists() for mark in marks) and _has_base64()


def _install_into(folder: Path) -> None:
    if not (folder / "server/.done").exists():
        _environment(folder / "server", SERVER_WHEEL)
    if not (folder / "client/.done").exists():
        _environment(folder / "client", "--no-deps", *CLIENT_WHEELS)
    if not _has_base64():
        system_package(BASE64_LIBRARY[1])
    _backend(folder)


def _environment(folder: Path, *wheels: str) -> None:
    """A virtual environment with some wheels; marked .done only when all of it worked."""
    shutil.rmtree(folder, ignore_errors=True)
    _run(_base_python(), "-m", "venv", str(folder))
    _run(str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wheels)
    (folder / ".done").touch()


def _backend(folder: Path) -> None:
    """Copy the Python backend out of the wheel, with the stub that matches the environment's Python."""
    python = facts(folder / "server/bin/python")
    wheel = python.packages / "pytriton/tritonserver"
    stub = wheel / "python_backend_stubs" / python.version / "triton_python_backend_stub"
    if not stub.exists():
        raise OracleMissing(f"the wheel {SERVER_WHEEL} carries no stub for Python {python.version} ({stub} is missing)")
    target = folder / "backends/python"
    target.mkdir(parents=True, exist_ok=True)
    for path in [*(wheel / "backends/python").glob("*.py"), *(wheel / "backends/python").glob("*.so"), stub]:
        shutil.copy2(path, target / path.name)


def _base_python() -> str:
    """A CPython with a shared libpython, which the stub links: this one, or one on PATH."""
    for python in _candidates():
        try:
            found = facts(python)
        except (OSError, subprocess.SubprocessError):
            continue
        if found.shared and found.version in PYTHONS:
            return python
    raise OracleMissing(
        f"the real Triton's Python stub needs CPython {', '.join(sorted(PYTHONS))} built with a shared libpython, "
        f"and neither {sys.executable} nor a python3.x on PATH is one; on Debian: apt-get install python3 python3-venv"
    )


def _candidates() -> Iterator[str]:
    yield sys.executable
    for name in [*(f"python{version}" for version in PYTHONS), "python3"]:
        if found := shutil.which(name):
            yield found


def _has_base64() -> bool:
    try:
        ctypes.CDLL(BASE64_LIBRARY[0])
    except OSError:
        return False
    return True


def system_package(name: str) -> None:
    """Install a Debian package when we may; otherwise raise OracleMissing with the command that does it."""
    command = f"apt-get install -y {name}"
    if not shutil.which("apt-get") or os.geteuid() != 0:
        raise OracleMissing(f"the system package {name} is missing; install it with: sudo {command}")
    try:
        _run(*command.split())
    except OracleMissing:  # package lists may be old or absent
        _run("apt-get", "update")
        _run(*command.split())


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise OracleMissing(f"{' '.join(command)}: {e}") from e
    if done.returncode:
        raise OracleMissing(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
