"""What to do about a module or library that a model asks for and its environment lacks.  Layer 3 (environments)."""

from __future__ import annotations

import re
from typing import Final

from tisfast.environments.environment import Interpreter

_PACKAGES: Final = {
    "attr": "attrs", "bs4": "beautifulsoup4", "cupy": "cupy-cuda12x", "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil", "faiss": "faiss-cpu", "fitz": "pymupdf", "google": "protobuf", "jwt": "pyjwt",
    "MySQLdb": "mysqlclient", "PIL": "pillow", "serial": "pyserial", "skimage": "scikit-image",
    "sklearn": "scikit-learn", "yaml": "pyyaml", "zmq": "pyzmq",
}  # fmt: skip
"""Where the package is called otherwise than the module."""
_LIBRARY: Final = re.compile(r"(?P<name>[\w.+-]+\.so[.\d]*): cannot open shared object file")
_TOO_OLD: Final = re.compile(r"version [`'](?P<name>(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+)' not found")


def advice(error: str, module: str, interpreter: Interpreter, model: str) -> str:
    """A sentence that names what is missing, where, and how to add it; "" when nothing is known to be missing.

    error: the last line of what the model raised; module: the one that could not be found, "" when that was not it.
    """
    where = f"the environment of model '{model}' ({_place(interpreter)})"
    if module:
        top = module.partition(".")[0]
        package = _PACKAGES.get(top, top)
        called = f"package '{package}'" + (f" (module '{top}')" if package != top else "")
        return f"{called} is missing in {where}: {_remedy(interpreter, package)}"
    if library := _LIBRARY.search(error):
        return f"library {library['name']} is missing in {where}, and on this system: add it to one of the two"
    if too_old := _TOO_OLD.search(error):
        return f"{where} needs {too_old['name']}, for which this system's libraries are too old: pack it on one as old"
    return ""


def _place(interpreter: Interpreter) -> str:
    if interpreter.environment is None:
        return f"the server's own Python, {interpreter.path}"
    return str(interpreter.environment)


def _remedy(interpreter: Interpreter, package: str) -> str:
    if interpreter.environment is None:
        return f"{interpreter.path} -m pip install {package}, or give the model an environment: EXECUTION_ENV_PATH"
    return interpreter.environment.remedy(package)
