"""Checks an environment: its interpreter runs, and the worker runtime runs under it.

Layer 3 (environments).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tisfast import limits
from tisfast.environments.build_errors import EnvironmentFailed
from tisfast.environments.environment import Interpreter
from tisfast.environments.interpreters import PythonFacts, ask, served
from tisfast.environments.run_program import foreign_environ

_IMPORT: Final = """
import json, sys
sys.path.append(sys.argv[1])
said = {}
for name in ("triton_python_backend_utils", "tisfast_worker.nursery", "numpy"):
    try:
        module = __import__(name)
        said[name] = [getattr(module, "__version__", ""), ""]
    except Exception as error:
        said[name] = ["", "%s: %s" % (type(error).__name__, error)]
print(json.dumps(said))
"""


@dataclass(frozen=True)
class Findings:
    """numpy: its version, "" when it cannot be imported, then for the reason in numpy_error.

    runtime_error: why the worker runtime cannot be imported, "" when it can.
    """

    python: PythonFacts
    numpy: str
    numpy_error: str
    runtime_error: str


def inspect(interpreter: Interpreter, runtime: Path) -> Findings:
    """Start the interpreter and see.  runtime: the folder of the worker runtime.  Raises EnvironmentFailed."""
    variables = dict(interpreter.variables)
    python = served(ask(interpreter.path, variables))
    said = _imported(interpreter.path, runtime, foreign_environ(os.environ, variables))
    errors = [said[name][1] for name in said if name != "numpy" and said[name][1]]
    version, error = said["numpy"]
    return Findings(python, version, error, "; ".join(errors))


def _imported(path: str, runtime: Path, environ: Mapping[str, str]) -> dict[str, list[str]]:
    try:
        done = subprocess.run(
            [path, "-I", "-c", _IMPORT, str(runtime)], capture_output=True, text=True, errors="backslashreplace",
            check=False, stdin=subprocess.DEVNULL, timeout=limits.NURSERY_START_SECONDS_MAX, env=environ,
        )  # fmt: skip
        if done.returncode == 0:
            return dict(json.loads(done.stdout.splitlines()[-1]))
        why = done.stderr.strip()[-limits.NURSERY_STDERR_BYTES_MAX :] or f"it ended with code {done.returncode}"
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        why = str(error)
    raise EnvironmentFailed(f"{path} cannot import what workers need: {why}")
