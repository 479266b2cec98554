"""Decoupled models on a GPU: tensors of their streams stay there until the last response, with every copy counted."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from tests.gpu.gpu_call_models import NODE, STREAM, STREAMS, Stream, run, script
from tests.gpu.gpu_models import FLOATS, GPU, NBYTES, RETURNED, STAYS, asked, copies, ensemble, unregistering
from tests.gpu.stand_in_driver import LAUNCH_FAILED
from tests.system.helpers import until

VALUES = np.arange(NBYTES // 4, dtype=np.float32)
ONE_PART = "--cuda-memory-pool-byte-size=0:8388608"  # four of 2 MiB
FULL = np.arange(2097152 // 4, dtype=np.float32)  # fills one
STREAMING = FLOATS + GPU + STAYS + STREAMS
DOUBLE = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender, tensor = request.get_response_sender(), pb_utils.get_input_tensor_by_name(request, "B")
            assert not tensor.is_cpu()
            for last in (0, 1):
                sender.send(pb_utils.InferenceResponse([tensor]), last)
"""
"""It sends its input twice."""

LATE = STREAM.replace("        del request,", """        tensor = pb_utils.get_input_tensor_by_name(request, "B")
        del request,""").replace("        sender.send(response, 1)\n", """
        copy, lane = Made(numpy.zeros(tensor.shape(), "f")), ctypes.c_void_p()
        call("cuStreamCreate", ctypes.byref(lane), 1)
        sender.send(response, 1)
        if tensor.is_cpu():  # there was no room for it on the GPU
            return
        for _ in range(250):
            call("cuMemsetD8Async", copy.address, 0, ctypes.c_size_t(4), lane)
        nbytes = ctypes.c_size_t(tensor.nbytes())
        call("cuMemcpyDtoDAsync_v2", copy.address, ctypes.c_uint64(tensor.address()), nbytes, lane)
        del tensor
        call("cuStreamSynchronize", lane)
        found = numpy.empty(1, numpy.float32)
        call("cuMemcpyDtoH_v2", found.ctypes.data, copy.address.value + 4, 4)
        print("read", found[0], flush=True)
""")  # fmt: skip
"""It sends its last response first, and then has a copy of its input wait behind other work."""


@pytest.fixture
def streamed(gpu, serve, write_model, connect, tmp_path):
    """streamed(*flags, fault, name=(code, configuration)...): (server, client, stream); m alone does as scripts say.

    What waits in the test's folder goes on at the end, and the stream ends: else a test that fails before would hang.
    """
    streams = []

    def start(*flags, fault="", **models):
        for name, (code, config) in (models or {"m": (STREAM, STREAMING)}).items():
            folder = write_model(name, code, config)
            if not code:
                (folder / "1/model.py").unlink()
        server = serve("--allow-client-shm=true", *flags, fault=fault).ready()
        streams.append(Stream(connect(server, tritonclient.grpc)))
        return server, connect(server, tritonclient.http), streams[-1]

    yield start
    (tmp_path / "go").touch()
    for each in streams:
        each.client.stop_stream(cancel_requests=True)


def balance(gpu, before):
    """Handles that are open and were not before."""
    now = gpu.counted()
    return (now["opened"] - before["opened"]) - (now["closed"] - before["closed"])


# ---- from a client's region, and into one


