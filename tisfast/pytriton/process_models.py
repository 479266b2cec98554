"""Models whose instances are worker processes: the callable is pickled, and each worker loads it.

It is as with multiprocessing's spawn: the program's main module is imported in the worker, under another name, so what
it does when it is run stands behind `if __name__ == "__main__":`.
"""

from __future__ import annotations

import json
import pathlib
import pickle
from multiprocessing import spawn
from typing import Final

from tisfast.pytriton.exceptions import PyTritonValidationError
from tisfast.pytriton.model_config.generator import ModelConfigGenerator, without_nones
from tisfast.pytriton.models import BoundModel
from tisfast.repo.written_folder import write_folder

ROOT: Final = pathlib.Path(__file__).resolve().parents[2]
PICKLE: Final = "callable.pickle"
PREPARATION: Final = "preparation.json"
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
        from tisfast.pytriton.proxy.backend import CallableBackend

        with open(os.path.join(folder, {pickle!r}), "rb") as file:
            callable_, config, strict = pickle.load(file)
        from tisfast.pytriton.models import give_context

        give_context(callable_, config)
        self._backend = CallableBackend(callable_, config, strict, lambda error: None)

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
        pickled = pickle.dumps((model.callables[0], model.config, model.strict))
    except Exception as error:
        raise PyTritonValidationError(
            f"Model '{model.name}' has processes={model.processes}, and its callable cannot be pickled: {error}. "
            "Define it in a module, not in a function"
        ) from error
    preparation = spawn.get_preparation_data("tisfast")
    kept = {key: preparation[key] for key in _KEYS if key in preparation}
    code = _MODEL.format(preparation=PREPARATION, pickle=PICKLE, root=str(ROOT))
    files = {PICKLE: pickled, PREPARATION: json.dumps(kept).encode(), "model.py": code.encode()}
    config = ModelConfigGenerator(model.with_instances(model.processes)).get_config()
    write_folder(
        repository / model.name,
        without_nones(config),
        {f"{model.version}/{name}": content for name, content in files.items()},
    )
