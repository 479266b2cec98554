"""The OpenAPI document: every route, every way to write its path; examples that fit the model."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.operations.helpers import Served, ask, registry
from tisfast import tuning
from tisfast.operations import openapi
from tisfast.operations.routes import ROUTES, Routes
from tisfast.operations.service import Service

SERVER = {"name": "triton", "version": "1.0"}


def test_optional_parts_and_alternatives_are_written_out():
    assert openapi.templates(r"/v2/(?P<family>a|b)x(?:/region/(?P<region>[^/]+))?/(?:un)?do") == [
        *("/v2/bx/do", "/v2/bx/undo", "/v2/bx/region/{region}/do", "/v2/bx/region/{region}/undo"),
        *("/v2/ax/do", "/v2/ax/undo", "/v2/ax/region/{region}/do", "/v2/ax/region/{region}/undo"),
    ]


def test_a_segment_without_a_name_takes_that_of_the_word_before():
    assert openapi.templates(r"/v2/repository/[^/]+/models/[^/]+/load") == [
        "/v2/repository/{repository}/models/{model}/load"
    ]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.pattern.pattern)
def test_each_path_of_the_document_is_of_its_route(route):
    document = openapi.document(openapi.operations(ROUTES), SERVER)
    for path in openapi.templates(route.pattern.pattern):
        assert route.pattern.fullmatch(path.replace("{version}", "1").replace("{", "").replace("}", ""))
        methods = [method for other in ROUTES if other.pattern == route.pattern for method in other.methods]
        assert set(document["paths"][path]) == {method.lower() for method in methods}


def test_operation_ids_are_unique():
    paths = openapi.document(openapi.operations(ROUTES), SERVER)["paths"]
    ids = [operation["operationId"] for methods in paths.values() for operation in methods.values()]
    assert len(set(ids)) == len(ids)


def test_the_example_of_a_model_names_its_inputs_and_fits_their_shapes():
    inputs = [
        {"name": "A", "datatype": "FP32", "shape": [-1, 3]},
        {"name": "B", "datatype": "BYTES", "shape": [1]},
    ]
    assert openapi.infer_example(inputs) == {
        "inputs": [
            {"name": "A", "shape": [1, 3], "datatype": "FP32", "data": [0, 0, 0]},
            {"name": "B", "shape": [1], "datatype": "BYTES", "data": [""]},
        ]
    }
    assert openapi.generate_example(inputs) == {"A": [0, 0, 0], "B": ""}


def test_a_type_without_json_form_has_no_example():
    assert openapi.infer_example([{"name": "A", "datatype": "FP16", "shape": [1]}]) is None
    assert openapi.generate_example([{"name": "A", "datatype": "FP16", "shape": [1]}]) is None


def test_a_large_tensor_has_no_example():
    inputs = [{"name": "A", "datatype": "FP32", "shape": [-1, 1 << 20, 1 << 20]}]
    assert openapi.infer_example(inputs) is None and openapi.generate_example(inputs) is None


MODEL = {
    "name": "m",
    "versions": ["1"],
    "inputs": [{"name": n, "datatype": d, "shape": [1]} for n, d in (("A", "INT32"), ("B", "BF16"))],
    "outputs": [],
}


def posts(config):
    """What a model's document says of its three ways to be asked."""
    paths = openapi.model_document(openapi.operations(ROUTES), SERVER, MODEL, config)["paths"]
    return [paths[f"/v2/models/m/{verb}"]["post"] for verb in ("infer", "generate", "generate_stream")]


def example_of(post):
    return post["requestBody"]["content"]["application/json"].get("example")


def test_an_optional_input_without_json_form_is_left_out_of_examples():
    infer, generate, stream = posts({"input": [{"name": "B", "optional": True}]})
    assert [tensor["name"] for tensor in example_of(infer)["inputs"]] == ["A"]
    assert example_of(generate) == example_of(stream) == {"A": 0}
    assert [example_of(post) for post in posts({"input": [{"name": "B"}]})] == [None] * 3


def test_a_decoupled_model_is_documented_as_it_answers():
    optional = [{"name": "B", "optional": True}]
    infer, generate, stream = posts({"input": optional, "model_transaction_policy": {"decoupled": True}})
    assert list(infer["responses"]["200"]["content"]) == ["text/event-stream"]
    assert example_of(infer) and example_of(stream) and example_of(generate) is None
    infer = posts({"input": optional})[0]
    assert list(infer["responses"]["200"]["content"]) == ["application/json", "text/event-stream"]


def served(*paths: str):
    """The answers of a server, however many turns of its loop they take."""
    routes = Routes(Service(registry(Served("m")), server_id="test", server_version="0"))

    async def scenario():
        made = [routes.handle(ask("GET", path), b"") for path in paths]
        return [await each if asyncio.isfuture(each) else each for each in made]

    return asyncio.run(scenario())


def test_both_documents_are_served():
    answers = served("/v2/docs", "/v2/models/m/docs", "/v2/models/nobody/docs")
    whole, one = (json.loads(answer.body) for answer in answers[:2])
    assert whole["openapi"] == one["openapi"] == "3.1.0"
    assert "/v2/models/m/infer" in one["paths"]
    assert "/v2/models/{model}/infer" in whole["paths"]
    assert answers[2].status == 404


def test_a_document_is_made_of_small_pieces():
    """Of which others have their turn in between: operations/slices.py."""
    assert len(list(openapi.operations(ROUTES))) > 5 * tuning.LOOP_SLICE_PIECES
