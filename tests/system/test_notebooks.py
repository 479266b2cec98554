"""A notebook serves a function, runs its cells again, and takes its server with it."""

import psutil
import pytest

from tests.system.helpers import ROOT, until
from tests.system.notebooks import code_cells, execute
from tests.unused_ports import closed_port

ASK = """
import sys, numpy, tisfast.client
print(tisfast.client.Client(sys.argv[1]).model("digits")(numpy.ones((1, 64), numpy.float32)))
"""
FROM_OUTSIDE = f"""
import subprocess, sys
asked = subprocess.run([sys.executable, "-c", {ASK!r}, server.url], capture_output=True, text=True)
print(server._local.pid, asked.stdout or asked.stderr)
"""


def test_the_notebook_of_digits_serves_and_serves_again(tmp_path):
    pytest.importorskip("sklearn")
    function, serve, ask, table = code_cells(ROOT / "examples/functions/digits.ipynb")
    assert serve.count("batch=True") == 1
    serve = serve.replace("batch=True", f"batch=True, http_port={closed_port()}, grpc_port=None")
    another = function.replace("model.predict(pixels / 16)", "100 + 0 * model.predict(pixels / 16)")
    assert another != function
    cells = [function, serve, ask, table, FROM_OUTSIDE, another, serve, FROM_OUTSIDE, serve, table]
    shown = execute(cells, tmp_path)
    first, asked, counted, outside, again, after = *shown[1:5], *shown[6:8]
    assert "tisfast server at <a href=" in first and "<td>pixels: FP32[64]</td><td>output: INT64[1]</td>" in first
    right, _, _, _, _ = asked.split()
    assert 40 < int(right) <= 50
    assert "<td>0</td><td>0</td>" in first and "<td>1</td><td>0</td>" in counted
    pid, digit = outside.split()
    assert digit != "[[100]]"
    assert again.partition("<table>")[0] == first.partition("<table>")[0]
    assert after.split() == [pid, "[[100]]"], "the same server has the new function"
    until(lambda: not psutil.pid_exists(int(pid)), "the server ends with the notebook's kernel")
