"""The python backend: a `TritonPythonModel` from the version folder's model.py, and its life (rows 16.01 to 16.07)."""

import importlib.util
import inspect
import os
import sys
import types

from tisfast_worker.errors import not_served
from tisfast_worker.failure import ReturnError
from tisfast_worker.model_config import ModelConfig
from tisfast_worker.response import InferenceResponse


class LoadError(Exception):
    """The model file cannot be served as it is; the text says why."""


class Backend:
    """One model, loaded in this process.  Methods raise whatever the user's code raises."""

    def __init__(self, model):
        """`model`: the Model to serve.  Nothing is loaded yet."""
        self._model = model
        self._class = None
        self._instance = None
        self._execute = None
        self._event_loop = None

    def load(self):
        """Import the file as `<version>.<stem>` (row 16.01), so that it can import its siblings relatively, too."""
        model = self._model
        path = os.path.join(model.version_dir, model.file)
        if not os.path.isfile(path):
            raise LoadError(f"model '{model.name}': there is no {path}")
        package = types.ModuleType(model.version)
        package.__path__ = [model.version_dir]
        sys.modules[model.version] = package
        name = f"{model.version}.{os.path.splitext(os.path.basename(model.file))[0]}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None:
            raise LoadError(f"model '{model.name}': {path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        if not hasattr(module, "TritonPythonModel"):
            raise AttributeError(f"module '{name}' has no attribute 'TritonPythonModel'")
        self._class = module.TritonPythonModel

    def auto_complete(self):
        """The configuration as JSON text, completed by the model's `auto_complete_config` if it has one."""
        config = ModelConfig(self._model.config)
        if hasattr(self._class, "auto_complete_config"):
            config = self._class.auto_complete_config(config)
            if not isinstance(config, ModelConfig):
                raise LoadError(
                    f"auto_complete_config function in model '{self._model.name}' must return a valid pb.ModelConfig "
                    "object."
                )
        return config.as_json()

    def initialize(self):
        """Make the instance and run its `initialize` (row 16.02)."""
        if self._model.decoupled:
            raise not_served(f"model '{self._model.name}' uses the decoupled transaction policy")
        self._instance = self._class()
        if hasattr(self._instance, "initialize"):
            self._instance.initialize(self._arguments())
        self._execute = getattr(self._instance, "execute", None)
        if inspect.iscoroutinefunction(self._execute):
            self._start_event_loop()

    def execute(self, requests):
        """The model's responses, as many as requests.  Raises ReturnError when it returns something else."""
        if self._execute is None:
            path = os.path.join(self._model.version_dir, self._model.file)
            raise ReturnError(f"Python model {path} does not implement `execute` method.")
        responses = self._execute(requests)
        if responses.__class__ is not list:
            responses = self._odd_return(responses)
        if len(responses) != len(requests):
            raise ReturnError(
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                f"InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(responses)}\n"
            )
        for response in responses:
            if not isinstance(response, InferenceResponse):
                raise ReturnError(
                    "Expected an 'InferenceResponse' object in the execute function return list, found type "
                    f"'{type(response)}'."
                )
        return responses

    def finalize(self):
        """Run the model's `finalize` if it has one."""
        if hasattr(self._instance, "finalize"):
            self._instance.finalize()
        if self._event_loop is not None:
            self._event_loop.close()

    def _arguments(self):
        model = self._model
        return {
            "model_config": model.config,
            "model_instance_kind": model.kind,
            "model_instance_name": model.instance,
            "model_instance_device_id": str(model.device_id),
            "model_repository": model.repository,
            "model_version": model.version,
            "model_name": model.name,
        }

    def _odd_return(self, responses):
        """A coroutine's result, or an error.  Lists' subclasses pass."""
        if inspect.iscoroutine(responses):
            if self._event_loop is None:  # a plain function that returned a coroutine
                self._start_event_loop()
            responses = self._event_loop.run_until_complete(responses)
        if not isinstance(responses, list):
            raise ReturnError(f"Expected a list in the execute return, found type '{type(responses)}'.")
        return responses

    def _start_event_loop(self):
        """One event loop for the life of the instance, so that clients and locks of the model stay bound to it.

        It runs while a batch executes and stands still in between: the next batch begins after this one's end.
        """
        import asyncio  # noqa: PLC0415 - 40 ms and 4 MB that only asynchronous models pay

        self._event_loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._event_loop)
