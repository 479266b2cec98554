"""Triton: what it serves, when, and how it ends."""

import asyncio
import logging
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

from tests.pytriton.served import (
    ONE,
    TOKEN,
    A,
    O,
    add,
    count_up,
    fail,
    http,
    model,
    server,
)
from tests.waiting import wait_until
from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.client.exceptions import PyTritonClientInferenceServerError
from tisfast.pytriton.decorators import batch, get_model_config
from tisfast.pytriton.exceptions import (
    PyTritonBadParameterError,
    PyTritonInvalidOperationError,
    PyTritonRuntimeError,
    PyTritonUnrecoverableError,
    PyTritonValidationError,
)
from tisfast.pytriton.model_config import ModelConfig, Tensor
from tisfast.pytriton.model_config.common import ModelWarmup, WarmupInput
from tisfast.pytriton.triton import TritonLifecyclePolicy, TritonSecurityConfig
from tisfast.pytriton.utils.workspace import Workspace


def ask(triton, name="m", *values, **named):
    with ModelClient(http(triton), name) as client:
        return client.infer_sample(*(values or ([] if named else [ONE])), **named)["o"].tolist()


def status(triton, path, **headers):
    request = urllib.request.Request(f"{http(triton)}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


# ---- bind


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model_name": ""}, "Model name cannot be empty"),
        (
            {"model_name": "a/b"},
            "Model name can only contain alphanumeric characters, dots, underscores and dashes",
        ),
        ({"infer_func": 3}, "inference_fn has to be either callable or sequence of callables"),
        ({"infer_func": [add, 3]}, "inference_fn has to be either callable or sequence of callables"),
        ({"outputs": [Tensor(shape=(1,), dtype=np.float32, optional=True)]}, "Output tensors cannot be optional."),
    ],
)
def test_what_cannot_be_bound_is_refused(tmp_path, arguments, message):
    triton = server(workspace=tmp_path / "work")
    with pytest.raises(PyTritonValidationError) as caught:
        triton.bind(**{**model("m", add), **arguments})
    assert caught.value.message == message


def test_a_name_is_bound_once(tmp_path):
    triton = server(workspace=tmp_path / "work")
    triton.bind(**model("m", add))
    with pytest.raises(PyTritonInvalidOperationError, match="Cannot add model with the same name twice."):
        triton.bind(**model("M", add))
    triton.bind(**model("m", add, model_version=2))


def test_binding_gives_tensors_names_and_the_callable_its_configuration(tmp_path):
    triton = server(workspace=tmp_path / "work")
    function = batch(lambda **inputs: inputs)
    tensors = [Tensor(shape=(1,), dtype=np.float32), Tensor(shape=(1,), dtype=bytes)]
    triton.bind(**model("m", function, tensors, tensors, config=ModelConfig(max_batch_size=7)))
    config = get_model_config(function, None)
    assert [spec.name for spec in config.inputs] == ["INPUT_1", "INPUT_2"]
    assert [spec.name for spec in config.outputs] == ["OUTPUT_1", "OUTPUT_2"]
    assert config.max_batch_size == 7


def test_a_model_that_the_server_does_not_take_is_an_error_of_bind(triton):
    running = triton(model("m", add))
    with pytest.raises(PyTritonRuntimeError, match="'twice' was not loaded: .*'a' is declared more than once"):
        running.bind(**model("twice", add, [A, A]))
    with pytest.raises(PyTritonBadParameterError, match="`max_batch_size` must be greater or equal to 1."):
        running.bind(**model("none", add, config=ModelConfig(max_batch_size=0)))
    assert running.is_alive()


# ---- what serves


class Model:
    def __call__(self, requests):
        return add(requests)

    def method(self, requests):
        return add(requests)

    async def coroutine(self, requests):
        await asyncio.sleep(0)
        return add(requests)

    def generator(self, requests):
        yield add(requests)

    async def stream(self, requests):
        yield add(requests)


def test_all_kinds_of_callables_serve(triton):
    kinds = {
        "object": Model(),
        "function": add,
        "decorated": batch(lambda a: [a]),
        **{name: getattr(Model(), name) for name in ("method", "coroutine", "generator", "stream")},
    }
    running = triton(*(model(name, function, [A]) for name, function in kinds.items()))
    assert {name: ask(running, name) for name in kinds} == {name: [1] for name in kinds}


