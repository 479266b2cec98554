"""Steps of scikit-learn, in a process of their own: estimators as they are, in ONNX, and forests of treelite.

Layer 5 (convert).
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from tisfast.client.arrays import datatype_of
from tisfast.convert.handed_over import copy_modules, taken
from tisfast.convert.onnx_fp16 import write_fp16
from tisfast.convert.onnx_graphs import rename_outputs
from tisfast.convert.onnx_steps import signature_of
from tisfast.convert.references import Array, answer, given_samples
from tisfast.convert.samples import texts
from tisfast.convert.signature import Signature, Tensor
from tisfast.convert.steps import shortened
from tisfast.errors import BadRequest
from tisfast.processes.nursery_process import worker_main

METHODS: Final = ("predict", "predict_proba", "transform")
"""That the sklearn backend answers with, where nothing else is asked for."""
FOREST_INPUT, FOREST_OUTPUT = "input__0", "output__0"
ZIP: Final = b"PK\x03\x04"
HARMLESS: Final = ("numpy.dtype",)
"""Types that skops calls unknown, and that run nothing."""
OPSETS: Final = {"": 18, "ai.onnx.ml": 3}
"""Of the second the newest that converters of all families write."""
MODULES: Final = "*.py"
COLUMNS_MODULE: Final = "sklearn_columns"
"""Of the backend: what an estimator was fitted on."""
LOCALE: Final = "C.UTF-8"
"""In which graphs make texts lower: ONNX Runtime's own, en_US.UTF-8, is not on every machine."""
STRING_ATTRIBUTE: Final = 3
"""Of a node, as onnx.proto numbers its types."""


Run = Callable[[dict[str, Array]], dict[str, Array]]


def opened(request: Mapping[str, Any]) -> Any:
    """The estimator.  Raises BadRequest for one that cannot be read, or has types that nobody has allowed."""
    source = Path(request["source"])
    if request["pickle"]:
        return taken(request)
    if request["allow_pickled"]:
        sys.path.append(str(source.parent))  # classes of the model's own lie beside it, as for the backend
    if not _is_skops(source):
        if not request["allow_pickled"]:  # whatever its name ends in
            raise BadRequest(f"{source} can run code when it is read: if you trust it, add --allow-pickled-models")
        try:
            return importlib.import_module("joblib").load(source)
        except Exception as error:  # a file can raise anything
            raise BadRequest(
                f"{source} cannot be read by joblib ({type(error).__name__}: {error}): it is damaged, no file of "
                "joblib, or needs a module that is not here"
            ) from error
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
    if request["no_batch"]:
        raise BadRequest(f"--no-batch: {request['text']} takes a table, whose rows are a batch")
    samples = given_samples(request)
    estimator = opened(request)
    methods = [each for each in METHODS if callable(getattr(estimator, each, None))]
    if not methods:
        raise BadRequest(f"{request['text']} holds a {type(estimator).__name__}, without any of {', '.join(METHODS)}")

    def run(feeds: dict[str, Array]) -> dict[str, Array]:
        return {method: _answered(getattr(estimator, method)(_table(feeds, estimator)), method) for method in methods}

    samples = [_columns(each, estimator) for each in samples] or [_drawn(request, estimator, run)]
    return answer(request, folder, _signature(samples, run, _reads_texts(estimator)), samples, run)


def copy(request: Mapping[str, Any], _: Path) -> dict[str, Any]:
    """The file as it is, and its modules where code may run; the backend is told of types unknown to skops."""
    source = Path(request["source"])
    shutil.copyfile(source, request["target"])
    folder = Path(request["target"]).parent
    if request["pickle"]:
        copy_modules(request, folder)
    for each in source.parent.glob(MODULES) if request["allow_pickled"] else ():
        if each.is_file():
            shutil.copyfile(each, folder / each.name)
    unknown = _unknown_types(source) if _is_skops(source) else []
    parameters = {"trusted_types": {"string_value": ",".join(unknown)}} if unknown else {}
    return {"signature": request["signature"], "inputs": {}, "outputs": {}, "parameters": parameters}


def onnx(request: Mapping[str, Any], _: Path) -> dict[str, Any]:
    """A graph by skl2onnx, whose outputs are called as the methods."""
    _write_onnx(request)
    return _loaded(request, {})


def fp16(request: Mapping[str, Any], _: Path) -> dict[str, Any]:
    """Of the graph that `onnx` has made: scikit-learn is not needed."""
    return _loaded(request, write_fp16(Path(request["source"]), Path(request["target"]), request))


