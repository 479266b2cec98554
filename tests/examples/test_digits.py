"""The digits model without a server: tested like any Python, with the real triton_python_backend_utils."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
VERSION = EXAMPLES / "models/digits/1"
OWN_MODULES = ("model", "network")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The model, initialised as the server does it."""
    for folder in (ROOT / "workers", VERSION):
        monkeypatch.syspath_prepend(str(folder))
    model = importlib.import_module("model").TritonPythonModel()
    model.initialize({"model_repository": str(VERSION.parent), "model_version": VERSION.name})
    yield model
    for name in OWN_MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def held_out() -> tuple[np.ndarray, np.ndarray]:
    with np.load(EXAMPLES / "digits_heldout.npz") as arrays:
        return arrays["images"], arrays["digits"]


def request(images: np.ndarray) -> Any:
    """An inference request as the server would hand it to the model."""
    import triton_python_backend_utils as pb_utils

    return pb_utils.InferenceRequest(
        inputs=[pb_utils.Tensor("IMAGE", images)],
        requested_output_names=["DIGIT", "PROBABILITIES"],
        model_name="digits",
    )


def outputs(response: Any) -> dict[str, np.ndarray]:
    assert not response.has_error()
    return {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}


def test_at_least_97_percent_of_the_held_out_scans_are_read(
    model: Any, held_out: tuple[np.ndarray, np.ndarray]
) -> None:
    images, digits = held_out
    (response,) = model.execute([request(images)])
    assert (outputs(response)["DIGIT"][:, 0] == digits).mean() >= 0.97


def test_requests_of_one_batch_get_their_own_answers(model: Any, held_out: tuple[np.ndarray, np.ndarray]) -> None:
    images, _ = held_out
    together = [outputs(r) for r in model.execute([request(images[:1]), request(images[1:4]), request(images[4:5])])]
    assert [len(each["DIGIT"]) for each in together] == [1, 3, 1]
    alone = [outputs(model.execute([request(images[i : i + 1])])[0])["PROBABILITIES"] for i in range(5)]
    np.testing.assert_allclose(np.concatenate([e["PROBABILITIES"] for e in together]), np.concatenate(alone), rtol=1e-5)


def test_types_and_shapes_are_those_of_the_configuration(model: Any, held_out: tuple[np.ndarray, np.ndarray]) -> None:
    found = outputs(model.execute([request(held_out[0][:2])])[0])
    assert {name: (array.dtype, array.shape) for name, array in found.items()} == {
        "DIGIT": (np.int32, (2, 1)),
        "PROBABILITIES": (np.float32, (2, 10)),
    }
    np.testing.assert_allclose(found["PROBABILITIES"].sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("scale", [2, 5])
def test_size_and_place_of_the_sheet_do_not_matter(
    model: Any, held_out: tuple[np.ndarray, np.ndarray], scale: int
) -> None:
    images = held_out[0][:20]
    large = np.pad(images.repeat(scale, axis=1).repeat(scale, axis=2), ((0, 0), (3, 9), (7, 0)))
    small, big = (outputs(model.execute([request(each)])[0])["DIGIT"] for each in (images, large))
    assert (small == big).all()


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 50), (1, 0, 8)])
def test_an_empty_sheet_gets_an_answer(model: Any, shape: tuple[int, int, int]) -> None:
    found = outputs(model.execute([request(np.zeros(shape, np.uint8))])[0])
    assert np.isfinite(found["PROBABILITIES"]).all()
