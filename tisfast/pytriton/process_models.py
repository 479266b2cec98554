"""Models whose instances are worker processes: the callable is pickled, and each worker loads it.

It is as with multiprocessing's spawn: the program's main module is imported in the worker, under another name, so what
it does when it is run stands behind `if __name__ == "__main__":`.
"""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import threading
from collections.abc import Callable
from multiprocessing import spawn
from typing import BinaryIO, Final

from tisfast.pytriton.exceptions import PyTritonValidationError
from tisfast.pytriton.model_config.generator import ModelConfigGenerator, without_nones
from tisfast.pytriton.models import BoundModel
from tisfast.repo.written_folder import write_folder

ROOT: Final = pathlib.Path(__file__).resolve().parents[2]
PICKLE: Final = "callable.pickle"
PREPARATION: Final = "preparation.json"
REPORTS: Final = "reports"
"""The named pipe, beside the models, into which a worker writes why nothing can go on."""
REPORT_BYTES_MAX: Final = 2000
"""Of one: below what a pipe takes in one piece, whoever else writes."""
_END: Final = b"\0\n"
_KEYS: Final = ("sys_path", "sys_argv", "dir", "init_main_from_name", "init_main_from_path")
_MODEL: Final = '''"""A callable of tisfast.pytriton in a worker process."""

import json
import os
import pickle
import sys
from multiprocessing import spawn


class TritonPythonModel:
    """Calls it."""

    def initialize(self, args):
        """Load it as the program that bound it would."""
        folder = os.path.dirname(os.path.abspath(__file__))
        with open(os.path.join(folder, {preparation!r})) as file:
            preparation = json.load(file)
        sys.path.append({root!r})
        spawn.prepare(preparation)
        from tisfast.pytriton.models import give_context, warm_up
        from tisfast.pytriton.process_models import report
        from tisfast.pytriton.proxy.backend import CallableBackend
        from tisfast.pytriton.proxy.telemetry import trace_with

        with open(os.path.join(folder, {pickle!r}), "rb") as file:
            callable_, config, strict, trace_config = pickle.load(file)
        trace_with(trace_config)
        give_context(callable_, config)
        warm_up([callable_], config)
        self._backend = CallableBackend(callable_, config, strict, lambda error: report({reports!r}, error))

    def execute(self, requests):
        """What it answers."""
        return self._backend.execute(requests)
'''


def write_model(repository: pathlib.Path, model: BoundModel) -> None:
    """Make the model's folder.  Raises PyTritonValidationError for a callable that cannot be pickled."""
    if len(model.callables) != 1:
        raise PyTritonValidationError(
            f"Model '{model.name}' has {len(model.callables)} callables and processes={model.processes}; "
            "give one callable"
        )
    try:
        pickled = pickle.dumps((model.callables[0], model.config, model.strict, model.trace_config))
    except Exception as error:
        raise PyTritonValidationError(
            f"Model '{model.name}' has processes={model.processes}, and its callable cannot be pickled: {error}. "
            "Define it in a module, not in a function"
        ) from error
    preparation = spawn.get_preparation_data("tisfast")
    kept = {key: preparation[key] for key in _KEYS if key in preparation}
    reports = str(repository.with_name(REPORTS))
    code = _MODEL.format(preparation=PREPARATION, pickle=PICKLE, root=str(ROOT), reports=reports)
    files = {PICKLE: pickled, PREPARATION: json.dumps(kept).encode(), "model.py": code.encode()}
    config = ModelConfigGenerator(model.with_instances(model.processes)).get_config()
    write_folder(
        repository / model.name,
        without_nones(config),
        {f"{model.version}/{name}": content for name, content in files.items()},
    )


def report(path: str, error: BaseException) -> None:
    """In a worker: tell the program of an error after which nothing can go on.  Nobody listens once it stops."""
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(pipe, " ".join(str(error).split()).encode()[:REPORT_BYTES_MAX] + b"\n")
    except BlockingIOError:
        pass  # it is full of such reports
    finally:
        os.close(pipe)


class Reports:
    """The program's end of that pipe: `told(text)` is called, in a thread, for each report until `close`."""

    def __init__(self, repository: pathlib.Path, told: Callable[[str], None]) -> None:
        """Makes the pipe, beside the models."""
        path = repository.with_name(REPORTS)
        os.mkfifo(path, 0o600)
        self._pipe = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # with a writer of its own it has no end of file
        self._told = told
        threading.Thread(
            target=self._read, args=(os.fdopen(self._pipe, "rb"),), name=f"tisfast-{REPORTS}", daemon=True
        ).start()

    def close(self) -> None:
        """Once: the thread ends, and closes the pipe."""
        os.write(self._pipe, _END)

    def _read(self, pipe: BinaryIO) -> None:
        with pipe:
            for line in iter(pipe.readline, _END):
                self._told(line.decode(errors="replace").strip())
