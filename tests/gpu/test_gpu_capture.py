"""Models that capture CUDA graphs while inputs and answers on the GPU are let go: nothing breaks the capture."""

from __future__ import annotations

import contextlib

import pytest
import tritonclient.http

from tests.gpu.gpu_call_models import NODE
from tests.gpu.gpu_models import CONFIG, GPU, IDENTITY, NBYTES, STAYS, asked, register, unregistering
from tests.gpu.stand_in_driver import OUT_OF_MEMORY
from tests.system.helpers import until

DEVICE = CONFIG + GPU + STAYS
BEGIN = NODE.split("def initialize(self, args):\n")[1].split("    def execute")[0]
CAPTURES = (
    NODE[: NODE.index("class TritonPythonModel")]
    + """
import threading

class TritonPythonModel:
    # It keeps what it was given, and lets it go in the middle of a capture in the next request.
    def initialize(self, args):
BEGIN
        self.stream, self.kept = ctypes.c_void_p(), None
        call("cuStreamCreate", ctypes.byref(self.stream), 1)

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        given = [KEPT]
        graph = ctypes.c_void_p()
        call("cuStreamBeginCapture_v2", self.stream, 0)
        WHERE
        ended = cuda.cuStreamEndCapture(self.stream, ctypes.byref(graph))
        self.kept = given
        return pb_utils.InferenceResponse([pb_utils.Tensor("B", numpy.array([ended], numpy.float32))])

    def forget(self):
        self.kept = None
""".replace("BEGIN\n", BEGIN)
)
INPUT = 'pb_utils.get_input_tensor_by_name(request, "A")'
ANSWER = (
    'pb_utils.InferenceRequest(model_name="other", requested_output_names=["B"], '
    'inputs=[pb_utils.Tensor("A", numpy.zeros(1 << 16, numpy.float32))]).exec().output_tensors()[0]'
)
HERE = "self.forget()"
THREAD = "thread = threading.Thread(target=self.forget); thread.start(); thread.join()"
MAKES = (
    NODE.split("    def execute")[0]
    + """    def execute(self, requests):
        made = [Made(values(pb_utils.get_input_tensor_by_name(request, "A"))) for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("B", each)]) for each in made]
"""
)


def captures(kept, where):
    return CAPTURES.replace("KEPT", kept).replace("WHERE", where)


@pytest.mark.parametrize("where", [HERE, THREAD], ids=["by_execute", "by_a_thread"])
@pytest.mark.parametrize("kept", [INPUT, ANSWER], ids=["input", "answer"])
def test_what_is_let_go_in_a_capture_breaks_it_not(  # noqa: PLR0917
    stand_in, serve, write_model, connect, export, kept, where
):
    write_model("m", captures(kept, where), DEVICE)
    write_model("other", MAKES, CONFIG + GPU)
    client = connect(serve("--allow-client-shm=true").ready(), tritonclient.http)
    given = export(NBYTES)
    register(client, "given", given)
    for _ in range(3):
        assert client.infer("m", **asked(tritonclient.http)).as_numpy("B").tolist() == [0.0]


LETS_GO = (
    IDENTITY.replace("import triton", "import os\nimport threading\nfrom tisfast_worker import limits\nimport triton")
    + """
    def initialize(self, args):
        limits.REST_SECONDS = 600  # an idle instance looks by itself much later
        self.kept = None

    def answer(self, tensor):
        self.kept = tensor
        threading.Thread(target=self.let_go).start()
        return pb_utils.Tensor.from_dlpack("B", tensor)

    def let_go(self):
        while not os.path.exists("FOLDER/go"):
            pass
        self.kept = None
"""
)


@pytest.fixture
def used(serve, write_model, connect, export, stand_in):
    """used(code): a server with the model m, which has been given a region that is unregistered since; and `closed`.

    Unregistering succeeds in the end.
    """
    leaving = contextlib.ExitStack()

    def start(code):
        write_model("m", code, DEVICE)
        server = serve("--allow-client-shm=true").ready()
        client = connect(server, tritonclient.http)
        before = stand_in.counted()["closed"]
        register(client, "given", export(NBYTES))
        client.infer("m", **asked(tritonclient.http))
        leaving.enter_context(unregistering(server, "given"))
        return server, lambda: stand_in.counted()["closed"] - before

    with leaving:
        yield start


def test_an_idle_instance_releases_what_a_thread_lets_go_of(used, tmp_path):
    _, closed = used(LETS_GO.replace("FOLDER", str(tmp_path)))
    assert closed() == 0  # the model has it
    (tmp_path / "go").touch()
    until(lambda: closed() == 2, "server and worker have closed it")


def test_what_the_gpu_may_still_read_is_not_released(used, stand_in, tmp_path):
    server, closed = used(LETS_GO.replace("FOLDER", str(tmp_path)))
    stand_in.fail("cuCtxSynchronize", OUT_OF_MEMORY)
    (tmp_path / "go").touch()
    said = server.says("that the GPU may still read stays in use")
    assert "cuCtxSynchronize: out of memory" in said["message"]
    assert closed() == 0
    stand_in.fail("cuCtxSynchronize", 0)
    until(lambda: closed() == 2, "it is looked at again")


CYCLE = (
    IDENTITY.replace("import triton", "import gc\nfrom tisfast_worker import limits\nimport triton")
    + """
    def initialize(self, args):
        limits.REST_SECONDS = 1
        gc.disable()

    def answer(self, tensor):
        from tisfast_worker.serving_context import current

        held = [tensor]
        held.append(held)  # as a traceback does
        calls = current().calls
        rest = type(calls).rest

        def collected():  # as if the collector ran while the instance tidies up
            calls.rest = lambda: rest(calls)
            gc.collect()
            rest(calls)

        calls.rest = collected
        return pb_utils.Tensor.from_dlpack("B", tensor)
"""
)


def test_an_idle_instance_releases_what_is_collected_while_it_tidies_up(used):
    _, closed = used(CYCLE)
    until(lambda: closed() == 2, "server and worker have closed it")
