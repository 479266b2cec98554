"""Ensembles with real servers, real workers and real clients."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import queue
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient import grpc as grpcclient
from tritonclient import http as httpclient
from tritonclient.utils import InferenceServerException
from tritonclient.utils import shared_memory as shm

from tests.system.helpers import ADD_ONE, CONFIG, ROOT, until

# tritonclient leaves its greenlets' sockets and gevent's old imports to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
LARGE = np.arange(300_000, dtype=np.float32)
GATED = """
import os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        open("{gate}.seen", "w").close()
        while not os.path.exists("{gate}"):
            time.sleep(0.005)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", pb_utils.get_input_tensor_by_name(r, "A").as_numpy())])
                for r in requests]
"""
WRITES = ADD_ONE.replace("        return a + 1\n", "        a += 1\n        return a\n")
ENDLESS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender, sent = request.get_response_sender(), 0
            while not sender.is_cancelled():
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("B", np.full(4, sent, np.float32))]))
                sent += 1
            print(f"cancelled after {sent}", flush=True)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
DECOUPLED = CONFIG + "model_transaction_policy { decoupled: true }"
LABELLED = CONFIG.replace('name: "B"', 'name: "B" label_filename: "labels.txt"')


def steps(*models):
    """A config of A -> B through these models."""
    names = ["A", *(f"t{i}" for i in range(1, len(models))), "B"]
    text = ", ".join(
        f'{{ model_name: "{model}" model_version: -1 input_map {{ key: "A" value: "{names[i]}" }} '
        f'output_map {{ key: "B" value: "{names[i + 1]}" }} }}'
        for i, model in enumerate(models)
    )
    config = CONFIG.replace('backend: "python"', 'platform: "ensemble"')
    return f"{config} ensemble_scheduling {{ step [ {text} ] }}"


@pytest.fixture
def write_ensemble(tmp_path):
    def write(name, *models, config=""):
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        (tmp_path / "models" / name / "config.pbtxt").write_text(config or steps(*models))

    return write


@pytest.fixture
def examples(serve):
    return serve(repository=ROOT / "examples/ensembles").ready()


def tensor(kind, name, values, datatype="FP32"):
    made = kind.InferInput(name, list(values.shape), datatype)
    made.set_data_from_numpy(values)
    return made


def words(text):
    return [tensor(grpcclient, "TEXT", np.array([text.encode()], np.object_), "BYTES")]


# ---- answers


@pytest.mark.parametrize("kind", [httpclient, grpcclient], ids=["http", "grpc"])
@pytest.mark.parametrize("size", [5, 300_000], ids=["copied", "by reference"])
def test_a_graph_of_three_models(kind, size, examples, connect):
    x = np.arange(size, dtype=np.float32)
    answer = connect(examples, kind).infer("standardize", [tensor(kind, "X", x)], request_id="abc")
    np.testing.assert_allclose(answer.as_numpy("Y"), (x - x.mean()) / x.std(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(answer.as_numpy("MEAN"), [x.mean()], rtol=1e-5)


@pytest.mark.parametrize("kind", [httpclient, grpcclient], ids=["http", "grpc"])
def test_only_the_outputs_that_were_asked_for(kind, examples, connect):
    client = connect(examples, kind)
    outputs = [kind.InferRequestedOutput("MEAN")]
    answer = client.infer("standardize", [tensor(kind, "X", LARGE)], outputs=outputs)
    assert answer.as_numpy("Y") is None
    assert examples.ask("GET", "/v2/models/scale/stats")[1]["model_stats"][0]["inference_count"] == 0


@pytest.mark.parametrize("kind", [httpclient, grpcclient], ids=["http", "grpc"])
def test_a_steps_error_names_the_ensemble(kind, examples, connect):
    text = "in ensemble 'standardize', all elements of X are equal"
    with pytest.raises(InferenceServerException, match=text) as raised:
        connect(examples, kind).infer("standardize", [tensor(kind, "X", np.ones(4, np.float32))])
    assert raised.value.status() == ("400" if kind is httpclient else "StatusCode.INVALID_ARGUMENT")


def test_a_stream_through_two_models(examples, connect):
    client, answers = connect(examples, grpcclient), queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    text = [f"word{number}" for number in range(60)]
    client.async_stream_infer("words", words(" ".join(text)), request_id="w", enable_empty_final_response=True)
    got, final = [], False
    while not final:
        result, error = answers.get(timeout=60)
        assert error is None
        response = result.get_response()
        final = response.parameters["triton_final_response"].bool_param
        if response.outputs:
            got.append((result.as_numpy("CAPITALS")[0].decode(), int(result.as_numpy("LENGTH")[0])))
    client.stop_stream()
    assert got == [(word.upper(), len(word)) for word in text]


def test_generate_and_its_stream(examples):
    status, body = examples.ask("POST", "/v2/models/standardize/generate", {"X": [1, 2, 3]})
    assert (status, body["MEAN"]) == (200, 2.0)
    connection = http.client.HTTPConnection("127.0.0.1", examples.port, timeout=60)
    connection.request("POST", "/v2/models/words/generate_stream", json.dumps({"TEXT": "one two"}))
    events = [json.loads(line[6:]) for line in connection.getresponse().read().decode().split("\n\n") if line]
    connection.close()
    assert [(event["CAPITALS"], event["LENGTH"]) for event in events] == [("ONE", 3), ("TWO", 3)]


def test_an_answer_goes_into_a_region(serve, write_model, write_ensemble, connect):
    write_model("one")
    write_ensemble("three", "one", "one", "one")
    client = connect(serve("--allow-client-shm=true").ready())
    key = f"tisfast_ensemble_{os.getpid()}"
    handle = shm.create_shared_memory_region(key, f"/{key}", 2 * LARGE.nbytes)
    try:
        shm.set_shared_memory_region(handle, [LARGE])
        client.register_system_shared_memory("r", f"/{key}", 2 * LARGE.nbytes)
        given = httpclient.InferInput("A", [LARGE.size], "FP32")
        given.set_shared_memory("r", LARGE.nbytes)
        wanted = httpclient.InferRequestedOutput("B")
        wanted.set_shared_memory("r", LARGE.nbytes, LARGE.nbytes)
        client.infer("three", [given], outputs=[wanted])
        found = shm.get_contents_as_numpy(handle, np.float32, [LARGE.size], LARGE.nbytes)
        np.testing.assert_array_equal(found, LARGE + 3)
        np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.float32, [LARGE.size]), LARGE)
        client.unregister_system_shared_memory()
    finally:
        shm.destroy_shared_memory_region(handle)


def test_classes_have_the_labels_of_the_step_that_makes_them(serve, write_model, write_ensemble):
    (write_model("labelled", config=LABELLED) / "labels.txt").write_text("zero\none\ntwo\n")
    write_ensemble("e", "labelled", "labelled")
    server = serve().ready()
    inputs = [{"name": "A", "shape": [3], "datatype": "FP32", "data": [0, 2, 1]}]
    outputs = [{"name": "B", "parameters": {"classification": 2}}]
    status, body = server.ask("POST", "/v2/models/e/infer", {"inputs": inputs, "outputs": outputs})
    assert (status, body["outputs"][0]["data"]) == (200, ["4.000000:1:one", "3.000000:2:two"])


def test_a_model_that_writes_into_its_input_changes_nobody_elses(serve, write_model, write_ensemble, connect):
    write_model("writes", WRITES)
    write_model("one")
    more = "".join(f'{{ name: "{name}" data_type: TYPE_FP32 dims: [ -1 ] }}, ' for name in ("t1", "A"))
    config = steps("writes", "one").replace("output [ ", f"output [ {more}")
    write_ensemble("e", config=config)
    client = connect(serve().ready())
    for _ in range(3):
        answer = client.infer("e", [tensor(httpclient, "A", LARGE)])
        np.testing.assert_array_equal(answer.as_numpy("A"), LARGE)
        np.testing.assert_array_equal(answer.as_numpy("t1"), LARGE + 1)
        np.testing.assert_array_equal(answer.as_numpy("B"), LARGE + 2)


def test_an_ensemble_of_ensembles(serve, write_model, write_ensemble):
    write_model("one")
    write_ensemble("two", "one", "one")
    write_ensemble("four", "two", "two")
    server = serve().ready()
    assert server.infer("four", [1.0])[1]["outputs"][0]["data"] == [5.0]
    stats = server.ask("GET", "/v2/models/stats")[1]["model_stats"]
    assert {each["name"]: each["inference_count"] for each in stats} == {"one": 4, "two": 2, "four": 1}


# ---- clients that leave, workers that die


def test_a_client_that_hangs_up_stops_the_steps_that_follow(serve, write_model, write_ensemble, tmp_path):
    gate = tmp_path / "gate"
    write_model("slow", GATED.format(gate=gate))
    write_model("one")
    write_ensemble("e", "slow", "one")
    server = serve().ready()
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    inputs = [{"name": "A", "shape": [1], "datatype": "FP32", "data": [1]}]
    connection.request("POST", "/v2/models/e/infer", json.dumps({"inputs": inputs}))
    until(lambda: os.path.exists(f"{gate}.seen"), "the first step runs")
    connection.close()
    until(lambda: _stats(server, "e")["fail"]["count"] == 1, "the ensemble's request has ended")
    gate.touch()
    until(lambda: _stats(server, "slow")["success"]["count"] == 1, "the first step has ended")
    assert server.infer("one")[0] == 200
    assert _stats(server, "one")["success"]["count"] == 1


def _stats(server, model):
    return server.ask("GET", f"/v2/models/{model}/stats")[1]["model_stats"][0]["inference_stats"]


def test_an_endless_stream_ends_with_its_client(serve, write_model, write_ensemble, connect):
    write_model("endless", ENDLESS, DECOUPLED)
    write_model("one")
    write_ensemble("e", "endless", "one")
    server = serve().ready()
    client, answers = connect(server, grpcclient), queue.Queue()
    client.start_stream(lambda result, error: answers.put(error or result.as_numpy("B")[0]))
    client.async_stream_infer("e", [tensor(grpcclient, "A", np.ones(1, np.float32))])
    assert [answers.get(timeout=60) for _ in range(200)] == [number + 1 for number in range(200)]
    client.stop_stream(cancel_requests=True)
    server.says("cancelled after")
    until(lambda: _stats(server, "e")["fail"]["count"] == 1, "the ensemble's request has ended")


FANS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            a, sender = pb_utils.get_input_tensor_by_name(request, "A").as_numpy(), request.get_response_sender()
            for number in range(int(a[0]) if a.size == 1 else 0):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("B", np.full(18000, number, np.float32))]))
            if a.size > 1:
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("B", a[:1].copy())]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def test_more_large_responses_than_may_be_unread_through_their_own_only_instance(
    serve, write_model, write_ensemble, connect
):
    write_model("fan", FANS, DECOUPLED)
    write_ensemble("e", "fan", "fan")
    client, answers = connect(serve().ready(), grpcclient), queue.Queue()
    client.start_stream(lambda result, error: answers.put(error or result.as_numpy("B")[0]))
    client.async_stream_infer("e", [tensor(grpcclient, "A", np.float32([1200]))])
    assert [answers.get(timeout=60) for _ in range(1200)] == list(range(1200))
    client.stop_stream()


OVERLAPS = """
import os
import time
import triton_python_backend_utils as pb_utils

