"""Configurations that guests bring: what is theirs to say, and what only a folder could have."""

from __future__ import annotations

import json

import pytest

from tisfast import limits
from tisfast.config.backends import BUILT_IN
from tisfast.errors import TisError
from tisfast.models.guest_models import GuestChecks

TENSORS = {
    "input": [{"name": "A", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "B", "data_type": "TYPE_FP32", "dims": [-1]}],
}
PBTXT = """
input { name: "A" data_type: TYPE_FP32 dims: -1 }
output { name: "B" data_type: TYPE_FP32 dims: -1 }
"""


def read(config, form: str = "json", instances: object = 0, name: str = "m"):
    text = config if isinstance(config, str) else json.dumps(config)
    return GuestChecks((), BUILT_IN).read(name, {"config": text, "form": form, "instances": instances})


@pytest.mark.parametrize(("config", "form"), [(TENSORS, "json"), (PBTXT, "pbtxt")])
def test_both_forms_are_read_and_the_backend_is_the_guests_own_affair(config, form):
    found = read(config, form)
    assert (found.name, found.backend, [tensor.name for tensor in found.inputs]) == ("m", "python", ["A"])
    assert read({**TENSORS, "backend": "onnxruntime", "platform": "onnxruntime_onnx"}).backend == "python"


@pytest.mark.parametrize(("said", "given", "count"), [(0, 1, 1), (0, 3, 3), (2, 3, 2), (2, 0, 2)])
def test_instances_are_as_many_as_the_guest_says_or_its_configuration(said, given, count):
    group = {"instance_group": [{"count": given, "kind": "KIND_CPU"}]} if given else {}
    assert len(read({**TENSORS, **group}, instances=said).instances) == count


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({**TENSORS, "name": "other"}, "other"),
        ({**TENSORS, "platform": "ensemble"}, "is an ensemble"),
        ({**TENSORS, "parameters": {"EXECUTION_ENV_PATH": {"string_value": "e.tar.gz"}}}, "EXECUTION_ENV_PATH"),
        ({**TENSORS, "output": [{**TENSORS["output"][0], "label_filename": "labels.txt"}]}, "labels.txt"),
        (
            {
                **TENSORS,
                "model_warmup": [
                    {
                        "name": "w", "batch_size": 1,
                        "inputs": {"A": {"data_type": "TYPE_FP32", "dims": [1], "input_data_file": "raw"}},
                    }
                ],
            },
            "raw",
        ),
        ("{", "m"),
        ("x" * (limits.CONFIG_BYTES_MAX + 1), "are the limit"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_a_sentence(config, text):
    with pytest.raises(TisError, match=text):
        read(config)


@pytest.mark.parametrize("order", [{}, {"config": 5}, {"form": "yaml"}, {"instances": "2"}, {"instances": None}])
def test_an_order_of_no_known_form_is_refused(order):
    whole = {"config": json.dumps(TENSORS), "form": "json", "instances": 0}
    with pytest.raises(TisError, match="form that is known"):
        GuestChecks((), BUILT_IN).read("m", {**whole, **order} if order else {})


@pytest.mark.parametrize("instances", [limits.GUEST_INSTANCES_MAX + 1, 1 << 80])
def test_instances_are_bounded(instances):
    with pytest.raises(TisError, match=f"{limits.GUEST_INSTANCES_MAX} are the limit"):
        read(TENSORS, instances=instances)
