"""`tisfast pytriton`: whether PyTriton's API works on this machine, with logs to send to somebody who can help."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import logging
import os
import pathlib
import platform
import subprocess
import sys
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tisfast import __version__
from tisfast.pytriton.check import add_sub
from tisfast.pytriton.check.utils import DEFAULT_LOG_FORMAT

SCRIPT_SECONDS_MAX: Final = 300
_ENVIRONMENT: Final = "environment.json"
_SECRETS: Final = ("TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL")


def environment(folder: pathlib.Path) -> None:
    """Python, machine and packages, and the variables whose names tell of no secret."""
    packages = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    found = {
        "tisfast": __version__,
        "python": sys.version,
        "executable": sys.executable,
        "platform": platform.platform(),
        "cores": sorted(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "packages": dict(sorted(packages.items(), key=lambda each: str(each[0]).lower())),
        "variables": {
            name: value
            for name, value in sorted(os.environ.items())
            if not any(word in name.upper() for word in _SECRETS)
        },
    }
    (folder / _ENVIRONMENT).write_text(json.dumps(found, indent=2) + "\n")


def example_add_sub(folder: pathlib.Path) -> None:
    """A server in this process."""
    add_sub.run()


def example_add_sub_script(folder: pathlib.Path) -> None:
    """The same as a program of its own.  Raises CalledProcessError, TimeoutExpired."""
    with open(folder / "add_sub_script.log", "wb") as log:
        subprocess.run(
            [sys.executable, "-m", add_sub.__name__],
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=SCRIPT_SECONDS_MAX,
            check=True,
        )


Step = tuple[str, Callable[[pathlib.Path], None]]
_ENV: Final[Step] = ("env", environment)
_ADD_SUB: Final[Step] = ("example-add-sub", example_add_sub)
_SCRIPT: Final[Step] = ("example-add-sub-script", example_add_sub_script)
COMMANDS: Final[dict[str, tuple[Step, ...]]] = {
    "check": (_ENV, _ADD_SUB, _SCRIPT),
    "env": (_ENV,),
    "examples": (_ADD_SUB, _SCRIPT),
    "example-add-sub": (_ADD_SUB,),
    "example-add-sub-script": (_SCRIPT,),
}


def main(arguments: Sequence[str], program: str = "tisfast pytriton") -> int:
    """Run one command; returns the exit code."""
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("command", nargs="?", default="check", choices=COMMANDS, help="default: check, which is all")
    parser.add_argument("-w", "--workspace", type=pathlib.Path, help="folder for the logs, which must not exist")
    parser.add_argument("--zip", action="store_true", help="write the logs to WORKSPACE.zip, too")
    given = parser.parse_args(list(arguments))
    folder = given.workspace or pathlib.Path(f"pytriton_check_{time.strftime('%Y%m%d_%H%M%S')}")
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        print(f"{program}: the workspace {folder} cannot be made: {error.strerror}", file=sys.stderr)
        return 1
    with _log_file(folder / "check.log"):
        results = [_run(name, step, folder) for name, step in COMMANDS[given.command]]
    print(f"logs are in {folder}")
    if given.zip:
        print(f"and in {_zipped(folder)}")
    return 0 if all(results) else 1


def program() -> int:
    """The console script `pytriton` of the second distribution (compat/pytriton)."""
    return main(sys.argv[1:], "pytriton")


def _run(name: str, step: Callable[[pathlib.Path], None], folder: pathlib.Path) -> bool:
    began = time.monotonic()
    try:
        step(folder)
    except Exception as error:
        (folder / f"{name}.error.txt").write_text(traceback.format_exc())
        print(f"{name}: failed: {error}")
        return False
    print(f"{name}: fine ({time.monotonic() - began:.1f} s)")
    return True


@contextlib.contextmanager
def _log_file(path: pathlib.Path) -> Iterator[None]:
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter(DEFAULT_LOG_FORMAT))
    logger = logging.getLogger("tisfast")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()


def _zipped(folder: pathlib.Path) -> pathlib.Path:
    target = folder.with_name(f"{folder.name}.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder.parent))
    return target