def say(what):
    with open("{told}", "a") as file:
        file.write(what)

class TritonPythonModel:
    def execute(self, requests):
        say("+")
        while not os.path.exists("{gate}"):
            time.sleep(0.005)
        say("-")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", pb_utils.get_input_tensor_by_name(r, "A").as_numpy())])
                for r in requests]
"""


@pytest.mark.parametrize("most", [0, 2])
def test_max_inflight_requests_bounds_what_a_step_has(most, serve, write_model, write_ensemble, tmp_path):
    told, gate = tmp_path / "told", tmp_path / "gate"
    write_model("slow", OVERLAPS.format(told=told, gate=gate), CONFIG + "instance_group [ { count: 4 } ]")
    write_ensemble("e", config=steps("slow").replace("step [", f"max_inflight_requests: {most} step ["))
    server = serve().ready()
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(server.infer, "e", [number]) for number in map(float, range(16))]
        until(lambda: told.exists() and len(told.read_text()) >= (most or 4), "as many run as may")
        gate.touch()
        found = [each.result()[1] for each in asked]
    assert [body["outputs"][0]["data"] for body in found] == [[number] for number in range(16)]
    running = list(itertools.accumulate(1 if sign == "+" else -1 for sign in told.read_text()))
    assert max(running) == (most or 4)


def test_a_dying_worker_fails_the_request_and_makes_the_ensemble_unready(serve, write_model, write_ensemble, tmp_path):
    gate = tmp_path / "gate"
    write_model("one")
    write_model("slow", GATED.format(gate=gate))
    write_ensemble("e", "one", "slow")
    server = serve().ready()
    answers = []
    asker = threading.Thread(target=lambda: answers.append(server.infer("e")), daemon=True)
    asker.start()
    until(lambda: os.path.exists(f"{gate}.seen"), "the second step runs")
    mark = len(server.log)
    os.kill(server.worker("slow_0"), signal.SIGKILL)
    asker.join()
    ((status, body),) = answers
    assert status == 503
    assert body["error"].startswith("in ensemble 'e', model 'slow' version 1: instance slow_0 was killed by signal 9")
    server.says("instance slow_0 is ready", after=mark)
    gate.touch()
    until(lambda: server.model_ready("e"), "ready again")
    assert server.infer("e", [1.0])[1]["outputs"][0]["data"] == [2.0]


def test_all_memory_comes_back(serve, write_model, write_ensemble, connect):
    write_model("one")
    write_ensemble("e", "one", "one", "one")
    server = serve("--metrics-port=0").ready()
    client = connect(server)
    for _ in range(20):
        client.infer("e", [tensor(httpclient, "A", LARGE)])
    port = server.says("is ready after")["metrics_port"]

    def used():
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return [line for line in text.splitlines() if 'kind="used"' in line and not line.endswith(" 0.0")]

    until(lambda: not used(), "no block is out")


def test_the_end_writes_the_traces_that_wait(serve, write_model, write_ensemble, connect, tmp_path):
    write_model("one")
    write_ensemble("e", "one", "one")
    file = tmp_path / "trace.json"
    # The thread that writes is slow with the first trace, so that all others wait when the server ends.
    slow = (
        "import time\nfrom tisfast.telemetry.trace_file import TraceFiles\nwrite = TraceFiles.write\n"
        "def late(self, traces):\n    time.sleep(1)\n    write(self, traces)\nTraceFiles.write = late"
    )
    flags = ("--trace-config=rate=1", "--trace-config=level=TIMESTAMPS")
    server = serve(f"--trace-config=triton,file={file}", *flags, fault=slow).ready()
    client = connect(server)
    for _ in range(5):
        client.infer("e", [tensor(httpclient, "A", LARGE[:1])])
    server.end()
    assert [each["model_name"] for each in json.loads(file.read_text()) if "model_name" in each].count("e") == 5


def test_a_trace_has_a_child_for_each_step(serve, write_model, write_ensemble, connect, tmp_path):
    write_model("one")
    write_ensemble("two", "one", "one")
    write_ensemble("e", "two", "one")
    file = tmp_path / "trace.json"
    levels = ("--trace-config=level=TIMESTAMPS", "--trace-config=level=TENSORS")
    server = serve(f"--trace-config=triton,file={file}", "--trace-config=rate=1", *levels).ready()
    connect(server).infer("e", [tensor(httpclient, "A", LARGE)], request_id="r")
    # Tensors are long in JSON; the end waits for seconds only, and a busy machine needs more.
    until(lambda: file.exists() and file.read_text().count('"model_name"') == 5, "all traces are written")
    server.end()
    traces = json.loads(file.read_text())
    found = {each["id"]: (each["model_name"], each.get("parent_id")) for each in traces if "model_name" in each}
    assert found == {1: ("e", None), 2: ("two", 1), 3: ("one", 2), 4: ("one", 2), 5: ("one", 1)}
    assert {each["request_id"] for each in traces if "model_name" in each} == {"r"}
    marks = {number: [] for number in found}
    for each in traces:
        marks[each["id"]] += [mark["name"] for mark in each.get("timestamps", ())]
    assert all("COMPUTE_START" in marks[number] for number in (3, 4, 5))
    assert not any("COMPUTE_START" in marks[number] for number in (1, 2))
    inputs = {each["id"] for each in traces if each.get("activity") == "TENSOR_QUEUE_INPUT"}
    assert inputs == set(found)


CALLS = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "A")
            call = pb_utils.InferenceRequest(model_name="{model}", requested_output_names=["B"], inputs=[a])
            response = call.exec()
            answers.append(pb_utils.InferenceResponse(response.output_tensors(), response.error()))
        return answers
"""


