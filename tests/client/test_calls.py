"""What a client asks a real server, over both protocols: the same calls, the same answers."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

from tests.client.helpers import recorded
from tests.client.models import TYPES
from tests.descriptors import open_descriptors
from tests.system.helpers import ADD_ONE
from tisfast.client import (
    BadRequest,
    Classification,
    Client,
    Internal,
    NotFound,
    Result,
    TimedOut,
    TisError,
    Unsupported,
    classification,
)

A = np.arange(4, dtype=np.float32)
LABELS = ("cat", "", "hot dog")  # of the model `labelled`


def facts(result) -> dict:
    return json.loads(result.item())


def test_a_model_is_called_by_position_and_by_name(client):
    model = client.model("add_sub")
    total, difference = model(A, A)
    assert total.tolist() == [0, 2, 4, 6] and difference.tolist() == [0] * 4
    result = model(INPUT1=A, INPUT0=2 * A)
    assert isinstance(result, Result) and result.names == ("OUTPUT0", "OUTPUT1")
    assert result["OUTPUT1"] is result.OUTPUT1 is result[1] and result.OUTPUT1.tolist() == A.tolist()
    assert (result.model, result.version, result.keys()) == ("add_sub", "1", ("OUTPUT0", "OUTPUT1"))
    assert model(A, INPUT1=A).asdict()["OUTPUT0"].tolist() == [0, 2, 4, 6]


def test_one_output_is_the_array_itself_by_position_and_a_result_by_name(client):
    model = client.model("add_one")
    assert model(A).tolist() == [1, 2, 3, 4]
    assert model(A=A).B.tolist() == [1, 2, 3, 4]
    assert model.infer([A])["B"].tolist() == model.infer({"A": A})["B"].tolist() == [1, 2, 3, 4]


def test_a_name_without_utf_8_is_refused_before_it_is_sent(client):
    half = "\ud800"
    for call in (client.model(half), client.model("add_sub", version=half)):
        with pytest.raises(BadRequest, match="ud800"):
            call(A, A)
    for call in (client.load, client.unload):
        with pytest.raises(BadRequest, match="ud800|surrogate"):
            call(half)


def test_lists_and_numbers_become_what_the_model_wants(client):
    assert client.model("add_one")([1, 2]).tolist() == [2, 3]
    assert client.model("add_one")(np.mean(A)).tolist() == [2.5]
    assert client.model("types")(IN_INT8=[-1, 2], IN_STRING=["a", "ü"])[1].tolist() == [b"a", "ü".encode()]


@pytest.mark.parametrize(
    ("values", "named", "said"),
    [
        ((A,), {}, "'INPUT1' is missing"),
        ((A, A, A), {}, r"2 inputs \(INPUT0: FP32\[4\], INPUT1: FP32\[4\]\), 3 were given"),
        ((A,), {"INPUT0": A}, "'INPUT0' of model 'add_sub' was given twice"),
        ((A, A), {"X": A}, "no input 'X', its inputs are INPUT0"),
        ((A, A.astype(np.int64)), {}, r"'INPUT1' of model 'add_sub' wants FP32 \(float32\), an array of int64"),
        ((A, A[:2]), {}, r"'INPUT1' of model 'add_sub' wants the shape \[4\] .*shape \[2\] was given"),
        ((A, "text"), {}, "'INPUT1' of model 'add_sub' wants FP32"),
        ((A, A), {"outputs": ["Y"]}, "no output 'Y', its outputs are OUTPUT0, OUTPUT1"),
        ((A, A), {"timeout": 0}, "timeout=0 must be seconds"),
    ],
)
def test_what_does_not_fit_is_said_before_it_is_sent(client, values, named, said):
    with pytest.raises(BadRequest, match=said):
        client.model("add_sub")(*values, **named)
    assert client.statistics("add_sub")[0]["inference_stats"]["fail"]["count"] == 0


def test_inputs_that_may_be_left_out_are_known_from_the_configuration(client):
    model = client.model("types")
    assert model(IN_INT32=[7]).names == ("OUT_INT32",)
    with pytest.raises(BadRequest, match="'A' is missing"):
        client.model("facts")(id="x")


def test_errors_of_the_server_have_classes(client):
    with pytest.raises(NotFound, match="none"):
        client.model("none")(A)
    with pytest.raises(Internal, match="no luck"):
        client.model("failing")(A)
    assert not client.model("none").ready() and client.model("failing").ready()


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind != "STRING"])
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_numbers_of_all_types_go_and_come_back(client, kind, count):
    dtype = {"BOOL": "?", "FP16": "f2", "FP32": "f4", "FP64": "f8"}.get(kind, kind.lower())
    array = np.arange(count).astype(dtype)
    result = client.model("types").infer({f"IN_{kind}": array})
    assert result[0].dtype == array.dtype and np.array_equal(result[0], array)


@pytest.mark.parametrize("array", [np.array(["a", "ß", ""]), np.array([b"a", b"\xff\x00"], object), np.array([b"xy"])])
def test_strings_go_and_come_back_as_bytes(client, array):
    wanted = [each.encode() if isinstance(each, str) else each for each in array.tolist()]
    assert client.model("types")(IN_STRING=array)[0].tolist() == wanted


def test_large_and_strided_arrays(client):
    array = np.random.default_rng(1).random((600, 1000)).astype(np.float32)
    assert np.array_equal(client.model("add_one")(array[:, ::7].ravel()), array[:, ::7].ravel() + 1)
    grid = client.model("add_one")(array.reshape(-1)[::2])
    assert np.array_equal(grid, array.reshape(-1)[::2] + 1)


def test_parameters_ids_and_timeouts_reach_the_model(client):
    model = client.model("facts")
    found = facts(model(A, parameters={"n": 1, "flag": True, "text": "ü"}, id="i-7", timeout=50))
    assert found["id"] == "i-7" and {"n": 1, "flag": True, "text": "ü"}.items() <= found["parameters"].items()
    assert found["timeout"] == 50_000_000
    assert facts(model(A))["timeout"] == 0
    with pytest.raises(BadRequest, match="'colour' is no option of a call"):
        model.infer({"A": A}, colour="red")


def test_an_input_that_is_named_as_an_option_is_an_input(client):
    assert facts(client.model("facts")(A=A, priority=A).FACTS)["inputs"] == ["A", "priority"]
    assert facts(client.model("facts").infer({"A": A}, priority=9).FACTS)["inputs"] == ["A"]


def test_some_outputs_and_classes(client):
    model = client.model("add_sub")
    assert model(A, A, outputs=["OUTPUT1"]).names == ("OUTPUT1",)
    found = client.model("labelled")([[1, 3, 2]], classes=2)
    assert classification(found) == [Classification(3.0, 1, LABELS[1]), Classification(2.0, 2, LABELS[2])]
    with pytest.raises(BadRequest, match="is no classification"):
        classification(np.array([1.0]))


def test_one_sample_of_a_model_with_batches(client):
    model = client.model("batched")
    assert model([[1, 2]]).tolist() == [[2, 3]]
    assert model.sample([1, 2]).tolist() == [2, 3]
    assert model.sample(A=[1, 2]).B.tolist() == [2, 3]
    assert model.sample(1).tolist() == model.sample(A=np.float32(1)).B.tolist() == [2]  # as `model(1)` without
    with pytest.raises(BadRequest, match=r"wants the shape \[-1, -1\] .*shape \[2\]"):
        model(np.zeros(2, np.float32))


def test_what_a_model_is(client):
    model = client.model("add_sub", 1)
    assert [str(each) for each in model.metadata().inputs] == ["FP32[4]", "FP32[4]"]
    assert model.metadata().platform == "python"
    assert model.config()["input"][0]["name"] == "INPUT0"
    assert model.ready() and client.ready() and client.live()
    assert client.metadata()["name"] == "triton"


def test_metadata_is_asked_once(place):
    with recorded(place.http) as (through, sent), Client(through) as client:
        model = client.model("add_sub")
        model(A, A)
        model(A, A)
        assert model.metadata() is model.metadata()
    assert (sent.count(b"GET /v2/models/add_sub"), sent.count(b"POST ")) == (1, 2)


def test_more_rows_than_a_batch_has_are_counted_with_the_way_around(client):
    with pytest.raises(BadRequest, match=r"batch-size must be <= 4 for 'batched'; 5 rows were given: model.batches"):
        client.model("batched")(np.zeros((5, 2), np.float32))


def test_a_decoupled_model_that_is_called_says_how_it_is_asked(client):
    with pytest.raises(TisError, match=r"decoupled transaction policy.*; ask it by model.stream\(...\), with a client"):
        client.model("repeat_int32")([1], [0], [0])


def test_statistics_and_the_repository(client):
    client.model("add_one")(A)
    (found,) = client.statistics("add_one")
    assert found["inference_stats"]["success"]["count"] > 0 and isinstance(found["inference_count"], int)
    assert {entry["name"] for entry in client.models()} >= {"add_one", "add_sub"}
    assert all(entry["state"] == "READY" for entry in client.models(ready=True))


def test_models_are_unloaded_and_loaded(client):
    model = client.model("labelled")
    client.unload("labelled")
    assert not model.ready()
    config = json.dumps({**model_config("labelled"), "max_batch_size": 2})
    client.load("labelled", config=config)
    assert model.ready() and model.config()["max_batch_size"] == 2
    files = {"1/model.py": ADD_ONE.replace('"A"', '"INPUT0"').replace('"B"', '"OUTPUT0"').encode()}
    client.load("labelled", config=config, files=files)
    assert model(np.zeros((1, 1), np.float32)).tolist() == [[1]]
    client.load("labelled")
    assert model.config()["max_batch_size"] == 4


def model_config(name: str) -> dict:
    tensors = {
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    }
    return {"name": name, "backend": "python", **tensors}


def test_settings_are_read_and_changed(client):
    assert client.trace_settings()["trace_rate"] == "1000"
    assert client.update_trace_settings({"trace_rate": "7"}, "add_one")["trace_rate"] == "7"
    assert client.trace_settings("add_one")["trace_rate"] == "7"
    assert client.update_trace_settings({"trace_rate": None}, "add_one")["trace_rate"] == "1000"
    assert client.update_log_settings({"log_verbose_level": 1})["log_verbose_level"] == 1
    assert client.update_log_settings({"log_verbose_level": 0})["log_verbose_level"] == 0
    assert client.log_settings()["log_verbose_level"] == 0


def test_many_threads_share_a_client(client):
    model, wrong = client.model("add_one"), []

    def ask(number: int) -> None:
        for at in range(20):
            array = np.full(3, 100 * number + at, np.float32)
            if not np.array_equal(model(array), array + 1):
                wrong.append((number, at))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_answers_of_a_decoupled_model_come_as_they_are_made(place, connect):
    model = connect(place.grpc).model("repeat_int32")
    numbers = [3, 1, 2]
    found = [(answer.OUT.item(), answer.IDX.item()) for answer in model.stream(numbers, [0, 0, 0], [0])]
    assert found == [(3, 0), (1, 1), (2, 2)]
    assert list(model.stream(np.zeros(0, np.int32), np.zeros(0, np.uint32), [0])) == []
    with model.stream(numbers, [0, 60_000, 0], [0]) as answers:
        assert next(answers).OUT.item() == 3
    assert connect(place.grpc).live()


def test_a_stream_over_http_is_refused_with_the_reason(place, connect):
    with pytest.raises(Unsupported, match="server-sent events for text only.*grpc://"):
        connect(place.http).model("repeat_int32").stream([1], [0], [0])


def test_a_timeout_ends_a_stream(place, connect):
    with pytest.raises(TimedOut):
        list(connect(place.grpc).model("repeat_int32").stream([1, 2], [0, 60_000], [0], timeout=0.2))


def test_nothing_stays_open(url):
    def ask() -> None:
        with Client(url) as client:
            threads = [threading.Thread(target=client.model("add_one"), args=(A,)) for _ in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            client.model("identity_fp32")(np.zeros(200_000, np.float32))

    ask()
    before = open_descriptors()
    ask()
    assert open_descriptors() <= before