def test_each_callable_of_a_sequence_is_an_instance_with_a_thread(triton):
    meeting = threading.Barrier(2)
    threads = set()

    def function(requests):
        meeting.wait(30)  # both run at one time
        threads.add(threading.get_ident())
        return add(requests)

    running = triton(model("m", [function, function], config=ModelConfig(batcher=None)))
    clients = [threading.Thread(target=ask, args=(running,)) for _ in range(2)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert len(threads) == 2


def test_optional_inputs_that_were_left_out_are_no_keys(triton):
    running = triton(model("m", lambda requests: [{"o": np.array([[len(each)]], np.float32)} for each in requests]))
    assert ask(running, a=ONE) == [1]
    assert ask(running, a=ONE, b=ONE) == [2]


def test_parameters_and_forwarded_headers_come_with_the_request(triton):
    seen = []

    def function(requests):
        seen.extend(request.parameters for request in requests)
        return add(requests)

    running = triton(model("m", function), http_header_forward_pattern="x-.*")
    ask(running)
    with ModelClient(http(running), "m") as client:
        client.infer_sample(ONE, parameters={"n": 1, "t": "x", "b": True}, headers={"x-key": 5, "other": "y"})
    assert seen == [{}, {"n": 1, "t": "x", "b": True, "x-key": "5"}]


def test_inputs_come_in_the_order_of_the_model_and_text_as_bytes(triton):
    def function(requests):
        number, text = requests[0].values()
        assert text.dtype == object
        return [{"o": number, "text": np.array([["ä" + text[0, 0].decode()]])}]

    tensors = [Tensor(name="number", shape=(1,), dtype=np.float32), Tensor(name="text", shape=(1,), dtype=bytes)]
    running = triton(model("m", function, tensors, [O, tensors[1]]))
    with ModelClient(http(running), "m") as client:
        answer = client.infer_sample(text=np.array([b"x"]), number=ONE)
    assert answer["text"].tolist() == ["äx".encode()]


def test_results_are_cast_and_unknown_outputs_dropped_where_it_is_not_strict(triton, caplog):
    def function(requests):
        return [{"o": request["a"].astype(np.float64), "other": request["a"]} for request in requests]

    running = triton(model("m", function), model("strict", function, strict=True))
    with ModelClient(http(running), "m") as client:
        answers = [client.infer_sample(ONE) for _ in range(2)]
    for answer in answers:
        assert {name: array.dtype for name, array in answer.items()} == {"o": np.float32}
    said = [each.getMessage() for each in caplog.records if "'other'" in each.getMessage()]
    assert len(said) == 1 and "outputs of the model are 'o'; bind it with strict=True" in said[0]
    with pytest.raises(PyTritonClientInferenceServerError, match="Returned output `o` for model `strict` has invalid"):
        ask(running, "strict")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda requests: tuple(add(requests)), "must be list of response dicts with numpy arrays"),
        (lambda requests: [], "does not match number of requests"),
        (fail, "division by zero"),
        (count_up, "Exactly one result must be yielded .* there is a second one"),
        (lambda requests: (item for item in ()), "Exactly one result must be yielded .* there is none"),
    ],
)
def test_what_goes_wrong_is_the_clients_error_and_the_server_goes_on(triton, function, message):
    running = triton(model("m", function), model("fine", add))
    with pytest.raises(PyTritonClientInferenceServerError, match=message):
        ask(running)
    assert ask(running, "fine") == [1]
    assert running.is_alive()


def test_models_without_batching_have_no_batch_dimension(triton):
    shapes = []

    def function(requests):
        shapes.append(requests[0]["a"].shape)
        return add(requests)

    running = triton(model("m", function, config=ModelConfig(batching=False)))
    assert ask(running) == [1]
    assert shapes == [(1,)]


def test_equal_requests_are_answered_from_the_cache(triton):
    calls = []

    def function(requests):
        calls.append(len(requests))
        return add(requests)

    running = triton(
        model("m", function, config=ModelConfig(response_cache=True)), cache_config=[f"local,size={1024 * 1024}"]
    )
    assert [ask(running) for _ in range(10)] == [[1]] * 10
    assert calls == [1]


def test_the_configuration_says_what_was_bound(triton):
    running = triton(model("m", [add, add], config=ModelConfig(max_batch_size=16, response_cache=True)))
    with ModelClient(http(running), "m") as client:
        config = client._model.config()
    assert config["backend"] == "python"
    assert config["max_batch_size"] == 16
    assert config["response_cache"] == {"enable": True}
    assert [group["count"] for group in config["instance_group"]] == [2]


# ---- warm-up


def test_all_callables_are_warmed_up_before_the_model_is_loaded(triton):
    seen = []

    def warm(name):
        def function(requests):
            seen.append((name, {key: array.shape for key, array in requests[0].items()}))
            return add(requests)

        return function

    spec = WarmupInput(np.float32, (1,), zero_data=True)
    warmup = ModelWarmup("w", 2, {"a": spec}, count=2)
    triton(model("m", [warm("first"), warm("second")], config=ModelConfig(model_warmup=[warmup])))
    assert seen == [(name, {"a": (2, 1)}) for name in ("first", "first", "second", "second")]


def test_a_warm_up_that_fails_is_logged_and_coroutines_run(triton, caplog):
    ran = []

    async def function(requests):
        ran.append(len(requests))
        return add(requests)

    warmup = [ModelWarmup("w", 1, {"a": WarmupInput(np.float32, (1,), random_data=True)}, count=1)]
    config = ModelConfig(model_warmup=warmup)
    running = triton(model("m", function, config=config), model("broken", fail, config=config))
    assert ran == [1]
    assert "model 'broken': a warm-up has failed" in caplog.text
    assert running.is_alive()


# ---- life