def _loaded(request: Mapping[str, Any], said: dict[str, str]) -> dict[str, Any]:
    """What ONNX Runtime says of the graph that was made, and what was said of FP16.  Raises BadRequest."""
    try:
        session = importlib.import_module("onnxruntime").InferenceSession(request["target"])
    except Exception as error:  # of several types, all of its own
        raise _not_loaded(error, request) or error from error
    names = [each.name for each in session.get_inputs()]
    for each in Signature.read(request["signature"]).inputs:
        if each.name not in names:  # clients that send it would be refused
            raise BadRequest(f"the graph has no input '{each.name}', as nothing in it reads that column")
    # Types and shapes of outputs are the graph's own: FP32 where the estimator answers FP64.
    own, wanted = signature_of(session), Signature.read(request["signature"])
    names = [each.name for each in own.outputs]
    lacks = len(names) < len(wanted.outputs)
    outputs = {name: name for name in names} if lacks else {}
    return {"signature": own.document(), "inputs": {}, "outputs": outputs, "parameters": {}, **said}


def _not_loaded(error: Exception, request: Mapping[str, Any]) -> BadRequest | None:
    """Why ONNX Runtime does not load what was made, one sentence; None where that is not known."""
    said = shortened(str(error))
    for each in Signature.read(request["signature"]).inputs:
        if each.datatype == "FP64" and "tensor(double)" in said:
            return BadRequest(
                "ONNX Runtime does not load the graph that skl2onnx makes of this estimator for FP64, as parts of it "
                f"answer FP32 alone: give its samples as FP32, {each.name}.astype('f4') ({said})"
            )
    if request["precision"] == "fp16":
        return BadRequest(
            "ONNX Runtime's transformation into FP16 does not know all operators of this estimator, and makes a graph "
            f"that it does not load itself: {said}"
        )
    return None


def _write_onnx(request: Mapping[str, Any]) -> None:
    skl2onnx = importlib.import_module("skl2onnx")
    types = importlib.import_module("skl2onnx.common.data_types")
    estimator, signature = opened(request), Signature.read(request["signature"])
    of = {
        "FP32": types.FloatTensorType, "FP64": types.DoubleTensorType, "INT64": types.Int64TensorType,
        "INT32": types.Int32TensorType, "BOOL": types.BooleanTensorType, "BYTES": types.StringTensorType,
    }  # fmt: skip
    for each in signature.inputs:
        if each.datatype not in of:
            raise BadRequest(f"skl2onnx is asked for tables of {', '.join(of)}, and '{each.name}' is {each.datatype}")
    options = {id(estimator): {"zipmap": False}} if hasattr(estimator, "predict_proba") else None
    columns = [(each.name, of[each.datatype]([None, each.dims[1]])) for each in signature.inputs]
    unknown = importlib.import_module("skl2onnx.common.exceptions")
    try:
        made = skl2onnx.convert_sklearn(estimator, initial_types=columns, options=options, target_opset=OPSETS)
    except (unknown.MissingConverter, unknown.MissingShapeCalculator) as error:  # and advice for its own developers
        first = str(error).strip().partition("\n")[0]
        raise BadRequest(f"skl2onnx does not know all parts of this {type(estimator).__name__}: {first}") from error
    # The outputs come in the order of the methods: scores that no method answers, or fewer.
    rename_outputs(made.graph, [each.name for each in signature.outputs])
    _set_locale(made.graph)
    Path(request["target"]).write_bytes(made.SerializeToString())


def forest(request: Mapping[str, Any], _: Path) -> dict[str, Any]:
    """A checkpoint of treelite, for the fil backend: scores of a classifier, values of a regressor, in FP32."""
    treelite = importlib.import_module("treelite")
    estimator, signature = opened(request), Signature.read(request["signature"])
    if len(signature.inputs) > 1:
        raise BadRequest("treelite takes one table of numbers, and this estimator has an input for each column")
    try:
        found = treelite.sklearn.import_model(estimator)
    except treelite.TreeliteError as error:
        if "Not supported model type" not in str(error):
            raise
        raise BadRequest(
            f"treelite takes forests of scikit-learn alone, and this is a {type(estimator).__name__}"
        ) from error
    found.serialize(request["target"])
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


def _drawn(request: Mapping[str, Any], estimator: Any, run: Run) -> dict[str, Array]:
    """A table of random numbers: of FP32, or of FP64 where the estimator takes the type alone that it was fitted on."""
    if _reads_texts(estimator):
        raise BadRequest(f"{request['text']} reads texts: give --samples FILE.npz, one array of str, shaped [rows]")
    columns = getattr(estimator, "n_features_in_", None)
    if columns is None:
        raise BadRequest(f"{request['text']} does not tell how many columns it has: give --samples FILE.npz")
    if _of_several_kinds(estimator):
        raise BadRequest(
            f"{request['text']} has columns that are treated in several ways, and what they hold is not known: give "
            "--samples FILE.npz, with an array for each column"
        )
    table = np.random.default_rng(0).standard_normal((8, columns))
    single = {"X": table.astype(np.float32)}
    try:
        run(single)
    except Exception:  # each estimator has its own
        return {"X": table}
    return single


def _of_several_kinds(estimator: Any) -> bool:
    return any(hasattr(each, "transformers") for each in _parts(estimator))


