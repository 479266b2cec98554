"""A Python environment as a model names it, and the interpreter that comes of it.  Layer 3 (environments).

Values only.  `environment_kind.py` makes an Environment of a path, `preparing.py` an Interpreter of an Environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Kind = Literal["interpreter", "folder", "archive", "requirements"]
Stamp = tuple[int, ...]

PYTHONS: Final = ("python3", "python")
"""Names of an environment's interpreter in its bin folder, in the order of the search."""


@dataclass(frozen=True)
class Environment:
    """An environment, as EXECUTION_ENV_PATH names it.

    path: absolute, links kept, because a virtual environment's interpreter is one.  interpreter: where nothing is to be
    prepared.  python: of requirements, the version or interpreter to build with, "" for the server's own.  stamp: of
    what is to be prepared, size and times of the file: another stamp, perhaps another content.
    """

    kind: Kind
    path: Path
    interpreter: Path | None = None
    python: str = ""
    stamp: Stamp = ()

    def __str__(self) -> str:
        """The name in messages."""
        return f"{NOUNS[self.kind]} {self.path}"

    def remedy(self, package: str) -> str:
        """How to add a package to it."""
        if self.kind == "requirements":
            return f"add '{package}' to {self.path} and load the model again"
        if self.kind == "archive":
            return f"install '{package}' where {self.path.name} was packed, pack it again and load the model again"
        return f"{self.interpreter} -m pip install {package}"


NOUNS: Final[dict[Kind, str]] = {
    "interpreter": "interpreter",
    "folder": "environment",
    "archive": "packed environment",
    "requirements": "requirements",
}


@dataclass(frozen=True)
class Interpreter:
    """An interpreter that can be started.

    path: absolute.  variables: what its processes get besides the server's own, as activating the environment would
    set it.  environment: which it belongs to, None for the server's own.
    """

    path: str
    variables: tuple[tuple[str, str], ...] = ()
    environment: Environment | None = None
