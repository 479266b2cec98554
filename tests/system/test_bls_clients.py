"""Models that call models, seen by real HTTP and gRPC clients: answers, streams, clients that leave, deaths, traces."""

from __future__ import annotations

import http.client
import json
import os
import queue
import select
import signal
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient import grpc as grpcclient
from tritonclient import http as httpclient
from tritonclient.utils import InferenceServerException

from tests.system.helpers import ADD_ONE, CONFIG, ROOT, until
from tests.telemetry.otlp_helpers import Receiver, attributes

# tritonclient leaves its greenlets' sockets and gevent's old imports to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
KINDS = pytest.mark.parametrize("kind", [httpclient, grpcclient], ids=["http", "grpc"])
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
# Asks `MODEL` on behalf of each request, and passes answers and errors on.
ASKS = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(r) for r in requests]

    def answer(self, request):
        a = pb_utils.get_input_tensor_by_name(request, "A")
        call = pb_utils.InferenceRequest(
            model_name="MODEL", requested_output_names=["B"], inputs=[a], trace=request.trace())
        response = call.exec()
        if response.has_error():
            return pb_utils.InferenceResponse([], error=response.error())
        return pb_utils.InferenceResponse(response.output_tensors())
"""
# Answers the first request of a batch, and calls `waits` on behalf of the others.
ANSWERS_THE_FIRST = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        a = pb_utils.get_input_tensor_by_name(requests[0], "A").as_numpy()
        answer = pb_utils.InferenceResponse([pb_utils.Tensor("B", a)])
        requests[0].get_response_sender().send(answer, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        call = pb_utils.InferenceRequest(
            model_name="waits", requested_output_names=["B"], inputs=[pb_utils.Tensor("A", a[0])])
        call.exec()
        return [None, *[answer for _ in requests[1:]]]
"""
BATCHES_OF_TWO = (
    CONFIG
    + """
max_batch_size: 2
dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 20000000 }
"""
)
# Answers when it is cancelled, or when the file is there; says in FOLDER/told what it did.
WAITS = """
import os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            open("FOLDER/begun", "w").close()
            while not os.path.exists("FOLDER/go") and not request.is_cancelled():
                time.sleep(0.002)
            if request.is_cancelled():
                open("FOLDER/cancelled", "w").close()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", pb_utils.get_input_tensor_by_name(r, "A").as_numpy())])
                for r in requests]
"""
# Sends each answer of a decoupled model on to its own client as it comes.
RELAYS = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            call = pb_utils.InferenceRequest(model_name="count", requested_output_names=["B"], inputs=request.inputs())
            for response in call.exec(decoupled=True):
                if response.output_tensors():
                    sender.send(pb_utils.InferenceResponse(response.output_tensors()))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
COUNTS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(int(pb_utils.get_input_tensor_by_name(request, "A").as_numpy()[0])):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("B", np.float32([number]))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
DECOUPLED = CONFIG + "model_transaction_policy { decoupled: true }"
# The context of its request, as its answer's parameter.
TELLS = ADD_ONE.replace(
    'pb_utils.InferenceResponse([pb_utils.Tensor("B", self.compute(a))])',
    'pb_utils.InferenceResponse([pb_utils.Tensor("B", self.compute(a))], '
    'parameters={"context": request.trace().get_context() or "none"})',
)


@pytest.fixture(scope="module")
def examples(serve_once):
    return serve_once(repository=ROOT / "examples/bls").ready()


def tensor(kind, name, values, datatype="FP32"):
    made = kind.InferInput(name, list(values.shape), datatype)
    made.set_data_from_numpy(values)
    return made


def statistics(server, model):
    return server.ask("GET", f"/v2/models/{model}/stats")[1]["model_stats"][0]["inference_stats"]


# ---- answers


@KINDS
@pytest.mark.parametrize("model", ["bls_sync", "bls_async"])
def test_the_examples(kind, model, examples, connect):
    client = connect(examples, kind)
    a, b = np.float32([1, 2, 3, 4]), np.float32([10, 20, 30, 40])
    answer = client.infer(model, [tensor(kind, "INPUT0", a), tensor(kind, "INPUT1", b)])
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT0"), a)
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT1"), a)


