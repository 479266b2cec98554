"""Command lines and environments of tritonserver, perf_analyzer, wrk, h2load and tisfast."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from perf.oracle.install import OracleMissing, facts, install, system_package

ROOT: Final = Path(__file__).resolve().parents[2]
HELP_SECONDS_MAX: Final = 30
TOOLS_SECONDS_MAX: Final = 600
_TISFAST = "import sys; sys.path.insert(0, {tree!r}); from tisfast.cli import main; sys.exit(main())"
"""Before the current folder, which `python -c` puts before PYTHONPATH: a tree in it would be served instead."""


class Launch(NamedTuple):
    """What to execute, and in which environment."""

    command: list[str]
    env: dict[str, str]


def triton(repositories: Sequence[Path | str], flags: Sequence[str] = ()) -> Launch:
    """The real tritonserver on some repositories."""
    folder = install()
    python = facts(folder / "server/bin/python")
    wheel = python.packages / "pytriton/tritonserver"
    env = {
        **os.environ,
        "PATH": f"{folder / 'server/bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "LD_LIBRARY_PATH": f"{python.packages / 'nvidia_pytriton.libs'}{os.pathsep}{python.libraries}",
        "PYTHONPATH": str(python.packages),
    }
    folders = [f"--model-repository={repository}" for repository in repositories]
    places = [f"--backend-directory={folder / 'backends'}", f"--cache-directory={wheel / 'caches'}"]
    return Launch([str(wheel / "bin/tritonserver"), *folders, *places, *flags], env)


def tisfast(repositories: Sequence[Path | str], flags: Sequence[str] = (), tree: Path | None = None) -> Launch:
    """tisfast on some repositories: the built source tree named, $TISFAST_COMMAND, the installed one, or this tree."""
    folders = [f"--model-repository={repository}" for repository in repositories]
    command, env = _tisfast(tree)
    return Launch([*command, "serve", *folders, *flags], env)


def knows(flag: str, tree: Path | None = None) -> bool:
    """Whether the help of a tisfast lists a flag with its value; what is refused stands among others at the end."""
    command, env = _tisfast(tree)
    done = subprocess.run(
        [*command, "serve", "--help"], env=env, check=False, capture_output=True, text=True, timeout=HELP_SECONDS_MAX
    )
    return re.search(rf"^ +--{flag} ", done.stdout, re.MULTILINE) is not None


def _tisfast(tree: Path | None) -> Launch:
    script = Path(sys.executable).with_name("tisfast")
    if tree is None and (wanted := os.environ.get("TISFAST_COMMAND")):
        return Launch(shlex.split(wanted), _environment())
    if tree is None and script.exists():
        return Launch([str(script)], _environment())
    return Launch([sys.executable, "-c", _TISFAST.format(tree=str(tree or ROOT))], _environment())


def perf_analyzer(flags: Sequence[str]) -> Launch:
    """The real perf_analyzer."""
    client = install() / "client"
    cuda = facts(client / "bin/python").packages / "nvidia/cuda_runtime/lib"
    return Launch([str(client / "bin/perf_analyzer"), *flags], {**os.environ, "LD_LIBRARY_PATH": str(cuda)})


def wrk() -> str:
    """Path of wrk, installed when missing and possible.  Raises OracleMissing with the command to type."""
    if not shutil.which("wrk"):
        system_package("wrk")
    return shutil.which("wrk") or "wrk"


def h2load() -> str:
    """Path of h2load, installed when missing and possible.  Raises OracleMissing with the command to type."""
    if not (found := shutil.which("h2load")):
        tools = [str(ROOT / ".ci/system-tools"), "load"]
        done = subprocess.run(tools, check=False, capture_output=True, text=True, timeout=TOOLS_SECONDS_MAX)
        if done.returncode or not (found := shutil.which("h2load")):
            raise OracleMissing(f"h2load is missing:\n{(done.stdout + done.stderr)[-2000:]}")
    return found


def _environment() -> dict[str, str]:
    """Ours, but that bytecode is kept: pip compiles what it installs, so a start that compiles it is nobody's."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
