"""What callables may return."""

import numpy as np
import pytest

from tisfast.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from tisfast.pytriton.proxy.types import Request, Response
from tisfast.pytriton.proxy.validators import TritonResultsValidator

FLOAT = np.ones((1, 1), np.float32)
LIST_OF_DICTS = "Outputs returned by `m` model callable must be list of response dicts with numpy arrays."


def validate(responses, *, strict=False, requests=1, **config):
    outputs = [TensorSpec("o", (1,), np.float32), TensorSpec("text", (-1,), bytes)]
    model = TritonModelConfig(**({"model_name": "m", "outputs": outputs} | config))
    TritonResultsValidator(model, strict).validate_responses([Request({})] * requests, responses)


@pytest.mark.parametrize(
    ("responses", "message"),
    [
        (({"o": FLOAT},), LIST_OF_DICTS + " Got outputs="),
        (None, LIST_OF_DICTS + " Got outputs=None instead."),
        ([[1]], LIST_OF_DICTS + " Got response=[1] instead."),
        ([Response({"o": FLOAT})], LIST_OF_DICTS + " Got response="),
        ([{1: FLOAT}], "Not all keys returned by `m` model callable are string"),
        ([{"o": [1]}], "Not all values returned by `m` model callable are numpy arrays"),
        ([{"o": np.float32(1)}], "Not all values returned by `m` model callable are numpy arrays"),
        ([{"o": np.array([1j])}], "Only bool, numeric, string, unicode and object arrays are supported by Triton"),
        ([{"o": np.array(["x"], object)}], "Use string/byte-string instead of object for passing string"),
        (
            [{"o": np.array([1], object)}],
            "Only bytes as objects dtype are supported by PyTriton. Returned `o` from `m`",
        ),
        (
            [{"o": FLOAT}] * 2,
            "Number of outputs returned by `m` inference callable (2) does not match number of requests (1)",
        ),
    ],
)
def test_what_is_no_result_is_refused(responses, message):
    with pytest.raises(ValueError) as caught:
        validate(responses)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "responses",
    [
        [{"other": FLOAT}],
        [{"o": np.ones(3, int)}],
        [{}],
        [{"o": np.array([b"x"], object)}],
        [{"o": np.array([], object)}],
    ],
)
def test_names_types_and_shapes_are_free_where_it_is_not_strict(responses):
    validate(responses)


@pytest.mark.parametrize(
    ("response", "message"),
    [
        ({"other": FLOAT}, "Returned output `other` is not defined in model config for model `m`."),
        (
            {"o": FLOAT.astype(int)},
            "Returned output `o` for model `m` has invalid type. Returned: int64 (i). "
            "Expected: <class 'numpy.float32'>.",
        ),
        ({"o": FLOAT.astype(np.float64)}, "Returned output `o` for model `m` has invalid type. Returned: float64 (f)."),
        ({"text": FLOAT}, "Returned output `text` for model `m` has invalid type."),
        ({"o": FLOAT[0]}, "Returned output `o` for model `m` has invalid shapes. Returned: (). Expected: (1,)."),
        (
            {"o": np.ones((1, 2), np.float32)},
            "Returned output `o` for model `m` has invalid shapes at one or more positions. Returned: (2,). "
            "Expected: (1,).",
        ),
    ],
)
def test_strictly_results_are_as_the_configuration_says(response, message):
    with pytest.raises(ValueError) as caught:
        validate([response], strict=True)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("dtype", ["S1", "U1", object])
def test_all_kinds_of_strings_are_strings(dtype):
    validate([{"text": np.array([[b"x", b"y"]]).astype(dtype)}], strict=True)


def test_without_batching_the_shape_is_whole():
    validate([{"o": FLOAT[0]}], strict=True, batching=False)
    with pytest.raises(ValueError, match="invalid shapes"):
        validate([{"o": FLOAT}], strict=True, batching=False)


def test_a_request_is_a_mapping_of_its_inputs():
    request = Request({"a": FLOAT, "b": FLOAT}, parameters={"x": 1})
    del request["a"]
    request["c"] = FLOAT
    assert list(request.keys()) == ["b", "c"]
    assert "a" not in request
    assert len(request) == 2
    first, second = request.values()
    assert first is FLOAT
    assert second is FLOAT
    assert request.parameters == {"x": 1}