def _reads_texts(estimator: Any) -> bool:
    """Whether it takes a list of texts in place of a table, as the backend knows it."""
    path = str(worker_main().parent)
    if path not in sys.path:
        sys.path.append(path)
    columns = importlib.import_module("tisfast_worker.serve").backend_module(COLUMNS_MODULE)
    return bool(columns.Table(estimator).texts)


def _parts(estimator: Any) -> list[Any]:
    """The estimator, and all that it is made of."""
    return [estimator, *(estimator.get_params(deep=True).values() if hasattr(estimator, "get_params") else ())]


def _set_locale(graph: Any) -> None:
    """Of the nodes that make texts lower."""
    for node in graph.node:
        if node.op_type == "StringNormalizer":
            kept = [each for each in node.attribute if each.name != "locale"]
            del node.attribute[:]
            node.attribute.extend(kept)
            node.attribute.add(name="locale", type=STRING_ATTRIBUTE, s=LOCALE.encode())


def _texts(sample: dict[str, Array], estimator: Any) -> dict[str, Array]:
    """Of an estimator that reads texts: one for each row, shaped [rows, 1] as the backend has them."""
    ((name, array), *more) = sample.items()
    if more or array.dtype.kind not in "SUO" or array.ndim not in (1, 2) or array.shape[1:] not in ((), (1,)):
        told = ", ".join(f"'{name}' {each.dtype} {list(each.shape)}" for name, each in sample.items())
        raise BadRequest(
            f"the samples have {told}, and this {type(estimator).__name__} reads a list of texts: give one array of "
            "str, shaped [rows]"
        )
    return {name: array.reshape(-1, 1)}


def _columns(sample: dict[str, Array], estimator: Any) -> dict[str, Array]:
    """One array for each column, as the sklearn backend names them, shaped [rows, 1]; or the only table as it is."""
    if _reads_texts(estimator):
        return _texts(sample, estimator)
    if len(sample) == 1:
        return sample
    fitted_on = getattr(estimator, "feature_names_in_", None)
    wanted = [f"X{at}" for at in range(getattr(estimator, "n_features_in_", len(sample)))]
    wanted = wanted if fitted_on is None else [str(each) for each in fitted_on]
    if set(sample) != set(wanted):
        raise BadRequest(
            f"the samples have the arrays {', '.join(sample)}, and the estimator was fitted on the columns "
            f"{', '.join(wanted)}: give one array for each, or one table of numbers, shaped [rows, columns]"
        )
    found = {name: sample[name] for name in wanted}
    for name, array in found.items():
        if array.ndim not in (1, 2) or array.shape[1:] not in ((), (1,)):
            raise BadRequest(f"the samples' '{name}' is shaped {list(array.shape)}, and a column is [rows, 1]")
    return {name: array.reshape(-1, 1) for name, array in found.items()}


def _table(feeds: Mapping[str, Array], estimator: Any) -> Any:
    """What the estimator is asked with: a frame where it was fitted on one, as the backend does."""
    arrays = [texts(each) for each in feeds.values()]
    if _reads_texts(estimator):
        return arrays[0].reshape(-1)
    named = getattr(estimator, "feature_names_in_", None)
    if len(arrays) == 1 and (named is None or importlib.util.find_spec("pandas") is None):
        return arrays[0]
    if named is None:
        kind = object if any(each.dtype.kind == "O" for each in arrays) else None
        return np.column_stack([each.astype(kind) if kind else each for each in arrays])
    pandas = importlib.import_module("pandas")
    if len(arrays) == 1:
        return pandas.DataFrame(arrays[0], columns=list(named))
    return pandas.DataFrame({name: each.reshape(-1) for name, each in zip(named, arrays, strict=True)})


def _signature(samples: list[dict[str, Array]], run: Run, of_texts: bool) -> Signature:
    first = samples[0]
    for each in samples:
        for name, array in each.items():
            if len(each) == 1 and not of_texts and (array.ndim != 2 or array.dtype.kind not in "iuf"):
                raise BadRequest(
                    f"the samples' '{name}' is {array.dtype} {list(array.shape)}: samples of scikit-learn's estimators "
                    "are one table of numbers, shaped [rows, columns], or one array for each column"
                )
    found = run(first)
    outputs = tuple(Tensor(key, datatype_of(each), (-1, *each.shape[1:])) for key, each in found.items())
    inputs = tuple(Tensor(name, datatype_of(array), (-1, array.shape[1])) for name, array in first.items())
    return Signature(inputs, outputs, True)


def _answered(found: Any, method: str) -> Array:
    if hasattr(found, "toarray"):
        found = found.toarray()
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "biufSUO":
        raise BadRequest(f"{method} answers a {type(found).__name__}, and one array of numbers or texts is compared")
    return found.reshape(-1, 1) if found.ndim == 1 else found  # as the backend answers
