"""Make an environment for each public client: python -m tests.clients.environments FOLDER [NAME...].

As many at one time as there are cores.  What is there already is kept as long as what it must hold is the same.  Says
how long each took.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

INSTALL_SECONDS_MAX: Final = 600
"""Of one environment."""


class Environment(NamedTuple):
    """What is installed.  npm: packages of Node's; else they are Python's."""

    packages: tuple[str, ...]
    npm: bool = False

    def interpreter(self, folder: Path) -> list[str]:
        """The command that runs a program in it."""
        return ["node"] if self.npm else [str(folder / "bin" / "python")]

    def variables(self, folder: Path) -> dict[str, str]:
        """What its programs want in their environment."""
        if self.npm:
            return {"NODE_PATH": str(folder / "node_modules")}
        return {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


ENVIRONMENTS: Final = {
    "tritonclient": Environment(("tritonclient[http,grpc]==2.73.0",)),
    # As old as the server that it was made for, with the grpcio of that time.
    "tritonclient_2_51": Environment(("tritonclient[http,grpc]==2.51.0", "grpcio==1.67.1", "numpy<2")),
    "pytriton": Environment(("nvidia-pytriton==0.7.0",)),
    "kserve": Environment(("kserve==0.21.0",)),
    "tritony": Environment(("tritony==0.0.23",)),
    "open_inference": Environment(("open-inference-openapi==2.0.0.1", "open-inference-grpc==2.0.0", "protobuf")),
    "grpc_js": Environment(("@grpc/grpc-js@1.14.7", "@grpc/proto-loader@0.8.1"), npm=True),
    "model_analyzer": Environment(("triton-model-analyzer==1.58.0",)),
    "aiperf": Environment(("aiperf==0.13.0",)),
}


class Failed(Exception):
    """An environment that cannot be made, with the installer's last words."""


def main(folder: Path, names: list[str]) -> int:
    """Make those that are named, or all; returns the exit code."""
    unknown = sorted(set(names) - set(ENVIRONMENTS))
    if unknown:
        print(f"no such client: {', '.join(unknown)}; known are {', '.join(ENVIRONMENTS)}", file=sys.stderr)
        return 2
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        made = pool.map(lambda name: _made(name, folder), names or ENVIRONMENTS)
        return int(not all(list(made)))


def _made(name: str, folder: Path) -> bool:
    """Whether it is there now; says so."""
    began = time.monotonic()
    try:
        made = make(ENVIRONMENTS[name], folder / name)
    except Failed as e:
        print(f"{name}: cannot be installed: {e}", file=sys.stderr, flush=True)
        return False
    print(f"{name}: {'installed' if made else 'is there'} after {time.monotonic() - began:.1f} s", flush=True)
    return True


def make(environment: Environment, folder: Path) -> bool:
    """Returns whether it had to be made.  Raises Failed."""
    stamp = folder / "installed.txt"
    wanted = "\n".join(environment.packages)
    if stamp.exists() and stamp.read_text() == wanted:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for command in _npm(environment) if environment.npm else _python(environment, folder):
        _run(command, folder)
    stamp.write_text(wanted)
    return True


def _npm(environment: Environment) -> list[list[str]]:
    return [["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *environment.packages]]


def _python(environment: Environment, folder: Path) -> list[list[str]]:
    """By uv where it is there: several times as quick."""
    python = str(folder / "bin" / "python")
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv:
        return [
            [uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder)],
            [uv, "pip", "install", "--quiet", "--python", python, *environment.packages],
        ]
    # This environment's pip installs there, without bytecode: what the programs import is compiled at their start.
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "--quiet"]
    return [
        [sys.executable, "-m", "venv", "--without-pip", str(folder)],
        [*pip, "--no-compile", *environment.packages],
    ]


def _run(command: list[str], folder: Path) -> None:
    """Raises Failed."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False
        )
    except FileNotFoundError:
        raise Failed(f"{command[0]} is missing on this machine") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"not within {INSTALL_SECONDS_MAX} s") from None
    if done.returncode:
        raise Failed((done.stderr or done.stdout)[-2000:].strip())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute(), sys.argv[2:]))