@KINDS
def test_an_example_that_adds_a_stream_up(kind, examples, connect):
    answer = connect(examples, kind).infer("bls_decoupled", [tensor(kind, "COUNT", np.int32([50]), "INT32")])
    assert answer.as_numpy("SUM").tolist() == [50 * 51 // 2]


@KINDS
@pytest.mark.parametrize("size", [3, 300_000], ids=["copied", "by reference"])
def test_a_chain_of_callers(kind, size, serve, write_model, connect):
    write_model("one")
    write_model("inner", ASKS.replace("MODEL", "one"))
    write_model("outer", ASKS.replace("MODEL", "inner"))
    client = connect(serve().ready(), kind)
    a = np.arange(size, dtype=np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(client.infer("outer", [tensor(kind, "A", a)]).as_numpy("B"), a + 1)


@KINDS
def test_the_called_models_error_is_the_clients(kind, serve, write_model, connect):
    write_model("asks", ASKS.replace("MODEL", "nobody"))
    write_model("raises", ADD_ONE.replace("return a + 1", "raise ValueError('no luck')"))
    write_model("asks_raises", ASKS.replace("MODEL", "raises"))
    client = connect(serve().ready(), kind)
    with pytest.raises(InferenceServerException, match="Request for unknown model: 'nobody' is not found") as raised:
        client.infer("asks", [tensor(kind, "A", np.float32([1]))])
    assert raised.value.status() == ("404" if kind is httpclient else "StatusCode.NOT_FOUND")
    with pytest.raises(InferenceServerException, match="no luck"):
        client.infer("asks_raises", [tensor(kind, "A", np.float32([1]))])


def test_many_clients_of_one_caller(serve, write_model):
    write_model("one")
    write_model("asks", ASKS.replace("MODEL", "one"), CONFIG + "instance_group [ { count: 2 } ]")
    server = serve().ready()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: server.infer("asks", [number]), map(float, range(100))))
    assert [body["outputs"][0]["data"] for _, body in found] == [[number + 1] for number in range(100)]


def test_a_stream_that_relays_a_stream(serve, write_model, connect):
    write_model("count", COUNTS, DECOUPLED)
    write_model("relay", RELAYS, DECOUPLED)
    client, answers = connect(serve().ready(), grpcclient), queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer("relay", [tensor(grpcclient, "A", np.float32([40]))], enable_empty_final_response=True)
    got = []
    while True:
        result, error = answers.get(timeout=60)
        assert error is None
        if result.get_response().parameters["triton_final_response"].bool_param:
            break
        got.append(float(result.as_numpy("B")[0]))
    client.stop_stream()
    assert got == list(range(40))


# ---- clients that leave, workers that die


def test_a_client_that_hangs_up_cancels_the_call(serve, write_model, tmp_path):
    write_model("waits", WAITS.replace("FOLDER", str(tmp_path)))
    write_model("asks", ASKS.replace("MODEL", "waits"))
    server = serve().ready()
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    inputs = [{"name": "A", "shape": [1], "datatype": "FP32", "data": [1]}]
    connection.request("POST", "/v2/models/asks/infer", json.dumps({"inputs": inputs}))
    until((tmp_path / "begun").exists, "the called model runs")
    connection.close()
    until((tmp_path / "cancelled").exists, "it is told")


def test_a_grpc_deadline_cancels_the_call(serve, write_model, connect, tmp_path):
    write_model("waits", WAITS.replace("FOLDER", str(tmp_path)))
    write_model("asks", ASKS.replace("MODEL", "waits"))
    client = connect(serve().ready(), grpcclient)
    with pytest.raises(InferenceServerException, match=r"(?i)deadline"):
        client.infer("asks", [tensor(grpcclient, "A", np.float32([1]))], client_timeout=4)  # by then it runs
    until((tmp_path / "cancelled").exists, "it is told")


def test_the_last_client_of_a_batch_cancels_the_call_when_the_first_has_its_answer(serve, write_model, tmp_path):
    write_model("waits", WAITS.replace("FOLDER", str(tmp_path)))
    write_model("asks", ANSWERS_THE_FIRST, BATCHES_OF_TWO)
    server = serve().ready()
    inputs = [{"name": "A", "shape": [1, 1], "datatype": "FP32", "data": [1]}]
    connections = [http.client.HTTPConnection("127.0.0.1", server.port) for _ in range(2)]
    for connection in connections:
        connection.request("POST", "/v2/models/asks/infer", json.dumps({"inputs": inputs}))
    until((tmp_path / "begun").exists, "the called model runs")
    (answered,), _, _ = select.select([connection.sock for connection in connections], [], [], 30)
    for connection in connections:
        if connection.sock is not answered:
            connection.close()
    until((tmp_path / "cancelled").exists, "it is told")
    for connection in connections:
        connection.close()


@KINDS
def test_a_dying_callee_is_the_clients_error(kind, serve, write_model, connect, tmp_path):
    write_model("waits", WAITS.replace("FOLDER", str(tmp_path)))
    write_model("asks", ASKS.replace("MODEL", "waits"))
    server = serve().ready()
    client = connect(server, kind)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.infer, "asks", [tensor(kind, "A", np.float32([1]))])
        until((tmp_path / "begun").exists, "the called model runs")
        os.kill(server.worker("waits_0"), signal.SIGKILL)
        with pytest.raises(InferenceServerException, match="waits_0 was killed by signal 9") as raised:
            answer.result(30)
    assert raised.value.status() == ("503" if kind is httpclient else "StatusCode.UNAVAILABLE")


# ---- traces


