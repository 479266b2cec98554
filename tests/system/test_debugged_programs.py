"""Servers of programs that run under a debugger: breakpoints in callables are reached, and nothing else changes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.system.helpers import ROOT, SECONDS_MAX

PROGRAM = '''
import bdb
import sys
import threading

import numpy as np
from numpy.typing import NDArray


class Debugger(bdb.Bdb):
    """Follows all threads, as debuggers of editors do."""

    reached = []

    def user_line(self, frame):
        if frame.f_code.co_name == "double":
            self.reached.append(threading.current_thread() is threading.main_thread())
            self.set_continue()


def double(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x * 2


debugger = Debugger()
assert debugger.set_break(__file__, double.__code__.co_firstlineno + 1) is None
debugger.reset()
threading.settrace(debugger.trace_dispatch)
sys.settrace(debugger.trace_dispatch)
X = np.ones(2, np.float32)
'''
FUNCTIONS = """
import tisfast

with tisfast.serve(double, http_port=0, grpc_port=None) as server:
    answer = server.client()(X)
"""
PYTRITON = """
from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.decorators import batch
from tisfast.pytriton.model_config import Tensor
from tisfast.pytriton.triton import Triton, TritonConfig

tensor = {"dtype": np.float32, "shape": (2,)}
with Triton(config=TritonConfig(http_port=0, grpc_port=0, metrics_port=0)) as triton:
    triton.bind("m", batch(lambda x: [double(x)]), [Tensor(name="x", **tensor)], [Tensor(name="y", **tensor)])
    with ModelClient(f"http://{triton.http_address}", "m") as client:
        answer = client.infer_sample(X)["y"]
"""
END = """
sys.settrace(None)
print(answer.tolist(), debugger.reached)
"""


@pytest.mark.parametrize("code", [FUNCTIONS, PYTRITON], ids=["functions", "pytriton"])
def test_a_breakpoint_in_a_callable_is_reached_in_the_thread_that_serves(tmp_path, code):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM + code + END)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=4 * SECONDS_MAX, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTRITON_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "[2.0, 2.0] [False]\n"), done.stderr
