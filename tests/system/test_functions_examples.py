"""The code of the pages and of examples/functions runs, and does what they say."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import tisfast
from tests.system.helpers import ROOT, SECONDS_MAX

FREE = "http_port=0, grpc_port=0"


@pytest.mark.parametrize(("page", "printed"), [("README.md", "[5. 7. 9.]\n"), ("docs/functions.md", "[0. 2. 4. 6.]\n")])
def test_the_first_lines_of_a_page(page, printed):
    code = re.search(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert code is not None and code[1].count("tisfast.serve(add)") == 1
    done = subprocess.run(
        [sys.executable, "-c", code[1].replace("tisfast.serve(add)", f"tisfast.serve(add, {FREE})")],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_the_digits():
    datasets = pytest.importorskip("sklearn.datasets")
    digits = runpy.run_path(str(Path(ROOT, "examples/functions/digits.py")))["Digits"]
    scans = datasets.load_digits()
    pixels, right = scans.data[1350:].astype("float32"), scans.target[1350:]
    with tisfast.serve(digits, batch=True, http_port=0, grpc_port=0) as server:
        found = [server.client()(pixels[at : at + 32]) for at in range(0, len(pixels), 32)]
    read = [int(row[0]) for rows in found for row in rows]
    assert sum(a == b for a, b in zip(read, right, strict=True)) > 0.88 * len(right)


def test_the_typed_functions():
    done = subprocess.run(
        [sys.executable, str(Path(ROOT, "examples/functions/typed.py"))],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    printed = "[0.0, 4.0] [3.0, 7.0]\n[0, 1, 2]\n[[0.0, 0.0, 0.0, 0.0], [4.0, 4.0, 4.0, 4.0]]\n['Centre', 'ends']\n"
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
