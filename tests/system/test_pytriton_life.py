"""Programs with PyTriton's API, from outside: Ctrl-C, kills, and what is left of them."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.unused_ports import closed_ports
from tests.waiting import has_ended, wait_until

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import signal
import sys
import threading
import time
import numpy as np
from tisfast.pytriton.decorators import batch
from tisfast.pytriton.model_config import Tensor
from tisfast.pytriton.triton import Triton, TritonConfig

@batch
def double(x):
    return [2 * x]

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
port = int(sys.argv[1])
x = {"shape": (1,), "dtype": np.float32}
triton = Triton(config=TritonConfig(http_port=port, grpc_port=port + 1, metrics_port=port + 2), workspace=sys.argv[2])
triton.bind("double", double, inputs=[Tensor(name="x", **x)], outputs=[Tensor(name="y", **x)])

def tell():
    while not triton.is_connected():
        time.sleep(0.01)
    print("server", triton._server.pid, flush=True)

threading.Thread(target=tell, daemon=True).start()
triton.serve()  # what interrupts it from here on only ends it
print("served", flush=True)
"""


class Served:
    """The program, its server's process and where it listens."""

    def __init__(self, folder):
        self.port, self.folder = closed_ports(3), folder / "work"
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(self.port), str(self.folder)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        line = self.process.stdout.readline()
        assert line.startswith("server "), line
        self.server = int(line.split()[1])

    def refuses(self):
        """Nobody listens."""
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) != 0

    def server_gone(self):
        """Its process, and not only its port."""
        try:
            return has_ended(psutil.Process(self.server))
        except psutil.NoSuchProcess:
            return True


@pytest.fixture
def served(tmp_path):
    found = Served(tmp_path)
    with found.process:
        yield found
        found.process.kill()


def test_ctrl_c_ends_serve_and_the_program_goes_on_to_its_end(served):
    assert not served.refuses()
    served.process.send_signal(signal.SIGINT)
    assert served.process.stdout.read() == "served\n"
    assert served.process.wait() == 0
    assert served.server_gone()
    assert not served.folder.exists()
    assert not list(Path(tempfile.gettempdir()).glob(f"tisfast-{served.process.pid}-*"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_the_server_goes_with_a_program_that_is_killed(served, how):
    served.process.send_signal(how)
    assert served.process.wait() == -how
    wait_until(served.server_gone)
    assert served.refuses()
