"""Advice about a module or library that a model imports and its environment lacks.  Layer 3 (environments)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from glob import escape as glob_escape
from pathlib import Path
from typing import Final

from tisfast.environments.environment import Interpreter

_PACKAGES: Final = {
    "attr": "attrs", "bs4": "beautifulsoup4", "cupy": "cupy-cuda12x", "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil", "faiss": "faiss-cpu", "fitz": "pymupdf", "google": "protobuf", "jwt": "pyjwt",
    "MySQLdb": "mysqlclient", "PIL": "pillow", "serial": "pyserial", "skimage": "scikit-image",
    "sklearn": "scikit-learn", "tensorflow": "tensorflow-cpu", "yaml": "pyyaml", "zmq": "pyzmq",
}  # fmt: skip
"""Where the package is called otherwise than the module."""
_EXTRAS: Final = {
    "onnxruntime": "onnx", "torch": "torch", "treelite": "trees", "scikit-learn": "sklearn", "joblib": "sklearn",
    "skops": "sklearn", "openvino": "openvino", "tensorrt": "tensorrt",
    "tensorflow-cpu": "tensorflow",
}  # fmt: skip
"""Packages that run models, and the extra of tisfast that installs each into the server's own environment."""
_LIBRARY: Final = re.compile(r"(?P<name>[\w.+-]+\.so[.\d]*): cannot open shared object file")
_TOO_OLD: Final = re.compile(r"version [`'](?P<name>(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+)' not found")


def advice(error: str, module: str, interpreter: Interpreter, model: str, ignored: str = "") -> str:
    """A sentence that names what is missing, where, and how to add it; "" when nothing is known to be missing.

    error: the last line of what the model raised; module: the one that could not be found, "" when that was not it;
    ignored: the server's PYTHONPATH, which workers do not look at.
    """
    where = f"the environment of model '{model}' ({_place(interpreter)})"
    if module:
        top = module.partition(".")[0]
        if folder := _holds(ignored.split(os.pathsep), top):
            return (
                f"module '{top}' lies in {folder}, on the server's PYTHONPATH, which models do not look at (those of "
                f"Triton do not, either): put it into the model's folder, or install it into {where}"
            )
        package = _PACKAGES.get(top, top)
        called = f"package '{package}'" + (f" (module '{top}')" if package != top else "")
        return f"{called} is missing in {where}: {_remedy(interpreter, package)}"
    if library := _LIBRARY.search(error):
        return f"library {library['name']} is missing in {where}, and on this system: add it to one of the two"
    if too_old := _TOO_OLD.search(error):
        return f"{where} needs {too_old['name']}, for which this system's libraries are too old: pack it on one as old"
    return ""


def _holds(folders: Iterable[str], module: str) -> str:
    """The first of these folders that has the module, or ""."""
    for folder in filter(None, folders):
        if (Path(folder) / module).is_dir() or any(Path(folder).glob(f"{glob_escape(module)}.*")):
            return folder
    return ""


def _place(interpreter: Interpreter) -> str:
    if interpreter.environment is None:
        return f"the server's own Python, {interpreter.path}"
    return str(interpreter.environment)


def _remedy(interpreter: Interpreter, package: str) -> str:
    if interpreter.environment is None:
        package = f"'tisfast[{_EXTRAS[package]}]'" if package in _EXTRAS else package
        return f"{interpreter.path} -m pip install {package}, or give the model an environment: EXECUTION_ENV_PATH"
    return interpreter.environment.remedy(package)
