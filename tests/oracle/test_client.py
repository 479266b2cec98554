"""tisfast.client asks the real Triton and tisfast: the same arrays, whatever type, shape, protocol and placement."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tisfast.client import BadRequest, Client, NotFound, Result
from tisfast.types import DATA_TYPES

KINDS = [kind for kind in DATA_TYPES if kind.wire not in ("BF16",)]
BIG = np.random.default_rng(5).random(200_000).astype(np.float32)


@pytest.fixture(scope="module", params=["triton", "tisfast"])
def server(request):
    return request.getfixturevalue(request.param).get()


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    port = server.http if request.param == "http" else server.grpc
    with Client(f"{request.param}://127.0.0.1:{port}") as made:
        yield made


def values(kind):
    if kind.wire == "BYTES":
        texts = st.lists(st.binary(max_size=9), max_size=5)
        return texts.map(lambda found: np.array(found, dtype=object))
    return arrays.arrays(np.dtype(kind.numpy), st.integers(0, 40))


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_all_types_go_and_come_back(client, data):
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4, unique=True))
    names = {("STRING" if kind.wire == "BYTES" else kind.wire): data.draw(values(kind)) for kind in kinds}
    found = client.model("types").infer({f"IN_{name}": array for name, array in names.items()})
    for name, array in names.items():
        came = found[f"OUT_{name}"]
        assert came.dtype == array.dtype and came.shape == array.shape
        assert came.tolist() == array.tolist() or np.array_equal(came, array, equal_nan=True)


def test_large_arrays_through_shared_memory(client):
    model = client.model("identity_fp32")
    for number in range(3):
        assert np.array_equal(model(BIG + number), BIG + number)
    assert len(client.regions()) == 1
    assert np.array_equal(model(BIG[:1000]), BIG[:1000])


def test_what_is_said_of_server_and_models(client):
    assert client.live() and client.ready() and client.metadata()["name"] == "triton"
    model = client.model("add_sub")
    assert [str(each) for each in model.metadata().inputs] == ["FP32[4]", "FP32[4]"]
    assert model.config()["input"][0]["dims"] in ([4], ["4"])
    assert model.ready() and not client.model("none").ready()
    a = np.ones(4, np.float32)
    assert isinstance(model(a, INPUT1=a), Result)
    assert model.statistics()[0]["inference_stats"]["success"]["count"] > 0
    assert "add_sub" in {entry["name"] for entry in client.models()}
    assert client.log_settings()["log_info"] is True
    assert "trace_rate" in client.trace_settings()
    with pytest.raises((NotFound, BadRequest)):
        client.model("none")(a)


def test_parameters_classes_and_batches(client):
    found = client.model("labelled")(np.array([[1, 3, 2]], np.float32), classes=1, timeout=60)
    assert found.ravel().tolist()[0].startswith(b"3")
    rows = np.arange(18, dtype=np.float32).reshape(9, 2)
    assert client.model("labelled").batches(rows, size=2)[0].tolist() == rows.tolist()


def test_no_region_is_left(server):
    with Client(f"127.0.0.1:{server.http}") as client:
        client.model("identity_fp32")(BIG)
    with Client(f"127.0.0.1:{server.http}") as client:
        assert [each for each in client.regions() if each["name"].startswith("tisfast-")] == []
