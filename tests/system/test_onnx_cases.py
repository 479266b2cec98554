"""The ONNX project's backend test data, served by ONNX Runtime: a sample of it here, all of it by `make test-onnx`.

A model is served, and answers what the project says, or else what ONNX Runtime alone makes of it.  Where ONNX Runtime
itself has no such operator, or a tensor is of a type that no request can carry, the model is refused with a reason.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime has no wheel for this interpreter")

from tests.system.onnx_cases import WIRE_TYPES, Case, all_cases  # noqa: E402 - what it needs is there

PARTS = 40
"""As many servers have all cases; the sample has those of one, of which no model is large."""
CHOSEN = range(PARTS) if os.environ.get("TISFAST_ONNX_WHOLE") else [20]
SERVED_SHARE_MIN = 0.7
ALIKE = {"rtol": 1e-3, "atol": 1e-5}
HALF = {"rtol": 2e-2, "atol": 2e-2}


class Bare:
    """What ONNX Runtime makes of a case without a server."""

    def __init__(self, case: Case) -> None:
        self.session, self.refusal, self._case = None, "", case
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            self.session = onnxruntime.InferenceSession(case.model, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            self.refusal = str(error)

    def run(self) -> list[Any]:
        """Its outputs.  Raises what it raises."""
        given = zip(self.session.get_inputs(), self._case.inputs, strict=False)
        feeds = {each.name: _words(value) for each, value in given if value is not None}
        return [_bytes(value) for value in self.session.run(None, feeds)]

    def unfit(self) -> str:
        """Why no server can serve it, "" where one can."""
        if self.session is None:
            return self.refusal
        known = {f"tensor({name})" for name in WIRE_TYPES.values()}
        sides = self.session.get_inputs(), self.session.get_outputs()
        other = [f"{each.name} is {each.type}" for side in sides for each in side if each.type not in known]
        other += [f"{each.name} is empty" for side in sides for each in side if 0 in each.shape]  # as in Triton
        return other[0] if other else "" if sides[0] else "it takes nothing"


class Verdict(NamedTuple):
    """Of one case.  fault: what is wrong, "" where nothing is."""

    kind: str
    fault: str = ""


@pytest.mark.parametrize("part", CHOSEN)
def test_models_answer_as_the_onnx_project_says(serve, tmp_path, connect, part):
    cases = all_cases()[part::PARTS]
    for case in cases:
        (tmp_path / "models" / case.name / "1").mkdir(parents=True)
        (tmp_path / "models" / case.name / "1/model.onnx").write_bytes(case.model)
    server = serve("--exit-on-error=false", "--strict-readiness=false").ready()
    client = connect(server, grpcclient)
    reasons = {each["name"]: each.get("reason", "") for each in server.ask("POST", "/v2/repository/index")[1]}
    verdicts = {case.name: _judged(client, case, reasons[case.name]) for case in cases}
    faults = {name: each.fault for name, each in verdicts.items() if each.fault}
    assert not faults, faults
    served = sum(each.kind != "refused" for each in verdicts.values())
    assert served > SERVED_SHARE_MIN * len(cases), {name: each.kind for name, each in verdicts.items()}
    assert not [record for record in server.log if record.get("traceback")], server.text()


def _judged(client: Any, case: Case, reason: str) -> Verdict:
    if reason:
        unfit = Bare(case).unfit()
        return Verdict("refused", "" if unfit else f"is refused: {reason}")
    try:
        found = _asked(client, case)
    except InferenceServerException as error:
        return _failed(case, error)
    if _are_alike(found, case.outputs, {"rtol": max(case.rtol, 1e-5), "atol": max(case.atol, 1e-6)}):
        return Verdict("right")
    bare = Bare(case)
    first, second = bare.run(), bare.run()
    if not _are_alike(first, second, ALIKE):
        return Verdict("random", "" if [each.shape for each in first] == [each.shape for each in found] else "shapes")
    return Verdict("as alone", "" if _are_alike(found, first, ALIKE) else f"gave {found}, alone {first}")


def _failed(case: Case, error: Exception) -> Verdict:
    try:
        Bare(case).run()
    except Exception:
        return Verdict("fails alone, too")
    return Verdict("failed", f"said {error}")


def _asked(client: Any, case: Case) -> list[Any]:
    described, tensors = client.get_model_metadata(case.name), []
    for each, value in zip(described.inputs, case.inputs, strict=False):
        if value is None:
            continue
        array = value.reshape(1) if value.ndim == 0 and len(each.shape) == 1 else value
        tensors.append(grpcclient.InferInput(each.name, list(array.shape), each.datatype))
        tensors[-1].set_data_from_numpy(array)
    answer = client.infer(case.name, tensors)
    return [answer.as_numpy(each.name) for each in described.outputs]


def _are_alike(found: list[Any], wanted: list[Any], within: dict[str, float]) -> bool:
    wanted = [each for each in wanted if each is not None]
    return len(found) == len(wanted) and all(_is_alike(*pair, within) for pair in zip(found, wanted, strict=True))


def _is_alike(found: Any, wanted: Any, within: dict[str, float]) -> bool:
    if not isinstance(wanted, np.ndarray) or (wanted.size, wanted.ndim or 1) != (found.size, found.ndim or 1):
        return False
    if wanted.dtype.name in ("float16", "bfloat16"):
        within = HALF
    wanted = wanted.reshape(found.shape)
    if found.dtype.kind in "OSU" or found.dtype.kind == "b":
        return np.array_equal(found, wanted)
    return np.allclose(found.astype(np.float64), wanted.astype(np.float64), **within, equal_nan=True)


def _words(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind != "O":
        return value
    return np.array([word.decode() for word in value.ravel()], object).reshape(value.shape)


def _bytes(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "OU":
        return value
    return np.array([str(word).encode() for word in value.ravel()], object).reshape(value.shape)
