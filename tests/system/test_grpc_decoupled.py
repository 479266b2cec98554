"""Decoupled models over gRPC: many answers a request, as grpcio and tritonclient get them, and what ends them early."""

from __future__ import annotations

import asyncio
import itertools
import queue
import signal

import grpc
import numpy as np
import psutil
import pytest
from tritonclient import grpc as grpcclient
from tritonclient.grpc import aio, service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from tests.system.helpers import ROOT, until

SERVICE = "inference.GRPCInferenceService"
SECONDS_MAX = 120
# Answers of SIZE numbers without end, until its client leaves.
ENDLESS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            size = int(pb_utils.get_input_tensor_by_name(request, "SIZE").as_numpy()[0])
            sent = 0
            while not sender.is_cancelled():
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.full(size, sent, np.float32))]))
                sent += 1
                if sent % 100 == 0:
                    print(f"sent {sent}", flush=True)
            print(f"cancelled after {sent}", flush=True)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
ENDLESS_CONFIG = """
backend: "python"
model_transaction_policy { decoupled: true }
input [ { name: "SIZE" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


def address(server):
    return f"127.0.0.1:{server.said(lambda r: r.get('event') == 'ready', 'ready')['grpc_port']}"


def tensor(name, values, datatype, kind=np.int32):
    made = grpcclient.InferInput(name, list(np.shape(values)), datatype)
    made.set_data_from_numpy(np.array(values, kind))
    return made


def repeat(values, delay=0, wait=0):
    delays = [delay] * len(values)
    return [
        tensor("IN", values, "INT32"),
        tensor("DELAY", delays, "UINT32", np.uint32),
        tensor("WAIT", [wait], "UINT32", np.uint32),
    ]


def square(n):
    return [tensor("IN", [[n]], "INT32")]


def message(model, inputs, id="", empty_final=False):
    """A ModelInferRequest as tritonclient makes it."""
    made = service_pb2.ModelInferRequest(model_name=model, id=id)
    for each in inputs:
        made.inputs.append(each._get_tensor())
        made.raw_input_contents.append(each._get_content())
    if empty_final:
        made.parameters["triton_enable_empty_final_response"].bool_param = True
    return made


@pytest.fixture
def server(serve):
    return serve(repository=ROOT / "examples/decoupled").ready()


@pytest.fixture
def endless(serve, write_model):
    write_model("endless", ENDLESS, ENDLESS_CONFIG)
    return serve().ready()


@pytest.fixture
def stub():
    """Service stubs whose channels are closed at the end."""
    channels = []

    def made(server):
        channels.append(grpc.insecure_channel(address(server)))
        return service_pb2_grpc.GRPCInferenceServiceStub(channels[-1])

    yield made
    for channel in channels:
        channel.close()


def final(answer):
    return answer.infer_response.parameters["triton_final_response"].bool_param


def test_several_answers_and_an_empty_final_when_asked(server, stub):
    asked = stub(server)
    for empty_final in (False, True):
        requests = [message("repeat_int32", repeat([5, 6, 7]), "a", empty_final)]
        answers = list(asked.ModelStreamInfer(iter(requests), timeout=SECONDS_MAX))
        assert [answer.error_message for answer in answers] == [""] * len(answers)
        values = [np.frombuffer(a.infer_response.raw_output_contents[0], np.int32)[0] for a in answers[:3]]
        assert values == [5, 6, 7]
        assert [final(answer) for answer in answers] == [False] * 3 + [True] * empty_final
        assert {(a.infer_response.id, a.infer_response.model_name) for a in answers} == {("a", "repeat_int32")}
        assert all(not answer.infer_response.outputs for answer in answers[3:])


def test_no_answer_at_all(server, stub):
    asked = stub(server)
    nothing = message("square_int32", square(0))
    assert list(asked.ModelStreamInfer(iter([nothing]), timeout=SECONDS_MAX)) == []
    [end] = asked.ModelStreamInfer(iter([message("square_int32", square(0), "b", True)]), timeout=SECONDS_MAX)
    assert final(end) and end.infer_response.id == "b"


def test_many_requests_of_one_stream_overlap(server, stub):
    requests = [message("square_int32", square(n), str(n), True) for n in range(40)]
    counts = dict.fromkeys(range(40), 0)
    for answer in stub(server).ModelStreamInfer(iter(requests), timeout=SECONDS_MAX):
        assert answer.error_message == ""
        counts[int(answer.infer_response.id)] += not final(answer)
    assert counts == {n: n for n in range(40)}


def test_one_answer_rpcs_refuse_decoupled_models(server):
    with grpcclient.InferenceServerClient(address(server)) as client:
        with pytest.raises(InferenceServerException, match="doesn't support models with decoupled") as error:
            client.infer("repeat_int32", repeat([1]))
        assert error.value.status() == "StatusCode.UNIMPLEMENTED"


def test_tritonclient_streams(server):
    got: queue.Queue = queue.Queue()
    with grpcclient.InferenceServerClient(address(server)) as client:
        client.start_stream(lambda result, error: got.put((result, error)))
        client.async_stream_infer("repeat_int32", repeat([3, 4]), request_id="x", enable_empty_final_response=True)
        results = [got.get(timeout=SECONDS_MAX) for _ in range(3)]
        assert [error for _, error in results] == [None] * 3
        assert [int(result.as_numpy("OUT")[0]) for result, _ in results[:2]] == [3, 4]
        assert results[2][0].get_response().parameters["triton_final_response"].bool_param
        client.async_stream_infer("repeat_int32", [], request_id="y")
        result, error = got.get(timeout=SECONDS_MAX)
        assert result is None and "expected 3 inputs but got 0" in error.message()
        client.stop_stream()


def test_tritonclient_cancels_a_stream(endless):
    got: queue.Queue = queue.Queue()
    with grpcclient.InferenceServerClient(address(endless)) as client:
        client.start_stream(lambda result, error: got.put((result, error)))
        client.async_stream_infer("endless", [tensor("SIZE", [1], "INT32")])
        assert got.get(timeout=SECONDS_MAX)[1] is None
        client.stop_stream(cancel_requests=True)
        endless.says("cancelled after")


def test_asyncio_streams(server):
    async def talk():
        async with aio.InferenceServerClient(address(server)) as client:

            async def requests():
                for number in (3, 0, 2):
                    yield {"model_name": "square_int32", "inputs": square(number), "request_id": str(number)}

            seen = []
            async for result, error in client.stream_infer(requests()):
                assert error is None
                seen.append(result.get_response().id)
            assert sorted(seen) == ["2", "2", "3", "3", "3"]

    asyncio.run(talk())


def test_grpc_aio_cancels_a_stream(endless):
    async def talk():
        async with grpc.aio.insecure_channel(address(endless)) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            call = stub.ModelStreamInfer(timeout=SECONDS_MAX)
            await call.write(message("endless", [tensor("SIZE", [1], "INT32")]))
            for number in range(10):
                answer = await call.read()
                value = np.frombuffer(answer.infer_response.raw_output_contents[0], np.float32)[0]
                assert value == number
            assert call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call.read()

    asyncio.run(talk())
    endless.says("cancelled after")


def test_a_deadline_reaches_the_model(endless, stub):
    asked = iter([message("endless", [tensor("SIZE", [1], "INT32")])])
    call = stub(endless).ModelStreamInfer(asked, timeout=4)  # by then it runs, on a busy machine, too
    with pytest.raises(grpc.RpcError) as error:
        for _ in call:
            pass
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    endless.says("cancelled after")


def memory(server):
    """Of server and worker together; what they share counts once."""
    infos = [process.memory_info() for process in server.family()]
    return sum(info.rss - info.shared for info in infos) + max(info.shared for info in infos)


@pytest.mark.parametrize("size", [1, 1 << 14])
def test_a_client_that_reads_slowly_slows_its_model(endless, stub, size):
    requests: queue.Queue = queue.Queue()
    requests.put(message("endless", [tensor("SIZE", [size], "INT32")]))
    call = stub(endless).ModelStreamInfer(iter(requests.get, None), timeout=SECONDS_MAX)
    next(call)
    before = memory(endless)

    def sent():
        return next((r["message"] for r in reversed(endless.log) if r["message"].startswith("sent ")), "")

    # It stands still: nothing new for longer than the client could leave unread by chance.
    last, since = sent(), 0
    for _ in range(2000):
        now = sent()
        since = since + 1 if now == last else 0
        last = now
        if since == 20:
            break
        with pytest.raises(AssertionError, match="not within"):
            until(lambda: False, "a moment", 0.05)
    assert since == 20, last
    assert memory(endless) - before < 192 << 20  # worker's limits.STREAM_BLOCKS_MAX answers
    raws = [answer.infer_response.raw_output_contents[0] for answer in itertools.islice(call, 300)]
    values = [np.frombuffer(raw, np.float32)[0] for raw in raws]
    assert values == list(range(1, 301))
    assert stub(endless).ServerLive(service_pb2.ServerLiveRequest(), timeout=SECONDS_MAX).live
    call.cancel()
    endless.says("cancelled after")


def test_a_worker_that_dies_in_mid_stream_ends_it_with_an_error(endless, stub):
    worker = endless.worker("endless_0")
    requests: queue.Queue = queue.Queue()
    requests.put(message("endless", [tensor("SIZE", [1], "INT32")], "k"))
    call = stub(endless).ModelStreamInfer(iter(requests.get, None), timeout=SECONDS_MAX)
    assert next(call).error_message == ""
    psutil.Process(worker).send_signal(signal.SIGKILL)
    last = next(answer for answer in call if answer.error_message)
    assert last.infer_response.id == "k" and "endless" in last.error_message
    until(lambda: endless.worker("endless_0") != worker, "a new instance")
    requests.put(message("endless", [tensor("SIZE", [1], "INT32")], "l"))
    assert next(call).infer_response.id == "l"
    call.cancel()
