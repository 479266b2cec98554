"""Steps of scikit-learn, in a process of their own: estimators as they are, in ONNX, and forests of treelite.

Layer 5 (convert).
"""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from tisfast.client.arrays import datatype_of
from tisfast.convert.onnx_graphs import rename_outputs
from tisfast.convert.onnx_steps import signature_of, write_fp16
from tisfast.convert.references import Array, answer, given_samples
from tisfast.convert.signature import Signature, Tensor
from tisfast.errors import BadRequest

METHODS: Final = ("predict", "predict_proba", "transform")
"""That the sklearn backend answers with, where nothing else is asked for."""
FOREST_INPUT, FOREST_OUTPUT = "input__0", "output__0"
ZIP: Final = b"PK\x03\x04"
HARMLESS: Final = ("numpy.dtype",)
"""Types that skops calls unknown, and that run nothing."""
OPSET: Final = 18
MODULES: Final = "*.py"


def opened(request: Mapping[str, Any]) -> Any:
    """The estimator.  Raises BadRequest for a file of skops with types that nobody has allowed."""
    source = Path(request["source"])
    if request["allow_pickled"]:
        sys.path.append(str(source.parent))  # classes of the model's own lie beside it, as for the backend
    if not _is_skops(source):
        if not request["allow_pickled"]:  # whatever its name ends in
            raise BadRequest(f"{source} can run code when it is read: if you trust it, add --allow-pickled-models")
        return importlib.import_module("joblib").load(source)
    unknown = _unknown_types(source)
    if unknown and not request["allow_pickled"]:
        raise BadRequest(
            f"{source} has types that skops does not know, and that could run code: {', '.join(unknown)}; if you trust "
            "them, add --allow-pickled-models"
        )
    return importlib.import_module("skops.io").load(source, trusted=[*unknown, *HARMLESS])


def _is_skops(source: Path) -> bool:
    with source.open("rb") as file:
        return file.read(len(ZIP)) == ZIP


def _unknown_types(source: Path) -> list[str]:
    found = importlib.import_module("skops.io").get_untrusted_types(file=source)
    return sorted(set(found) - set(HARMLESS))


def reference(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What its methods answer."""
    samples = given_samples(request)
    estimator = opened(request)
    methods = [each for each in METHODS if callable(getattr(estimator, each, None))]
    if not methods:
        raise BadRequest(f"{request['text']} holds a {type(estimator).__name__}, without any of {', '.join(METHODS)}")
    samples = samples or [_drawn(request, estimator)]

    def run(feeds: dict[str, Array]) -> dict[str, Array]:
        (table,) = feeds.values()
        return {method: _answered(getattr(estimator, method)(table), method) for method in methods}

    return answer(request, folder, _signature(samples, run), samples, run)


def copy(request: Mapping[str, Any], _: Path) -> dict[str, Any]:
    """The file as it is, and modules beside it where code may run; the backend is told of types unknown to skops."""
    source = Path(request["source"])
    shutil.copyfile(source, request["target"])
    for each in source.parent.glob(MODULES) if request["allow_pickled"] else ():
        shutil.copyfile(each, Path(request["target"]).parent / each.name)
    unknown = _unknown_types(source) if _is_skops(source) else []
    parameters = {"trusted_types": {"string_value": ",".join(unknown)}} if unknown else {}
    return {"signature": request["signature"], "inputs": {}, "outputs": {}, "parameters": parameters}


def onnx(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A graph by skl2onnx, whose outputs are called as the methods; fp16: by ONNX Runtime's transformation of it."""
    half = request["precision"] == "fp16"
    target = folder / "whole.onnx" if half else Path(request["target"])
    _write_onnx(request, target)
    if half:
        write_fp16(target, Path(request["target"]))
    session = importlib.import_module("onnxruntime").InferenceSession(request["target"])
    # Types and shapes of outputs are the graph's own: FP32 where the estimator answers FP64.
    return {"signature": signature_of(session).document(), "inputs": {}, "outputs": {}, "parameters": {}}


def _write_onnx(request: Mapping[str, Any], target: Path) -> None:
    skl2onnx = importlib.import_module("skl2onnx")
    types = importlib.import_module("skl2onnx.common.data_types")
    estimator, signature = opened(request), Signature.read(request["signature"])
    (table,) = signature.inputs
    of = {"FP32": types.FloatTensorType, "FP64": types.DoubleTensorType, "INT64": types.Int64TensorType}
    if table.datatype not in of:
        raise BadRequest(f"skl2onnx is asked for tables of {', '.join(of)}, and the samples are {table.datatype}")
    options = {id(estimator): {"zipmap": False}} if hasattr(estimator, "predict_proba") else None
    made = skl2onnx.convert_sklearn(
        estimator, initial_types=[(table.name, of[table.datatype]([None, table.dims[1]]))], options=options,
        target_opset=OPSET,
    )  # fmt: skip
    # The outputs come in the order of the methods.
    rename_outputs(made.graph, [each.name for each in signature.outputs])
    target.write_bytes(made.SerializeToString())


def forest(request: Mapping[str, Any], _: Path) -> dict[str, Any]:
    """A checkpoint of treelite, for the fil backend: scores of a classifier, values of a regressor, in FP32."""
    treelite = importlib.import_module("treelite")
    estimator, signature = opened(request), Signature.read(request["signature"])
    treelite.sklearn.import_model(estimator).serialize(request["target"])
    (table,) = signature.inputs
    scores = {each.name: each for each in signature.outputs}.get("predict_proba")
    method = "predict" if scores is None else "predict_proba"
    dims = (-1, 1) if scores is None else scores.dims
    served = Signature(
        (Tensor(FOREST_INPUT, "FP32", table.dims),), (Tensor(FOREST_OUTPUT, "FP32", dims),), signature.batches
    )
    parameters = {} if scores is None else {"predict_proba": {"string_value": "true"}}
    return {
        "signature": served.document(),
        "inputs": {table.name: FOREST_INPUT},
        "outputs": {method: FOREST_OUTPUT},
        "parameters": parameters,
    }


# ---- parts


def _drawn(request: Mapping[str, Any], estimator: Any) -> dict[str, Array]:
    columns = getattr(estimator, "n_features_in_", None)
    if columns is None:
        raise BadRequest(f"{request['text']} does not tell how many columns it has: give --samples FILE.npz")
    return {"X": np.random.default_rng(0).standard_normal((8, columns)).astype(np.float32)}


def _signature(samples: list[dict[str, Array]], run: Any) -> Signature:
    tables = [next(iter(each.values())) for each in samples]
    numbers = all(each.ndim == 2 and each.dtype.kind in "iuf" for each in tables)
    if not numbers or any(len(each) != 1 for each in samples):
        raise BadRequest(
            "the samples of scikit-learn's estimators are one table of numbers, shaped [rows, columns]; those with "
            "columns of several kinds are served as they are (docs/sklearn.md) and not converted"
        )
    (name,) = samples[0]
    found = run({name: tables[0]})
    outputs = tuple(Tensor(key, datatype_of(each), (-1, *each.shape[1:])) for key, each in found.items())
    return Signature((Tensor(name, datatype_of(tables[0]), (-1, tables[0].shape[1])),), outputs, True)


def _answered(found: Any, method: str) -> Array:
    if hasattr(found, "toarray"):
        found = found.toarray()
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "biufSUO":
        raise BadRequest(f"{method} answers a {type(found).__name__}, and one array of numbers or texts is compared")
    return found.reshape(-1, 1) if found.ndim == 1 else found  # as the backend answers