def test_a_model_calls_an_ensemble(serve, write_model, write_ensemble, connect):
    write_model("one")
    write_ensemble("e", "one", "one")
    write_model("caller", CALLS.format(model="e"))
    write_ensemble("outer", "caller", "one")
    client = connect(serve().ready())
    answer = client.infer("outer", [tensor(httpclient, "A", LARGE)])
    np.testing.assert_array_equal(answer.as_numpy("B"), LARGE + 3)


def test_a_model_that_calls_an_ensemble_of_itself_is_refused(serve, write_model, write_ensemble):
    write_model("caller", CALLS.format(model="e"))
    write_ensemble("e", "caller")
    server = serve().ready()
    status, body = server.infer("caller")
    assert status != 200
    assert "this call would never be answered" in body["error"]


# ---- loading


def test_an_ensemble_comes_after_its_models_and_fails_with_them(serve, write_model, write_ensemble):
    write_model("bad", ADD_ONE + "    def initialize(self, args):\n        raise RuntimeError('no luck')\n")
    write_model("one")
    write_ensemble("a_first", "one")
    write_ensemble("on_bad", "one", "bad")
    write_ensemble("on_nothing", "nothing")
    write_ensemble("on_itself", "on_itself")
    write_ensemble("on_on_bad", "on_bad")
    server = serve("--exit-on-error=false", "--strict-readiness=false").ready()
    assert server.infer("a_first", [1.0])[0] == 200
    index = {entry["name"]: entry for entry in server.ask("POST", "/v2/repository/index")[1]}
    assert [name for name in sorted(index) if index[name]["state"] == "READY"] == ["a_first", "one"]
    reasons = {name: entry.get("reason", "") for name, entry in index.items()}
    about = "ensemble 'on_bad' depends on 'bad' which has no loaded version. Model 'bad' loading failed with error: "
    assert f"{about}version 1 is at UNAVAILABLE state: Internal: RuntimeError: no luck" in reasons["on_bad"]
    assert "ensemble on_nothing contains models that are not available or ambiguous: nothing" in reasons["on_nothing"]
    circle = "circular dependency between ensembles: on_itself -> ... -> on_itself -> on_itself"
    assert circle in reasons["on_itself"]
    assert "ensemble 'on_on_bad' depends on 'on_bad' which has no loaded version." in reasons["on_on_bad"]


