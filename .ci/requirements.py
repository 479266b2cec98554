"""Print requirements of pyproject.toml, one a line: `build`, `run`, or the name of an extra.  Standard library only.

The Makefile installs these and builds in place; pyproject.toml stays the one place that states them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path


def lists(text: str) -> dict[str, list[str]]:
    """The arrays of strings in a TOML file by "section.key".  Python 3.10 has no tomllib."""
    found: dict[str, list[str]] = {}
    section = ""
    for match in re.finditer(r"^\[([\w.-]+)\]|^([\w-]+) = \[(.*?)\](?: *#[^\n]*)?$", text, re.MULTILINE | re.DOTALL):
        if match[1]:
            section = match[1]
        else:
            found[f"{section}.{match[2]}"] = re.findall(r'"([^"]+)"', match[3])
    return found


def main() -> None:
    """Print what the arguments name."""
    known = lists((Path(__file__).parent.parent / "pyproject.toml").read_text())
    keys = {"build": "build-system.requires", "run": "project.dependencies"}
    for name in sys.argv[1:]:
        print("\n".join(known[keys.get(name, f"project.optional-dependencies.{name}")]))


main()
