"""The python backend: a `TritonPythonModel` from the version folder's model.py, and its life."""

import functools
import importlib.util
import inspect
import json
import os
import sys
import types

from tisfast_worker.backend import RequestBackend
from tisfast_worker.calls import PARENT
from tisfast_worker.errors import TritonError
from tisfast_worker.failure import ReturnError, last_line
from tisfast_worker.logger import Logger
from tisfast_worker.model_config import ModelConfig
from tisfast_worker.request import NOT_ITERATIVE
from tisfast_worker.response import InferenceResponse

_NEVER_SENT = "the model let go of this request's response sender without a response"


class LoadError(Exception):
    """The model file cannot be served as it is; the text says why."""


class Backend(RequestBackend):
    """One model, loaded in this process.  Methods raise whatever the user's code raises."""

    def __init__(self, model):
        """See tisfast_worker/backend.py."""
        super().__init__(model)
        self._class = None
        self._instance = None
        self._execute = None
        self._execute_batch = None
        self._event_loop = None  # of `async def execute`, between batches at rest
        self._background = None  # the same of a decoupled model, always running

    def load(self):
        """Import the file as `<version>.<stem>`, so that it can import its siblings relatively, too.

        A Python-based backend's is imported as `model`, and its siblings by their names.
        """
        model, path = self.model, self._path
        if model.saved_lately:
            # Bytecode knows its source by second and size: a save of the same size in this second would not be noticed.
            sys.dont_write_bytecode = True
        if not os.path.isfile(path):
            raise LoadError(f"model '{model.name}': there is no {path}")
        name = os.path.splitext(os.path.basename(path))[0]
        if not model.python_based:
            package = types.ModuleType(model.version)
            package.__path__ = [model.version_dir]
            sys.modules[model.version] = package
            name = f"{model.version}.{name}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None:
            raise LoadError(f"model '{model.name}': {path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        if not hasattr(module, "TritonPythonModel"):
            raise AttributeError(f"module '{name}' has no attribute 'TritonPythonModel'; give its class that name")
        self._class = module.TritonPythonModel

    def complete(self):
        """The configuration as JSON text, completed by the model's `auto_complete_config` if it has one."""
        config = ModelConfig(self.model.config)
        if hasattr(self._class, "auto_complete_config"):
            config = self._class.auto_complete_config(config)
            if not isinstance(config, ModelConfig):
                raise LoadError(
                    f"auto_complete_config function in model '{self.model.name}' must return a valid pb.ModelConfig "
                    "object."
                )
        return config.as_json()

    def initialize(self):
        """Make the instance and run its `initialize`."""
        self._instance = self._class()
        if hasattr(self._instance, "initialize"):
            self._instance.initialize(self._arguments())
        self.bind()

    def bind(self):
        """Execute by what the instance has, from now on."""
        self._execute = getattr(self._instance, "execute", None)
        self._execute_batch = getattr(self._instance, "execute_batch", None)
        self._check_arrays()
        if self._execute is None and self._execute_batch is None:
            Logger.log_warn(
                f"model '{self.model.name}': class TritonPythonModel does not implement execute, so each of its "
                "requests will be an error; add: def execute(self, requests)"
            )
        if inspect.iscoroutinefunction(self._execute):
            if self.model.decoupled:
                self._start_background()
            else:
                self._start_event_loop()

    @property
    def takes_arrays(self):
        """Whether batches go to the model's `execute_batch`, as one array for each input."""
        return self._execute_batch is not None and self._no_arrays() is None

    def execute_arrays(self, inputs):
        """Run the model's `execute_batch`."""
        outputs = self._execute_batch(inputs)
        if inspect.iscoroutine(outputs):
            if self._event_loop is None:
                self._start_event_loop()
            outputs = self._event_loop.run_until_complete(outputs)
        return outputs

    def execute(self, requests, execution):
        """The model's responses, as many as requests.  Raises ReturnError when it returns something else."""
        if self._execute is None:
            raise self._no_execute()
        responses = self._execute(requests)
        if responses.__class__ is not list:
            responses = self._odd_return(responses, execution)
        if execution.senders:
            return self._with_sent(requests, responses, execution)
        return self._checked(requests, responses, execution)

    def _checked(self, requests, responses, execution):
        if len(responses) != len(requests):
            raise ReturnError(
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                f"InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(responses)}\n"
            )
        if execution.rescheduled:
            return self._with_rescheduled(requests, responses, execution)
        for response in responses:
            if not isinstance(response, InferenceResponse):
                raise _not_a_response(response)
        return responses

    def start(self, requests, execution):
        """Execute for a decoupled model: a coroutine runs on in the background.  Raises ReturnError."""
        if self._execute is None:
            raise self._no_execute()
        returned = self._execute(requests)
        if returned is None:
            self.finished(execution)
            return
        if not inspect.iscoroutine(returned):
            raise self._not_none()
        if self._background is None:  # a plain function that returned a coroutine
            self._start_background()
        # Coroutines begin with this thread's context.
        PARENT.set(execution.parent)
        failed = functools.partial(self.failed, requests, execution)
        self._background.start(self._awaited(returned, execution), failed)

    @property
    def has_readiness(self):
        """Whether the model has an `is_ready` of its own."""
        return callable(getattr(self._instance, "is_ready", None))

    def unready_reason(self):
        """Why the model's `is_ready` does not say that it is ready, "" when it does.  From any thread."""
        try:
            said = self._instance.is_ready()
            if inspect.iscoroutine(said):
                import asyncio  # noqa: PLC0415 - as below

                said = asyncio.run(said)
        except BaseException as error:
            return f"is_ready() raised {last_line(error)}"
        if not isinstance(said, bool):
            return f"is_ready() returned a {type(said).__name__}, not a bool"
        return "" if said else "is_ready() returned False"

    def free(self):
        """Run the model's `finalize` if it has one."""
        if hasattr(self._instance, "finalize"):
            self._instance.finalize()
        self.close_loops()

    def close_loops(self):
        """End what runs or rests for a model with coroutines."""
        if self._event_loop is not None:
            self._event_loop.close()
        if self._background is not None:
            self._background.stop()

    @property
    def _path(self):
        """The file with the model's class."""
        model = self.model
        return model.module if model.python_based else os.path.join(model.version_dir, model.file)

    def _arguments(self):
        model = self.model
        of_backend = {"backend_config": json.dumps({"cmdline": model.settings})} if model.python_based else {}
        return {
            **of_backend,
            "model_config": model.config,
            "model_instance_kind": model.kind,
            "model_instance_name": model.instance,
            "model_instance_device_id": str(model.device_id),
            "model_repository": model.repository,
            "model_version": model.version,
            "model_name": model.name,
        }

    def _no_arrays(self):
        """Why this model cannot be given arrays, or None."""
        if self.model.decoupled:
            return "it is decoupled: its requests are answered one by one"
        if "sequence_batching" in json.loads(self.model.config):
            return "it has a sequence batcher: its requests are answered one by one"
        return None

    def _check_arrays(self):
        """Raise at the load for settings and methods that could never be used."""
        name, config = self.model.name, json.loads(self.model.config)
        reason = self._no_arrays()
        if self._execute_batch is not None and self._execute is None and reason is not None:
            raise LoadError(f"model '{name}' has execute_batch and no execute, but {reason}")
        wanted = [key for key in ("batch_input", "batch_output") if config.get(key)]
        if wanted and not self.takes_arrays:
            raise LoadError(
                f"model '{name}': '{wanted[0]}' is about the arrays of execute_batch, and this model "
                + ("has no execute_batch" if reason is None else f"gets none, as {reason}")
            )

    def _no_execute(self):
        return ReturnError(f"Python model {self._path} does not implement `execute` method.")

    def _not_none(self):
        return ReturnError(
            f"Python model '{self.model.instance}' is using the decoupled mode and the execute function must return "
            "None."
        )

    async def _awaited(self, coroutine, execution):
        if await coroutine is not None:
            raise self._not_none()
        self.finished(execution)

    def _with_rescheduled(self, requests, responses, execution):
        """None in the places of requests that want to be executed again; an error where that cannot be."""
        again = {id(request) for request in execution.rescheduled}
        found = []
        for request, response in zip(requests, responses):
            if id(request) not in again:
                if not isinstance(response, InferenceResponse):
                    raise _not_a_response(response)
                found.append(response)
                continue
            if response is not None:
                raise ReturnError(
                    "Expected a None object in the execute function return list for reschduled request, found type "
                    f"'{type(response)}'."
                )
            found.append(None if self.model.iterative else InferenceResponse([], error=TritonError(NOT_ITERATIVE)))
        execution.forget_rescheduled()
        return found

    def _with_sent(self, requests, responses, execution):
        """Check the responses of an execution that asked for senders: what came through one stays its request's answer.

        Waits for those whose sender is still referred to, and that no response was returned for.
        """
        answers = execution.take_answers()
        merged = list(responses) or [None] * len(requests)
        again = {id(request) for request in execution.rescheduled}
        for at, (request, response) in enumerate(zip(requests, merged)):
            answer = answers.get(id(request))
            if answer is None:
                continue
            if id(request) in again:
                answer.settle()  # its sender is of this execution, and the next one has a sender of its own
                continue
            if response is None:
                self._until_sent(answer)
            sent = answer.settle()
            if sent is not None:
                merged[at] = sent
            elif response is None:
                merged[at] = InferenceResponse([], error=TritonError(_NEVER_SENT))
        try:
            return self._checked(requests, merged, execution)
        except ReturnError as error:
            error.sent = answers
            raise

    def _until_sent(self, answer):
        """Whoever has the sender may be a task that execute left to its event loop."""
        if self._event_loop is None or answer.done.is_set():
            answer.done.wait()
        else:
            self._event_loop.run_until_complete(self._event_loop.run_in_executor(None, answer.done.wait))

    def _odd_return(self, responses, execution):
        """A coroutine's result, or an error.  Lists' subclasses pass, and None where senders were asked for."""
        if inspect.iscoroutine(responses):
            if self._event_loop is None:  # a plain function that returned a coroutine
                self._start_event_loop()
            responses = self._event_loop.run_until_complete(responses)
        if responses is None and execution.senders:
            return []
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

    def _start_background(self):
        """Start the event loop of a decoupled model in a thread of its own: batches overlap in it."""
        from tisfast_worker.background import BackgroundLoop  # noqa: PLC0415 - asyncio, as above

        self._background = BackgroundLoop()


def _not_a_response(response):
    return ReturnError(
        f"Expected an 'InferenceResponse' object in the execute function return list, found type '{type(response)}'."
    )