def test_a_version_that_is_not_there(serve, write_model, write_ensemble):
    write_model("one")
    write_ensemble("e", config=steps("one").replace("model_version: -1", "model_version: 3"))
    server = serve("--exit-on-error=false").ready()
    (entry,) = [each for each in server.ask("POST", "/v2/repository/index")[1] if each["name"] == "e"]
    assert entry["reason"].endswith("ensemble 'e' depends on 'one' whose required version 3 is not loaded.")


def test_a_server_stops_when_its_ensembles_have_answered(serve, write_model, write_ensemble, tmp_path):
    gate = tmp_path / "gate"
    write_model("slow", GATED.format(gate=gate))
    write_ensemble("e", "slow", "slow")
    server = serve().ready()
    answers = []
    asker = threading.Thread(target=lambda: answers.append(server.infer("e")), daemon=True)
    asker.start()
    until(lambda: os.path.exists(f"{gate}.seen"), "the first step runs")
    server.process.send_signal(signal.SIGTERM)
    server.says("Found 1 HTTP service connections")
    gate.touch()
    assert server.ended() == 0
    asker.join()
    assert answers[0][0] == 200


def test_a_step_may_say_beside_its_sequence_what_only_pythons_json_has(serve, write_model, write_ensemble):
    odd = 'parameters={"sequence_id": 1, "x": "\\ud800"}'
    write_model("one", ADD_ONE.replace("self.compute(a))])", f"self.compute(a))], {odd})"))
    write_model("two")
    write_ensemble("e", "one", "two")
    server = serve().ready()
    status, answer = server.infer("e", [1.0])
    assert status == 200 and answer["outputs"][0]["data"] == [3.0]
