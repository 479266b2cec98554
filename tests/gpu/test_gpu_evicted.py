"""GPU memory that a model keeps when others have taken its place among what its instance is told of."""

from __future__ import annotations

import contextlib
import os
import queue
import signal

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_models import FLOATS, GPU, MADE, STAYS, asked, register, unregistering
from tests.system.helpers import until

NBYTES = 4096
NOT_CLOSED = 217  # of a driver that works still
VALUES = np.arange(NBYTES // 4, dtype=np.float32)
LIMITS = """
from tisfast import limits
limits.SHARES_PER_WORKER_MAX, limits.SHARE_IDS_MAX = 2, {ids}
limits.GPU_REGION_SECONDS_MAX, limits.GPU_TOLD_SECONDS = {seconds}, 1
"""
KEEPS = """
import gc
import json
import os
import threading
import triton_python_backend_utils as pb_utils
from tisfast_worker import limits

class TritonPythonModel:
    # It keeps what it is told to, and sends what it has kept when it is asked for that.
    kept = []
    def initialize(self, args):
        limits.REST_SECONDS = 600  # an idle instance looks by itself much later

    def execute(self, requests):
        responses = []
        for request in requests:
            tensor, do = pb_utils.get_input_tensor_by_name(request, "B"), json.loads(request.parameters())
            if "keep" in do:
                self.kept.append(tensor)
            if "show" in do:
                tensor = self.kept[-1]
            if "drop" in do:
                self.kept.clear()
            if "cycle" in do:
                gc.disable()
                garbage = list(self.kept)
                garbage.append(garbage)
                del garbage
                self.kept.clear()
            if "collect" in do:
                del tensor
                gc.collect()
                tensor = pb_utils.get_input_tensor_by_name(request, "B")
            if "later" in do:
                threading.Thread(target=self.drop, args=(do["later"],)).start()
            responses.append(pb_utils.InferenceResponse([tensor]))
        return responses

    def drop(self, path):
        while not os.path.exists(path):
            pass
        self.kept.clear()
"""
KINDS = FLOATS + GPU + STAYS
DECOUPLED = KEEPS.replace(
    "        return responses",
    """        for request, response in zip(requests, responses):
            request.get_response_sender().send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)""",
)
KEEPS_REQUEST = MADE.replace("        return [", "        self.__class__.kept = requests\n        return [")
assert DECOUPLED != KEEPS and KEEPS_REQUEST != MADE


class Evicting:
    """A server with the model m, and a client whose region "mine" m keeps, and has been told to forget since."""

    def __init__(self, server, client, stand_in, export):
        self.server, self.client, self.stand_in, self._export = server, client, stand_in, export
        self.others = 0
        self.mine = export(NBYTES)
        self.mine.write(VALUES.tobytes())
        register(client, "mine", self.mine)
        self.before = stand_in.counted()
        self.ask("mine", keep=1)
        self.evict()

    def ask(self, region, **parameters):
        """What m answers."""
        call = asked(tritonclient.grpc, NBYTES, name="B", region=region)
        answers: queue.SimpleQueue = queue.SimpleQueue()
        self.client.start_stream(lambda result, error: answers.put((result, error)))
        self.client.async_stream_infer("m", **call, parameters=parameters)
        result, error = answers.get(timeout=60)
        self.client.stop_stream()
        if error is not None:
            raise error
        return result.as_numpy("B")

    def evict(self):
        """Have two others take the places that there are."""
        names = [self.other() for _ in range(2)]
        for name in names:
            self.ask(name)
        for name in names:
            self.client.unregister_cuda_shared_memory(name)

    def other(self):
        self.others += 1
        name = f"other{self.others}"
        memory = self._export(NBYTES)
        memory.write((VALUES + self.others).tobytes())
        register(self.client, name, memory)
        return name

    def unregister(self):
        return self.server.ask("POST", "/v2/cudasharedmemory/region/mine/unregister", {})

    def counted(self, name):
        return self.stand_in.counted()[name] - self.before[name]


@pytest.fixture
def evicting(stand_in, serve, write_model, connect, export):
    def start(*, code=KEEPS, kinds=KINDS, ids=0xFFFE, seconds=45):
        write_model("m", code, kinds)
        server = serve("--allow-client-shm=true", fault=LIMITS.format(ids=ids, seconds=seconds)).ready()
        return Evicting(server, connect(server, tritonclient.grpc), stand_in, export)

    return start


both = pytest.mark.parametrize(
    ("code", "kinds"),
    [(KEEPS, KINDS), (DECOUPLED, KINDS + "model_transaction_policy { decoupled: true }")],
    ids=["one_answer", "decoupled"],
)


def refused_at_the_end(m, **lets_go):
    """The model lets it go, the driver refuses to close it, and who unregistered it is told so."""
    m.stand_in.fail("cuIpcCloseMemHandle", NOT_CLOSED, pid=m.server.worker("m_0_0"))
    m.ask(m.other(), **(lets_go or {"drop": 1}))
    m.server.says("the driver does not close GPU memory of another process that instance m_0_0 of model 'm' (pid ")
    status, answer = m.unregister()
    assert status == 500 and "the driver refuses that in instance m_0_0 of model 'm' (pid " in answer["error"]


@both
def test_a_late_refusal_to_close_it_is_told(evicting, code, kinds):
    m = evicting(code=code, kinds=kinds, seconds=2)
    status, answer = m.unregister()
    assert status == 503 and "requests use it in instance m_0_0 of model 'm' (pid " in answer["error"]
    refused_at_the_end(m)


@both
def test_a_refusal_to_close_what_was_garbage_is_told(evicting, code, kinds):
    """The collector ends all that is in a cycle at once, in an order of its own."""
    m = evicting(code=code, kinds=kinds, seconds=2)
    m.ask(m.other(), cycle=1)
    assert m.unregister()[0] == 503
    refused_at_the_end(m, collect=1)


def test_a_refusal_of_an_instance_that_has_ended_holds_no_more(evicting):
    m = evicting(seconds=2)
    m.unregister()
    refused_at_the_end(m)
    os.kill(m.server.worker("m_0_0"), signal.SIGKILL)
    until(lambda: m.unregister() == (200, {}), "the memory went with the process")


@both
def test_unregistering_waits_until_it_is_closed(evicting, tmp_path, code, kinds):
    m = evicting(code=code, kinds=kinds)
    m.ask(m.other(), later=str(tmp_path / "go"))
    with unregistering(m.server, "mine"):
        (tmp_path / "go").touch()  # the instance is idle then
    m.mine.free()
    assert m.counted("freed_while_open") == 0


def test_what_is_asked_for_again_is_open_twice_until_both_are_let_go(evicting):
    """The driver counts how often a process has opened a handle, and gives it one address."""
    m = evicting()
    opened = m.counted("opened") - m.counted("closed")
    assert np.array_equal(m.ask("mine"), VALUES)
    assert m.counted("opened") - m.counted("closed") == opened + 1
    m.evict()
    assert np.array_equal(m.ask(m.other(), show=1), VALUES)  # what is kept is still open
    with unregistering(m.server, "mine"):
        m.ask(m.other(), drop=1)
    m.mine.free()
    assert (m.counted("freed_while_open"), m.counted("used_after_free")) == (0, 0)


def test_its_number_is_nobody_else_s(evicting):
    """Else what the instance says of another one's memory would be taken for its own."""
    m = evicting(ids=4, seconds=2)
    for _ in range(4):  # each takes two numbers, and gives them back
        m.evict()
    assert m.unregister()[0] == 503
    refused_at_the_end(m)


def test_a_model_that_keeps_all_numbers_is_told_of_nothing_new(evicting):
    m = evicting(ids=4)
    kept = [m.other() for _ in range(3)]
    for name in kept:
        m.ask(name, keep=1)
    another = m.other()
    with pytest.raises(InferenceServerException, match="could not be given this memory"):
        m.ask(another)
    m.server.says("instance m_0_0 keeps GPU memory 3 times that it was told to forget")
    m.ask(kept[-1], drop=1)

    def is_answered():  # when the server has heard that something was closed
        with contextlib.suppress(InferenceServerException):
            return np.array_equal(m.ask(another), VALUES + m.others)

    until(is_answered, "there are numbers again")
    kept = [another, *(m.other() for _ in range(3))]
    with contextlib.suppress(InferenceServerException):
        for name in kept:
            m.ask(name, keep=1)
    with pytest.raises(InferenceServerException, match="could not be given this memory"):
        m.ask(m.other())
    until(lambda: m.server.text().count("and can be told of no more") == 2, "it is said again")


def test_who_keeps_a_request_does_not_keep_where_its_output_went(stand_in, serve, write_model, connect, export):
    write_model("m", KEEPS_REQUEST, FLOATS + GPU)
    client = connect(serve("--allow-client-shm=true").ready(), tritonclient.http)
    memory = export(NBYTES)
    register(client, "mine", memory)
    tensor = tritonclient.http.InferInput("B", [VALUES.size], "FP32")
    tensor.set_data_from_numpy(VALUES * 2)
    wanted = tritonclient.http.InferRequestedOutput("B")
    wanted.set_shared_memory("mine", NBYTES)
    client.infer("m", [tensor], outputs=[wanted])
    assert memory.read(NBYTES) == (VALUES * 2).tobytes()
    client.unregister_cuda_shared_memory("mine")
