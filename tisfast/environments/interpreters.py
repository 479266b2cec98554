"""Find the interpreter that an environment is to be built with, and ask interpreters what they are.

Layer 3 (environments).
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tisfast import limits
from tisfast.environments.build_errors import EnvironmentFailed
from tisfast.environments.run_program import foreign_environ

OLDEST: Final = (3, 8)
"""The oldest Python that the worker runtime runs on."""
_FACTS: Final = """
import json, platform, sys
print(json.dumps([sys.implementation.name, sys.version_info[:3], platform.machine(), sys.prefix, sys.base_prefix]))
"""


@dataclass(frozen=True)
class PythonFacts:
    """Facts that an interpreter reports of itself."""

    path: str
    implementation: str
    version: tuple[int, ...]
    machine: str
    prefix: str
    base_prefix: str

    @property
    def number(self) -> str:
        """3.9.18."""
        return ".".join(map(str, self.version))


def ask(path: str, variables: dict[str, str] | None = None) -> PythonFacts:
    """Ask the interpreter at `path` for its facts.  Raises EnvironmentFailed when it does not run."""
    try:
        done = subprocess.run(
            [path, "-I", "-c", _FACTS], capture_output=True, text=True, errors="backslashreplace", check=False,
            stdin=subprocess.DEVNULL, timeout=limits.INTERPRETER_CHECK_SECONDS_MAX,
            env=foreign_environ(os.environ, variables),
        )  # fmt: skip
        if done.returncode == 0:
            name, version, machine, prefix, base = json.loads(done.stdout)
            return PythonFacts(path, name, tuple(version), machine, prefix, base)
        said = done.stderr.strip().splitlines()
        why = said[-1] if said else f"it ended with code {done.returncode}"
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        why = str(error)
    raise EnvironmentFailed(f"{path} does not run: {why}")


def find(wanted: str, pyenv_root: str, uv: str | None) -> PythonFacts:
    """The interpreter of that version, or at that path; for "" our own.  Raises EnvironmentFailed."""
    if not wanted:
        return _ours()
    if wanted.startswith("/"):
        return served(ask(wanted))
    numbers = tuple(map(int, wanted.split(".")))
    for path in _candidates(wanted, numbers, pyenv_root, uv):
        try:
            facts = ask(path)
        except EnvironmentFailed:
            continue  # pyenv's shims are there for versions that are switched off
        if facts.version[: len(numbers)] == numbers:
            return served(facts)
    raise EnvironmentFailed(
        f"no Python {wanted} was found: neither on PATH, nor with pyenv in {pyenv_root or 'PYENV_ROOT'}"
        + (", nor with uv" if uv else ""),
        f"install it (uv python install {wanted}, pyenv install {wanted}), or name an interpreter's path",
    )


def _ours() -> PythonFacts:
    name, version = sys.implementation.name, tuple(sys.version_info[:3])
    return PythonFacts(sys.executable, name, version, platform.machine(), sys.prefix, sys.base_prefix)


def served(facts: PythonFacts) -> PythonFacts:
    """`facts`, unless no model can run under it.  Raises EnvironmentFailed."""
    if facts.implementation != "cpython" or facts.version[:2] < OLDEST:
        raise EnvironmentFailed(
            f"{facts.path} is {facts.implementation} {facts.number}; models run under CPython "
            f"{'.'.join(map(str, OLDEST))} or newer"
        )
    return facts


def _candidates(wanted: str, numbers: tuple[int, ...], pyenv_root: str, uv: str | None) -> Iterator[str]:
    if sys.version_info[: len(numbers)] == numbers:
        yield sys.executable
    for name in (f"python{'.'.join(map(str, numbers[:2]))}", "python3", "python"):
        found = shutil.which(name)
        if found:
            yield found
    if pyenv_root:
        versions = sorted(Path(pyenv_root, "versions").glob(f"{wanted}*/bin/python"), key=_by_number, reverse=True)
        yield from map(str, versions)
    if uv:
        command = [uv, "python", "find", "--no-python-downloads", wanted]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL,
                                  timeout=limits.INTERPRETER_CHECK_SECONDS_MAX)  # fmt: skip
            yield done.stdout.strip()


def _by_number(python: Path) -> list[int]:
    return [int(part) if part.isdecimal() else 0 for part in python.parts[-3].split(".")]
