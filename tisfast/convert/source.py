"""What is to be converted, told by its name, as `tisfast serve FILE` tells it.  Layer 5 (convert)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from tisfast.config.backends import BUILT_IN
from tisfast.config.served_files import ServedFile, is_saved_model, is_there, read_files
from tisfast.errors import BadRequest, ConfigError

SKOPS: Final = ".skops"
"""Files that run nothing when they are read."""
KINDS: Final = {"onnxruntime": "onnx", "pytorch": "torchscript", "sklearn": "sklearn", "tensorflow": "savedmodel"}
"""Of source, by the backend of such a file."""


ENDINGS: Final = (".onnx", ".pt", ".pt2", ".joblib", ".pkl", SKOPS)
"""Of files that are taken."""
TAKEN: Final = (
    "ONNX (.onnx), TorchScript (.pt), programs of torch.export (.pt2), folders that are SavedModels, scikit-learn's "
    f"files (.joblib, .pkl, {SKOPS}), and modules of PyTorch as MODULE:FACTORY or FILE.py:FACTORY"
)


class Source(NamedTuple):
    """kind: of formats.ROUTES; text: for people, and of a module what is imported; path: absolute, empty of what is no
    file; name: for a model; file: what its backend calls such a file; module: an object of PyTorch or an estimator of
    this program, None of anything else."""

    kind: str
    text: str
    path: Path
    name: str
    file: str = ""
    module: Any = None


def read_source(given: Any, *, allow_pickled: bool) -> Source:
    """A path, MODULE:FACTORY, a torch.nn.Module, or an estimator of scikit-learn.

    Raises BadRequest for what is not there, is of no kind that is converted, or may run code when it is read.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.nn.Module):
        name = type(given).__name__
        return Source("module", f"the module {name}", Path(), name, module=given)
    estimators = sys.modules.get("sklearn.base")
    if estimators is not None and isinstance(given, estimators.BaseEstimator):
        name = type(given).__name__
        return Source("sklearn", f"the estimator {name}", Path(), name, "model.joblib", given)
    if not isinstance(given, str | os.PathLike):
        raise BadRequest(
            "a source is a path, MODULE:FACTORY, a torch.nn.Module or an estimator of scikit-learn, not "
            f"{type(given).__name__}"
        )
    text = os.fspath(given)
    if not is_there(text):
        return _factory(text)
    try:
        found = read_files([text], BUILT_IN)
    except ConfigError as error:
        if not any(text.endswith(each) for each in ENDINGS):
            raise BadRequest(f"{text} is no model that tisfast convert takes; it takes {TAKEN}") from None
        raise BadRequest(error.message) from None
    if not found.files:
        raise BadRequest(f"{text} is a folder without a model of its own: name a file")
    return _file(text, found.files[0], allow_pickled)


def _file(text: str, file: ServedFile, allow_pickled: bool) -> Source:
    kind = KINDS.get(file.backend)
    if kind is None or (kind == "savedmodel" and not is_saved_model(file.path)):
        raise BadRequest(
            f"{text} is a model of backend '{file.backend}', which tisfast convert does not take; it takes {TAKEN}"
        )
    backend = BUILT_IN.of_file(file.file)
    if backend is not None and backend.pickled and file.path.suffix != SKOPS and not allow_pickled:
        raise BadRequest(
            f"{text} can run code when it is read, as all files of backend '{file.backend}': if you trust it, add "
            "--allow-pickled-models"
        )
    if file.path.suffix == ".pt2":
        kind = "pt2"
    return Source(kind, text, file.path, file.name, file.file)


def _factory(text: str) -> Source:
    """MODULE:NAME or FILE.py:NAME."""
    place, colon, name = text.rpartition(":")
    if colon and place.endswith(".py") and not name.isidentifier():
        raise BadRequest(f"{text}: {name!r} is no name in {place}: write FILE.py:FACTORY, a function or a class there")
    if not colon or not name.isidentifier() or os.sep in name:
        raise BadRequest(f"{text}: there is no such file")
    if not place.endswith(".py"):
        return Source("module", text, Path(), name)
    if not Path(place).is_file():
        raise BadRequest(f"{text}: there is no file {place}")
    return Source("module", text, Path(os.path.abspath(place)), name)
