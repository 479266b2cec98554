"""A function as a model folder, for `tisfast serve` and for real worker processes.

The function travels as a pickle of cloudpickle, which holds the code of what is not importable elsewhere: the script's
own functions and classes.  A copy of cloudpickle lies beside it, so the model's environment need not have it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from tisfast.errors import BadRequest
from tisfast.functions.options import Execution, FunctionOptions, check_known, execution_of
from tisfast.functions.signature import Given, Signature, call_text, checked_name, name_of, read_signature

if TYPE_CHECKING:
    from typing_extensions import Unpack

MODEL: Final = '''"""The Python function '{name}' as a model, written by tisfast.export."""

import os

from tisfast_worker.function_model import ExportedFunction


class TritonPythonModel(ExportedFunction):
    """Reads the function from its pickle; tisfast_worker is part of each worker of tisfast."""

    folder = os.path.dirname(os.path.abspath(__file__))
'''
REQUIREMENTS: Final = "requirements.txt"
MARK: Final = "1/function.json"
"""What every folder that is written here has."""


def export(function: Any, repository: str | os.PathLike[str], **options: Unpack[FunctionOptions]) -> Path:
    """Write `function` as a model into a repository; returns its folder.  A model of its name there is replaced.

    `tisfast serve --model-repository REPOSITORY` serves it with the answers that `tisfast.serve` gives.  options: those
    of `tisfast.serve` about a function.  Raises BadRequest for what cannot leave this process.
    """
    check_known(options, "tisfast.export", FunctionOptions)
    name = checked_name(options.get("name") or "") or name_of(function)
    execution = execution_of(options, f"function '{name}'")
    function_model = _function_model()
    if (unmade := unmade_method(function, options)) is not None:
        signature = read_signature(unmade, name, given_of(options), batched=bool(execution.batch_size))
        return write_model(function, signature, execution, Path(repository))
    callable_, owner = function_model.opened(function)
    try:
        signature = read_signature(callable_, name, given_of(options), batched=bool(execution.batch_size))
    finally:
        if owner is not function:
            function_model.closed(owner)
    return write_model(function, signature, execution, Path(repository))


def given_of(options: Mapping[str, Any]) -> Given:
    """What the options say about inputs and outputs."""
    return Given(options.get("inputs"), options.get("outputs"), options.get("sample"))


def unmade_method(function: Any, options: Mapping[str, Any]) -> Any:
    """What a class's objects are called by, to read its hints: it is neither made nor set up.  None of all else."""
    if not isinstance(function, type) or "sample" in options:
        return None
    method = getattr(function, "predict", None) or function.__call__
    return functools.partial(method, None) if inspect.isfunction(method) else None


def write_model(function: Any, signature: Signature, execution: Execution, repository: Path) -> Path:
    """The model's folder, written beside its place and moved there.  Raises BadRequest."""
    if Path(signature.name).name != signature.name or signature.name.startswith("."):
        raise BadRequest(f"'{signature.name}' is no name of a model: a folder has it, and it begins with no dot")
    from tisfast.repo.written_folder import write_folder  # noqa: PLC0415 - only for who exports

    folder = repository / signature.name
    if repository.exists() and not repository.is_dir():
        raise BadRequest(f"{repository} is a file, and a model repository is a folder, with one for each model")
    if folder.exists() and not (folder / MARK).is_file():
        raise BadRequest(
            f"{folder} is there already and was not written by tisfast.export; remove it, or give another name"
        )
    files = {
        "1/model.py": MODEL.format(name=signature.name).encode(),
        MARK: call_text(signature).encode(),
        "1/function.pkl": _pickled(function, signature.name),
        **_reader(),
    }
    config = signature.config(execution.batch_size, execution.delay, execution.instances)
    told, more = _environment(execution.environment, signature.name)
    write_folder(folder, config | told, files | more)
    return folder


# ---- parts


def _function_model() -> Any:
    from tisfast.local_server import guest_runtime  # noqa: PLC0415 - as below

    guest_runtime()  # finds the package
    return importlib.import_module("tisfast_worker.function_model")


def _pickled(function: Any, name: str) -> bytes:
    cloudpickle = _cloudpickle(name)
    with _by_value(cloudpickle, function):
        try:
            found: bytes = cloudpickle.dumps(function)
        except Exception as error:  # each object that refuses has its own way
            raise BadRequest(
                f"function '{name}' cannot leave this process: {type(error).__name__}: {error}. It refers to something "
                "that lives here alone; make that inside of the function, or in `setup` of a class"
            ) from error
    return found


def _cloudpickle(name: str) -> ModuleType:
    try:
        return importlib.import_module("cloudpickle")
    except ModuleNotFoundError:
        raise BadRequest(
            f"function '{name}' is written with cloudpickle, which is not installed: pip install cloudpickle, or "
            "tisfast[export]"
        ) from None


@contextlib.contextmanager
def _by_value(cloudpickle: Any, function: Any) -> Iterator[None]:
    """The function's own module goes along, unless it is installed: the worker could not import it."""
    owner = getattr(function, "__self__", function)
    module = sys.modules.get(getattr(function, "__module__", None) or type(owner).__module__)
    if module is None or module.__name__ == "__main__" or _is_installed(module):
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _is_installed(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return True
    folders = (
        "site-packages",
        "dist-packages",
        os.path.join("lib", f"python{sys.version_info[0]}.{sys.version_info[1]}"),
    )
    return any(os.sep + folder + os.sep in file for folder in folders)


def _reader() -> dict[str, bytes]:
    """The files of cloudpickle."""
    package = Path(str(importlib.import_module("cloudpickle").__file__)).parent
    return {f"1/reader/cloudpickle/{file.name}": file.read_bytes() for file in package.glob("*.py")}


def _environment(given: Any, name: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """(of the configuration, files): what they say about the worker's Python."""
    files: dict[str, bytes] = {}
    if not given:
        return {}, files
    if isinstance(given, (str, os.PathLike)):
        path = Path(given).expanduser().absolute()
        if not path.exists():
            raise BadRequest(f"function '{name}': environment={os.fspath(given)!r} does not exist")
        told = str(path)
    else:
        files[REQUIREMENTS] = "".join(f"{line}\n" for line in given).encode()
        told = f"$$TRITON_MODEL_DIRECTORY/{REQUIREMENTS}"
    return {"parameters": {"EXECUTION_ENV_PATH": {"string_value": told}}}, files
