"""Instances that can serve no more end at once, whatever their models have made of their processes, and say all."""

from __future__ import annotations

import numpy as np
import psutil
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_models import CONFIG, GPU, IDENTITY, STAYS, asked, register
from tests.gpu.stand_in_driver import LAUNCH_FAILED
from tests.system.helpers import until

NBYTES = 4096
LOST = "ends, as its process can use the GPU no more"
# A thread of the model's keeps its process.
MODEL = """
import ctypes, multiprocessing, os, queue, signal, sys, threading
from tisfast_worker import limits
""" + IDENTITY.replace(
    "    def execute",
    """    def initialize(self, args):
        threading.Thread(target=queue.Queue().get).start()
        BEGINS

    def execute""",
    1,
).replace("    def answer(self, tensor):", "    def answer(self, tensor):\n        ANSWERS")
WITHOUT_FLUSH = "sys.stdout = type('Tee', (), {'write': lambda self, text: len(text)})()"
BLOCKED = """limits.LAST_STEPS_SECONDS_MAX = 2
        read, write = os.pipe()
        os.set_blocking(write, False)
        while True:
            try:
                os.write(write, b'x' * 4096)
            except BlockingIOError:
                break
        os.set_blocking(write, True)
        sys.stdout = os.fdopen(write, 'w')
        sys.stdout.write('nobody reads this')"""
RAISES = """class Raises:
            def flush(self):
                raise SystemExit
            write = flush
        sys.stdout = sys.stderr = Raises()
        sys.__stdout__.write('the model has said it')"""
DEAF = """def deaf():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print('the child is', os.getpid(), flush=True)
            threading.Event().wait(3600)
        self.child = multiprocessing.get_context('fork').Process(target=deaf, daemon=True)
        self.child.start()"""
PRINTS = """ctypes.CDLL(None).printf(b'a library has said it')
        sys.stderr.write('so has stderr')
        sys.stdout.write('the model has said it')"""

FAILS = """from tisfast_worker.serving_context import current
        current().calls.rest = lambda: 1 / 0
        return pb_utils.Tensor("B", tensor.as_numpy())"""


@pytest.fixture
def loses(stand_in, serve, write_model, connect, export):
    """loses(begins, answers): (server, worker, infer), whose instance has just lost its GPU, in its first execution."""

    def start(begins="", answers=""):
        code = MODEL.replace("BEGINS", begins).replace("ANSWERS", answers)
        write_model("m", code, CONFIG + GPU + STAYS)
        server = serve("--allow-client-shm=true").ready()
        client = connect(server, tritonclient.http)
        for name in ("given", "wanted"):
            register(client, name, export(NBYTES))
        worker = psutil.Process(server.worker("m_0_0"))
        stand_in.fail("cuMemcpyDtoDAsync_v2", LAUNCH_FAILED, times=1, pid=worker.pid)
        call = asked(tritonclient.http, NBYTES, output="wanted")
        with pytest.raises(InferenceServerException, match="launch failure"):
            client.infer("m", **call)
        server.says(LOST)
        return server, worker, lambda: client.infer("m", **call)

    return start


def has_ended(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    "begins",
    ["sys.stdout.close()", "sys.stdout = None", "del sys.stdout", WITHOUT_FLUSH, RAISES, "os.close(1)"],
    ids=["closed", "none", "deleted", "without_flush", "raises", "descriptor"],
)
def test_what_a_model_put_in_place_of_stdout_keeps_no_process(loses, begins):
    server, worker, infer = loses(begins)
    until(lambda: has_ended(worker), "it ends")
    assert server.says(f"instance m_0_0 of model 'm' (pid {worker.pid}) exited with code 1; its process lived for")
    infer()


def test_a_stdout_that_raises_keeps_nothing_else_from_the_log(loses):
    server, _, _ = loses(RAISES)
    server.says("the model has said it")


def test_a_stdout_that_waits_for_ever_keeps_no_process(loses):
    server, worker, infer = loses(BLOCKED)
    until(lambda: has_ended(worker), "it ends")
    assert server.says(f"instance m_0_0 of model 'm' (pid {worker.pid}) was killed by signal 14 (SIGALRM)")
    infer()


def test_a_child_that_heeds_no_signal_ends(loses):
    server, worker, _ = loses(DEAF)
    child = psutil.Process(int(server.says("the child is")["message"].split()[-1]))
    until(lambda: has_ended(worker) and has_ended(child), "both end")


@pytest.mark.parametrize("said", ["the model has said it", "so has stderr", "a library has said it"])
def test_what_was_printed_reaches_the_log(loses, said):
    """Also what has no end of line, or lies in the buffers of the C library."""
    server, _, _ = loses(answers=PRINTS)
    assert server.says(said)


def test_one_that_fails_otherwise_ends_too(serve, write_model, connect):
    """As if the loop had a bug: the thread would keep the process, which serves nobody."""
    begins = "limits.REST_SECONDS = 1  # when it is idle, it tidies up, and fails"
    code = MODEL.replace("BEGINS", begins).replace("ANSWERS", FAILS).replace("assert not any", "assert all")
    write_model("m", code, CONFIG)
    server = serve().ready()
    client = connect(server, tritonclient.http)
    worker = psutil.Process(server.worker("m_0"))
    tensor = tritonclient.http.InferInput("A", [4], "FP32")
    tensor.set_data_from_numpy(np.zeros(4, np.float32))
    client.infer("m", [tensor])
    said = server.says("ends, as it can serve no more")
    assert "ZeroDivisionError" in said["message"]
    until(lambda: has_ended(worker), "it ends")
    client.infer("m", [tensor])