def test_responses_go_from_region_to_region_on_the_gpu(streamed, gpu, region):
    _, client, stream = streamed()
    region(client, "given", VALUES)
    wanted = region(client, "wanted")
    before = gpu.counted()
    for _ in range(3):
        stream.ask("m", ["is_cpu", False], ["send"], ["part", 5, 900], output="wanted")
        shapes = [stream.next().get_output("B").shape for _ in range(2)]
        assert shapes == [[NBYTES // 4], [900]]
    assert copies(gpu, before) == [0, 0, 6]  # each response's, by the model's process
    assert gpu.counted()["opened"] - before["opened"] == 2  # each region, once
    assert wanted.read(3600) == VALUES[5:905].tobytes()


def test_a_response_to_the_client_itself_is_one_copy(streamed, gpu, region):
    _, client, stream = streamed()
    region(client, "given", VALUES)
    before = gpu.counted()
    stream.ask("m", ["part", 0, 9], ["send"], ["send"], ["part", 1, 8])
    assert [stream.values() for _ in range(3)] == [VALUES[:9].tolist()] * 2 + [VALUES[1:9].tolist()]
    assert copies(gpu, before) == [0, 3, 0]


def test_a_sequence_that_streams_takes_it_where_it_lies(streamed, gpu, region):
    config = STREAMING + "sequence_batching { }"
    _, client, stream = streamed(m=(DOUBLE, config))
    region(client, "given", VALUES)
    before = gpu.counted()
    call = asked(tritonclient.grpc, 4096, name="B")
    stream.client.async_stream_infer("m", sequence_id=7, sequence_start=True, sequence_end=True, **call)
    assert [stream.values() for _ in range(2)] == [VALUES[:1024].tolist()] * 2
    assert copies(gpu, before) == [0, 2, 0]


def test_an_input_stays_until_the_last_response_also_when_its_region_goes(streamed, gpu, region, tmp_path):
    server, client, stream = streamed()
    before = gpu.counted()
    region(client, "given", VALUES)
    stream.ask("m", ["send"], ["wait", str(tmp_path)], ["send"], ["part", 2, 7])
    assert stream.values() == VALUES.tolist()
    until((tmp_path / "here").exists, "it waits")
    with unregistering(server, "given"):
        assert balance(gpu, before) == 2  # the server's, and the worker's
        (tmp_path / "go").touch()
    assert [stream.values() for _ in range(2)] == [VALUES.tolist(), VALUES[2:9].tolist()]
    until(lambda: balance(gpu, before) == 0, "it is closed")
    assert gpu.counted()["used_after_free"] == 0


def test_an_input_that_the_model_keeps_stays_open(streamed, gpu, region, tmp_path):
    keeps = DOUBLE.replace("            for", "            self.kept = tensor\n            for", 1)
    lets_go = 'parameters()\n            if "drop" in request.parameters():\n                self.kept = None\n'
    keeps = keeps.replace("            sender,", f"            request.{lets_go}            sender,", 1)
    server, client, stream = streamed(m=(keeps, STREAMING))
    before = gpu.counted()
    region(client, "given", VALUES)
    stream.ask("m", nbytes=64)
    assert [stream.values() for _ in range(2)] == [VALUES[:16].tolist()] * 2
    with unregistering(server, "given"):
        region(client, "given", VALUES + 1)
        assert balance(gpu, before) == 3  # the first is open at both
        stream.client.async_stream_infer("m", **asked(tritonclient.grpc, 64, name="B"), parameters={"drop": True})
    assert [stream.values() for _ in range(2)] == [(VALUES[:16] + 1).tolist()] * 2
    until(lambda: balance(gpu, before) == 2, "the first is closed, and the second open")
    assert gpu.counted()["used_after_free"] == 0


def test_a_client_that_leaves_gets_no_outputs_and_its_memory_stays_open_meanwhile(streamed, gpu, region, tmp_path):
    server, client, stream = streamed()
    opened = gpu.counted()
    given, wanted = region(client, "given", VALUES), region(client, "wanted")
    before = gpu.counted()
    stream.ask("m", ["send"], ["left"], ["wait", str(tmp_path)], ["is_cpu", False], ["part", 0, 9], output="wanted")
    stream.next()
    assert copies(gpu, before) == [0, 0, 1]
    stream.client.stop_stream(cancel_requests=True)
    until((tmp_path / "here").exists, "the model has heard of it")
    wanted.write(bytes(64))
    with unregistering(server, "given"), unregistering(server, "wanted"):
        assert balance(gpu, opened) == 4
        (tmp_path / "go").touch()
    assert balance(gpu, opened) == 0
    assert copies(gpu, before)[2] == 1
    assert wanted.read(64) == bytes(64)
    assert given.read(NBYTES) == VALUES.tobytes()
    assert gpu.counted()["used_after_free"] == 0


def test_a_worker_that_dies_fails_its_streams_and_the_region_serves_the_next_one(streamed, gpu, region, tmp_path):
    server, client, stream = streamed()
    region(client, "given", VALUES)
    stream.ask("m", ["send"], ["wait", str(tmp_path)])
    stream.next()
    until((tmp_path / "here").exists, "it waits")
    worker = server.worker("m_0_0")
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(tritonclient.grpc.InferenceServerException, match="m_0_0"):
        stream.next()
    until(lambda: server.worker("m_0_0") != worker and client.is_model_ready("m"), "it is back")
    before = gpu.counted()
    stream.ask("m", ["is_cpu", False], ["part", 0, 5])
    assert stream.values() == VALUES[:5].tolist()
    client.unregister_cuda_shared_memory("given")
    until(lambda: balance(gpu, before) <= 0, "the new one has closed it")
    assert gpu.counted()["used_after_free"] == 0


def test_an_instance_whose_gpu_is_lost_is_started_again(streamed, stand_in, region):
    server, client, stream = streamed(m=(DOUBLE, STREAMING))
    region(client, "given", VALUES)
    region(client, "wanted")
    worker = server.worker("m_0_0")
    stand_in.fail("cuStreamSynchronize", LAUNCH_FAILED, times=1)
    stream.ask("m", output="wanted")
    with pytest.raises(tritonclient.grpc.InferenceServerException, match="unspecified launch failure"):
        stream.next()
    until(lambda: server.worker("m_0_0") != worker and client.is_model_ready("m"), "it is back")


@pytest.mark.parametrize("count", [3, NBYTES // 4])
def test_a_model_may_write_to_what_it_has_sent_and_send_it_again(streamed, gpu, export, count):
    _, client, stream = streamed(m=(STREAM, STREAMING), caller=(NODE, FLOATS + GPU + STAYS))
    tensor = tritonclient.grpc.InferInput("B", [count], "FP32")
    tensor.set_data_from_numpy(VALUES[:count])
    steps = ["made", 0], ["send"], ["more", 1], ["send"], ["more", 1]
    stream.client.async_stream_infer("m", [tensor], parameters=script(*steps))
    assert [stream.values() for _ in range(3)] == [(VALUES[:count] + at).tolist() for at in range(3)]
    for nth in range(3):
        answer = run(client, "caller", VALUES[:count], ["ask", "m", steps, nth], ["is_cpu", False])
        assert answer.tolist() == (VALUES[:count] + nth).tolist()


# ---- ensembles


@pytest.mark.parametrize("output", [None, "wanted"])
def test_responses_reach_the_next_model_with_one_copy_each(streamed, gpu, region, output):
    parts = STREAM.replace('json.loads(request.parameters())["script"]', "SCRIPT").replace(
        "class Part", f"SCRIPT = {str([['made', 1], ['send'], ['made', 1]])!r}.replace(chr(39), chr(34))\n\nclass Part"
    )
    _, client, stream = streamed(
        m0=(parts, STREAMING),
        m1=(RETURNED, FLOATS + GPU + STAYS),
        e=("", ensemble("B", ("A", "x"), ("x", "B")).replace('key: "B" value: "A"', 'key: "B" value: "B_"')
           .replace('input [ { name: "A"', 'input [ { name: "B_"').replace("platform", STREAMS + "\nplatform")
           .replace("B_", "A")),
    )  # fmt: skip
    region(client, "given", VALUES)
    wanted, before = region(client, "wanted"), gpu.counted()
    call = asked(tritonclient.grpc, name="A", output=output)
    stream.client.async_stream_infer("e", **call)
    answers = [stream.next() for _ in range(2)]
    # The model itself: two to the GPU, and two back, to make its tensors.
    if output is None:
        assert [answer.as_numpy("B").tolist() for answer in answers] == [(VALUES + at).tolist() for at in (1, 2)]
        assert copies(gpu, before) == [2, 4, 2]
    else:
        assert copies(gpu, before) == [2, 2, 4]
        assert wanted.read(NBYTES) == (VALUES + 2).tobytes()  # the last one, in the order of the stream


# ---- calls


def test_a_decoupled_model_is_called_on_the_gpu(streamed, gpu, region):
    _, client, _ = streamed(ONE_PART, caller=(NODE, FLOATS + GPU + STAYS), m=(STREAM, STREAMING))
    before = gpu.counted()
    there = [["is_cpu", False], ["made", 1], ["send"], ["made", 1]]
    for at in range(5):
        steps = ["made", at], ["ask", "m", there, 1], ["is_cpu", False]
        assert run(client, "caller", VALUES, *steps).tolist() == (VALUES + at + 2).tolist()
    # To the GPU and back: the models themselves, three tensors each; the client's answer.  On it: one for each message.
    assert copies(gpu, before) == [15, 15, 15]
    assert gpu.counted()["used_after_free"] == 0


def test_a_client_s_tensor_goes_on_to_a_called_stream_without_a_copy(streamed, gpu, region):
    _, client, _ = streamed(caller=(NODE, FLOATS + GPU + STAYS), m=(STREAM, STREAMING))
    region(client, "given", VALUES)
    before = gpu.counted()
    call = asked(tritonclient.http, name="B")
    for _ in range(3):
        answer = client.infer("caller", **call, parameters=script(["ask", "m", [["is_cpu", False]]], ["is_cpu", False]))
        assert answer.as_numpy("B").tolist() == VALUES.tolist()
    assert copies(gpu, before) == [0, 3, 3]  # a stream passes nothing by reference: the response's


def test_responses_that_the_caller_does_not_wait_for_are_let_go_of(streamed, gpu):
    _, client, _ = streamed(ONE_PART, caller=(NODE, FLOATS + GPU + STAYS), m=(STREAM, STREAMING))
    there = [["made", 1], ["send"], ["send"], ["send"], ["made", 1]]
    for at in range(8):
        steps = ["made", at], ["ask", "m", there], ["is_cpu", False]
        assert run(client, "caller", VALUES[:1000], *steps).tolist() == (VALUES[:1000] + at + 1).tolist()
    before = gpu.counted()
    steps = ["made", 0], ["ask", "m", [["is_cpu", False], ["made", 3]]], ["is_cpu", False]
    assert until(lambda: tried(client, steps), "there is room for one that fills it") == (FULL + 3).tolist()
    assert gpu.counted()["used_after_free"] == before["used_after_free"] == 0


def tried(client, steps):
    try:
        return run(client, "caller", FULL, *steps).tolist()
    except tritonclient.http.InferenceServerException:
        return None  # what was let go of is not free yet


def test_a_decoupled_model_calls_another_one_on_the_gpu(streamed, gpu, region):
    _, client, stream = streamed(m=(STREAM, STREAMING), other=(STREAM, STREAMING))
    region(client, "given", VALUES)
    before = gpu.counted()
    there = [["is_cpu", False], ["part", 3, 500], ["send"], ["part", 3, 400]]
    stream.ask("m", ["ask", "other", there, 1], ["is_cpu", False], ["send"], ["part", 1, 9])
    assert [stream.values() for _ in range(2)] == [VALUES[6:406].tolist(), VALUES[7:16].tolist()]
    assert copies(gpu, before) == [0, 2, 2]


def test_a_called_stream_s_input_stays_until_the_gpu_has_read_it(streamed, gpu):
    """It is let go of while a copy of it waits behind other work; the caller's memory is written to again at once."""
    server, client, _ = streamed(ONE_PART, caller=(NODE, FLOATS + GPU + STAYS), m=(LATE, STREAMING))
    for at in range(3):
        steps = ["made", 10 * at], ["ask", "m", [["host"], ["part", 0, 1]]]
        run(client, "caller", FULL, *steps)
        run(client, "caller", FULL, ["made", 5], ["ask", "m", [["host"], ["part", 0, 1]]])
        server.says(f"read {10.0 * at + 1}")


TAKES_ALL = NODE + """
    def ask_all(self, model, script):
        # All responses of a stream, one after the other: how many, and how many of them in host memory.
        found = []
        for response in self.request(model, script, None).exec(decoupled=True):
            self.error = response.error()
            if self.error is not None:
                return
            found += [tensor.is_cpu() for tensor in response.output_tensors()]
            del response
        self.top = pb_utils.Tensor("B", numpy.array([len(found), sum(found)], numpy.float32))
"""
TAKES_ALL_LATER = (
    NODE.replace("import json", "import asyncio\nimport json", 1)
    .replace("def execute", "async def execute")
    .replace("return [self.answer(request)", "return [await self.all(request)")
    + """
    async def all(self, request):
        self.top, found = pb_utils.get_input_tensor_by_name(request, "B"), []
        model, script = json.loads(json.loads(request.parameters())["script"])[0][1:]
        async for response in await self.request(model, script, None).async_exec(decoupled=True):
            assert response.error() is None, response.error().message()
            found += [tensor.is_cpu() for tensor in response.output_tensors()]
            del response
        return pb_utils.InferenceResponse([pb_utils.Tensor("B", numpy.array([len(found), sum(found)], numpy.float32))])
"""
)
SENDS_MANY = (
    STREAM
    + """
    def many(self, count):
        for _ in range(count):
            self.send()
"""
)


@pytest.mark.parametrize("caller", [TAKES_ALL, TAKES_ALL_LATER], ids=["exec", "async_exec"])
def test_a_caller_that_lets_go_of_responses_makes_room_for_the_next_ones(streamed, gpu, caller):
    models = {"caller": (caller, FLOATS + GPU + STAYS), "m": (SENDS_MANY, STREAMING)}
    _, client, _ = streamed(ONE_PART, **models)
    found = run(client, "caller", VALUES[:16], ["ask_all", "m", [["made", 1], ["many", 1400], ["made", 1]]])
    assert found.tolist() == [1401, 0]


def test_what_a_stream_was_given_is_closed_at_once_behind_it(streamed, stand_in, region):
    code = DOUBLE.replace("import triton", "from tisfast_worker import limits\nimport triton", 1).replace(
        "    def execute",
        "    def initialize(self, args):\n"
        "        limits.REST_SECONDS = 600  # an idle instance looks by itself much later\n\n"
        "    def execute",
    )
    _, client, stream = streamed(m=(code, STREAMING))
    before = stand_in.counted()
    region(client, "given", VALUES)
    stream.client.async_stream_infer("m", **asked(tritonclient.grpc, VALUES.size, name="B"))
    stream.values(), stream.values()
    client.unregister_cuda_shared_memory("given")
    until(lambda: stand_in.counted()["closed"] - before["closed"] == 2, "server and worker have closed it")


def test_what_a_stream_still_uses_may_be_freed_when_it_is_unregistered(streamed, stand_in, region, tmp_path):
    server, client, stream = streamed()
    before = stand_in.counted()
    given = region(client, "given", VALUES)
    stream.ask("m", ["send"], ["wait", str(tmp_path)], ["part", 2, 7])
    assert stream.values() == VALUES.tolist()
    until((tmp_path / "here").exists, "it waits")
    with unregistering(server, "given"):
        told = server.says("shared memory region 'given' unregistered, but not closed within 5 s")["message"]
        (tmp_path / "go").touch()
    assert "requests use it in instance m_0_0 of model 'm' (pid " in told
    given.free()
    assert balance(stand_in, before) == 0
    assert stand_in.counted()["freed_while_open"] == before["freed_while_open"]
    assert stream.values() == VALUES[2:9].tolist()


SENDS_WHEN_COLLECTED = """
import gc
import triton_python_backend_utils as pb_utils

class Sends:
    # In a cycle: the collector ends it, and it sends to another stream.
    def __init__(self, model):
        self.model, self.me = model, self

    def __del__(self):
        self.model.other.send(pb_utils.InferenceResponse([]))

class TritonPythonModel:
    other = kept = None
    count = 0

    def execute(self, requests):
        for request in requests:
            sender, tensor = request.get_response_sender(), pb_utils.get_input_tensor_by_name(request, "B")
            if self.other is None:
                self.other, self.kept = sender, tensor
                continue
            gc.disable()
            self.count += 1
            answer = pb_utils.InferenceResponse([pb_utils.Tensor("B", __import__("numpy").zeros(1, "f"))])
            Sends(self)
            self.kept = tensor  # the one before is let go of
            del request, tensor
            gc.set_threshold(gc.get_count()[0] + self.count, 1, 1)  # each time one instruction later
            gc.enable()
            sender.send(answer, 1)
            gc.disable()
            gc.collect()
"""


def test_a_finaliser_of_the_model_s_may_send_while_the_gpu_is_waited_for(streamed, gpu, region):
    _, client, stream = streamed(m=(SENDS_WHEN_COLLECTED, STREAMING))
    region(client, "given", VALUES)
    answered = 0
    for _ in range(26):
        stream.client.async_stream_infer("m", **asked(tritonclient.grpc, VALUES.size, name="B"))
    while answered < 25:
        answered += stream.next().as_numpy("B") is not None
    stream.client.stop_stream(cancel_requests=True)  # the first one's has no end