def test_a_trace_file_has_a_child_for_each_call(serve, write_model, tmp_path):
    write_model("one")
    write_model("inner", ASKS.replace("MODEL", "one"))
    write_model("outer", ASKS.replace("MODEL", "inner"))
    write_model("forgets", ASKS.replace("MODEL", "one").replace(", trace=request.trace()", ""))
    file = tmp_path / "trace.json"
    flags = ("level=TIMESTAMPS", f"triton,file={file}", "rate=1")
    server = serve(*(f"--trace-config={flag}" for flag in flags)).ready()
    assert server.infer("outer")[0] == server.infer("forgets")[0] == 200
    server.end()
    traces = json.loads(file.read_text())
    found = {each["id"]: (each["model_name"], each.get("parent_id")) for each in traces if "model_name" in each}
    assert found == {1: ("outer", None), 2: ("inner", 1), 3: ("one", 2), 4: ("forgets", None)}
    marks = {number: [] for number in found}
    for each in traces:
        marks[each["id"]] += [mark["name"] for mark in each.get("timestamps", ())]
    assert all("COMPUTE_START" in names and "REQUEST_END" in names for names in marks.values())
    assert not any(name.startswith("HTTP") for name in marks[2] + marks[3])


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


def traced(receiver, *more):
    return (
        "--trace-config=mode=opentelemetry", f"--trace-config=opentelemetry,url={receiver.url}",
        "--trace-config=level=TIMESTAMPS", "--trace-config=rate=0",
        "--trace-config=opentelemetry,bsp_schedule_delay=50", *more,
    )  # fmt: skip


def ask_traced(server, model):
    body = json.dumps({"inputs": [{"name": "A", "shape": [1], "datatype": "FP32", "data": [1]}]})
    headers = {"traceparent": PARENT, "tracestate": "a=b"}
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/v2/models/{model}/infer", body.encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def by_name(spans):
    return {span.name: span for span in spans if span.name != "compute"}


def test_spans_of_calls_lie_within_that_of_the_caller(serve, write_model, receiver):
    write_model("one")
    write_model("inner", ASKS.replace("MODEL", "one"))
    write_model("outer", ASKS.replace("MODEL", "inner"))
    server = serve(*traced(receiver)).ready()
    ask_traced(server, "outer")
    spans = receiver.spans(7)
    assert server.end() == 0
    named = by_name(spans)
    names = ["InferRequest", "compute", "compute", "compute", "inner", "one", "outer"]
    assert sorted(span.name for span in spans) == names
    assert {span.trace_id.hex() for span in spans} == {PARENT.split("-")[1]}
    for child, parent in (("one", "inner"), ("inner", "outer"), ("outer", "InferRequest")):
        assert named[child].parent_span_id == named[parent].span_id
        assert named[parent].start_time_unix_nano <= named[child].start_time_unix_nano
        assert named[child].end_time_unix_nano <= named[parent].end_time_unix_nano
    assert named["InferRequest"].parent_span_id.hex() == PARENT.split("-")[2]
    assert attributes(named["one"])["triton.trace_parent_id"] == attributes(named["inner"])["triton.trace_id"]


def test_spans_of_steps_lie_within_that_of_the_ensemble(serve, write_model, receiver, tmp_path):
    write_model("one")
    steps = ", ".join(
        f'{{ model_name: "one" model_version: -1 input_map {{ key: "A" value: "{a}" }} '
        f'output_map {{ key: "B" value: "{b}" }} }}'
        for a, b in (("A", "t"), ("t", "B"))
    )
    (tmp_path / "models/e/1").mkdir(parents=True)
    config = CONFIG.replace('backend: "python"', 'platform: "ensemble"') + f"ensemble_scheduling {{ step [ {steps} ] }}"
    (tmp_path / "models/e/config.pbtxt").write_text(config)
    write_model("asks", ASKS.replace("MODEL", "e"))
    server = serve(*traced(receiver)).ready()
    ask_traced(server, "asks")
    spans = receiver.spans(8)
    assert server.end() == 0
    assert sorted(span.name for span in spans) == [
        "InferRequest", "asks", "compute", "compute", "compute", "e", "one", "one",
    ]  # fmt: skip
    named = by_name(spans)
    assert named["e"].parent_span_id == named["asks"].span_id
    assert {span.parent_span_id for span in spans if span.name == "one"} == {named["e"].span_id}
    assert {span.trace_id.hex() for span in spans} == {PARENT.split("-")[1]}


def test_a_model_is_told_its_context(serve, write_model, receiver):
    write_model("tells", TELLS)
    server = serve(*traced(receiver)).ready()
    told = json.loads(ask_traced(server, "tells")["parameters"]["context"])
    span = by_name(receiver.spans(3))["tells"]
    assert told == {"traceparent": f"00-{PARENT.split('-')[1]}-{span.span_id.hex()}-01", "tracestate": "a=b"}
    assert server.infer("tells")[1]["parameters"]["context"] == "none"  # with rate=0 only who asks for it is traced
    assert server.end() == 0


def test_there_is_no_context_in_trace_files(serve, write_model, tmp_path):
    write_model("tells", TELLS)
    flags = ("level=TIMESTAMPS", f"triton,file={tmp_path / 'trace.json'}", "rate=1")
    server = serve(*(f"--trace-config={flag}" for flag in flags)).ready()
    assert server.infer("tells")[1]["parameters"]["context"] == "none"