def test_a_server_lives_from_run_to_stop(tmp_path):
    triton = server(workspace=tmp_path / "work")
    assert (triton.is_alive(), triton.is_connected()) == (False, False)
    triton.bind(**model("m", add))
    triton.run()
    triton.run()
    assert (triton.is_alive(), triton.is_connected()) == (True, True)
    triton.bind(**model("later", add))
    assert ask(triton, "later") == [1]
    address = triton.http_address
    assert triton.stop()
    assert not triton.stop()
    assert (triton.is_alive(), triton.is_connected()) == (False, False)
    assert not (tmp_path / "work").exists()
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(f"http://{address}/v2")


def test_a_start_that_fails_leaves_nothing_and_may_be_tried_again(tmp_path):
    made = server(workspace=tmp_path / "work", security=TritonSecurityConfig(access_token=TOKEN))
    made.bind(**model("m", add))
    made.bind(**model("m", add, model_version=2))  # two versions of one name are refused when they are loaded
    for _ in range(2):
        with pytest.raises(PyTritonRuntimeError, match="model 'm' version 2 has a name that is served"):
            made.run()  # the second time, too, it is version 2 that fails: version 1 was let go of
        assert not made.is_connected() and made._server is None
    made.stop()


def test_a_server_that_was_stopped_runs_again(triton):
    running = triton(model("m", add))
    running.stop()
    running.run()
    assert ask(running) == [1]
    assert status(running, "/v2/models/m/stats") == 403


def test_stopping_what_never_ran_removes_its_workspace(tmp_path):
    triton = server(workspace=Workspace(tmp_path / "work"))
    assert (tmp_path / "work" / "model-store").is_dir()
    assert not triton.stop()
    assert not (tmp_path / "work").exists()


def test_in_a_with_block_models_are_loaded_as_they_are_bound(tmp_path):
    with server(workspace=tmp_path / "work") as triton:
        triton.bind(**model("m", add))
        assert ask(triton) == [1]
        triton.run()
    assert not triton.is_alive()


def test_a_policy_may_leave_the_start_to_run(tmp_path):
    triton = server(workspace=tmp_path / "work")
    triton._policy = TritonLifecyclePolicy(launch_triton_on_startup=False)
    with triton:
        assert not triton.is_alive()
        triton.bind(**model("m", add))
        triton.run()
        assert ask(triton) == [1]


def test_serve_returns_when_another_thread_stops_it(tmp_path):
    triton = server(workspace=tmp_path / "work")
    served = threading.Event()
    triton.bind(**model("m", lambda requests: served.set() or add(requests)))
    thread = threading.Thread(target=triton.serve)
    thread.start()
    wait_until(triton.is_connected)
    assert ask(triton) == [1]
    assert triton.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert served.is_set()


def test_several_servers_live_in_one_process(triton):
    first, second = [triton(model("m", add), workspace=name) for name in ("first", "second")]
    assert first.http_address != second.http_address
    assert ask(first) == ask(second) == [1]
    first.stop()
    assert ask(second) == [1]


def test_it_starts_where_an_event_loop_runs(triton):
    async def go():
        running = triton(model("m", add))
        return await asyncio.get_running_loop().run_in_executor(None, ask, running)

    assert asyncio.run(go()) == [1]


def test_an_error_that_nobody_recovers_from_stops_the_server(triton):
    def function(requests):
        raise PyTritonUnrecoverableError("out of memory")

    running = triton(model("m", function))
    serving = threading.Thread(target=running.serve)
    serving.start()
    with pytest.raises(PyTritonClientInferenceServerError, match="out of memory"):
        ask(running)
    serving.join(60)
    assert not serving.is_alive()
    assert not running.is_alive()


def test_the_end_of_the_server_ends_serve(triton):
    running = triton(model("m", add))
    serving = threading.Thread(target=running.serve)
    serving.start()
    running._server.stop()
    serving.join(60)
    assert not serving.is_alive()
    assert not running.is_connected()


# ---- security, logs


def test_calls_that_change_or_tell_something_need_the_token(triton):
    running = triton(model("m", add))
    assert status(running, "/v2/models/m/stats") == 403
    assert status(running, "/v2/models/m/stats", **{"triton-access-token": TOKEN}) == 200
    assert status(running, "/v2/health/ready") == 200
    assert running.get_access_token() == TOKEN


def test_the_token_is_not_on_the_command_line(triton):
    running = triton(model("m", add))
    with open(f"/proc/{running._server.pid}/cmdline", "rb") as file:
        assert TOKEN.encode() not in file.read()


def test_nothing_may_be_restricted(triton):
    running = triton(model("m", add), security=TritonSecurityConfig(restricted_endpoints=[]))
    assert status(running, "/v2/models/m/stats") == 200
    assert running.get_access_token() is None


@pytest.mark.parametrize("level", [0, 1])
def test_verbose_logs_are_warned_of(triton, caplog, level):
    with caplog.at_level(logging.INFO):
        triton(model("m", add), log_verbose=level).stop()
    warnings = [text for text in caplog.messages if "running with enabled verbose logs" in text]
    assert len(warnings) == 2 * level
    assert all("It may affect inference performance." in text for text in warnings)
    assert "/v2/models/m/infer" in caplog.text
    assert "SIGINT" in caplog.text
