"""Notebooks, executed without a browser: each cell in the order in which somebody runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.system.helpers import ROOT, SECONDS_MAX

RUN = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in sys.stdin.read().split("\\f")])
NotebookClient(notebook, timeout=int(sys.argv[2])).execute()
nbformat.write(notebook, sys.argv[1])
"""


def code_cells(notebook: Path) -> list[str]:
    """What its code cells say."""
    cells = json.loads(notebook.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def execute(cells: Sequence[str], folder: Path) -> list[str]:
    """What each cell shows, as a browser would: HTML where there is some.  A cell that raises fails.

    folder: everything that Jupyter writes is there.
    """
    done = folder / "done.ipynb"
    command = [sys.executable, "-c", RUN, str(done), str(SECONDS_MAX)]
    variables = {
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "IPYTHONDIR": str(folder),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    ran = subprocess.run(
        command, input="\f".join(cells), capture_output=True, text=True, timeout=2 * SECONDS_MAX, check=False,
        cwd=folder, env={**os.environ, **variables},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ["".join(map(_shown, cell["outputs"])) for cell in json.loads(done.read_text())["cells"]]


def _shown(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    return "".join(data.get("text/html") or data.get("text/plain") or output.get("text", ""))
