"""A test double: a model of this process that is asked like one of a server.  Layer 3 (client).

    model = LocalModel("models/add_sub")
    total, difference = model(a, b)

It runs the `model.py` of a model folder without a server, with the classes that workers use, and checks inputs by the
folder's config.pbtxt as a client does.  One request is one execution: nothing is batched, and nothing runs beside it.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Final, cast

import numpy as np

from tisfast.client.arrays import array_of
from tisfast.client.calls import InferRequest
from tisfast.client.errors import ClientClosed
from tisfast.client.futures import InferFuture, Submitter
from tisfast.client.model_core import ModelCore
from tisfast.client.results import Result, result_with
from tisfast.client.sync_client import Model
from tisfast.client.transport import Cancel
from tisfast.config import auto_complete, model_config
from tisfast.config.model_config import LoadedConfig
from tisfast.errors import BadRequest, Internal, NotFound, Unsupported
from tisfast.types import DATA_TYPES

PACKAGE: Final = Path(__file__).resolve().parent.parent
WIRE: Final = {kind.config: kind.wire for kind in DATA_TYPES}
SECONDS_MAX: Final = 60.0
"""That a test waits for an answer which the model gives from a thread of its own."""
FINAL: Final = 1


class LocalModel(Model):
    """The model in this folder.  version: its highest by default.  Raises ConfigError, NotFound, and what it raises.

    `close` calls the model's finalize, as leaving a `with` block does.  An asynchronous `execute` has an event loop of
    its own each time.
    """

    def __init__(self, folder: str | Path, version: str | int = "") -> None:
        core = LocalCore(Path(folder).resolve(), str(version))
        self._local = core
        self._submitter = Submitter(1, SECONDS_MAX)
        super().__init__(ModelCore(cast(Any, core), core.name, core.version), self._run_later)

    def _run_later(self, ask: Callable[[Cancel], Any]) -> InferFuture[Any]:
        return self._submitter.submit(ask)

    def close(self) -> None:
        """Finalize the model; it cannot be asked any more.  Again: nothing."""
        self._submitter.end()
        self._submitter.wait(SECONDS_MAX)
        self._local.finalize()

    def __enter__(self) -> LocalModel:
        """For `with`."""
        return self

    def __exit__(self, *_: object) -> None:
        """As `close`."""
        self.close()


class LocalCore:
    """What ModelCore asks, answered here."""

    timeout = SECONDS_MAX

    def __init__(self, folder: Path, version: str) -> None:
        self.name = folder.name
        self.version = version or _highest(folder)
        self.calls = self.transport = self
        self._closed = False
        self._lock = threading.Lock()  # `execute` is called by one thread at a time, as a worker calls it
        self._pb = _pb_utils()
        self._config = _config(folder)
        self._imports = ModelImports(folder, self.version)
        try:
            module = _module(folder, self.version, self._config)
            self._config = _completed(module, self._config, self._pb)
            self._model = module.TritonPythonModel()
            if hasattr(self._model, "initialize"):
                self._model.initialize(self._arguments(folder))
        except BaseException:
            self._imports.end()
            raise

    def _arguments(self, folder: Path) -> dict[str, str]:
        return {
            "model_config": json.dumps(self._config.as_dict),
            "model_instance_kind": "CPU",
            "model_instance_name": f"{self.name}_0",
            "model_instance_device_id": "0",
            "model_repository": str(folder),
            "model_version": self.version,
            "model_name": self.name,
        }

    def finalize(self) -> None:
        """Its end."""
        closed, self._closed = self._closed, True
        if closed:
            return
        try:
            if hasattr(self._model, "finalize"):
                self._model.finalize()
        finally:
            self._imports.end()

    # ---- what a server answers

    async def fetch(self, name: str, scope: object = None, /, **_: Any) -> Any:
        """Metadata and configuration."""
        self._check_open()
        config = self._config.as_dict
        if name == "config":
            return config
        if name != "metadata":
            raise Unsupported(f"a LocalModel has no {name}; it has no server")
        batch = [-1] if config.get("max_batch_size", 0) > 0 else []
        tensors = {role: [_metadata(each, batch) for each in config.get(role, [])] for role in ("input", "output")}
        return {
            "name": self.name,
            "versions": [self.version],
            "platform": "python",
            "inputs": tensors["input"],
            "outputs": tensors["output"],
        }

    async def statistics(self, *_: str) -> Any:
        """Nothing is counted."""
        raise Unsupported("a LocalModel has no statistics; it has no server")

    def ready(self, *_: str) -> bool:
        """It was loaded."""
        self._check_open()
        return True

    async def ask(self, answer: bool) -> bool:
        """Of `ready`."""
        return answer

    async def infer_request(self, request: InferRequest, *_: object) -> Result:
        """One execution with one request."""
        answers = self._execute(request)
        if len(answers) != 1:
            raise Internal(f"model '{self.name}' gave {len(answers)} answers to one request; ask it by stream()")
        return self._result(answers[0], request, final=True)

    def stream(self, request: InferRequest, *deadline: float) -> Any:
        """The call of ModelCore, and then its stream: all answers are there when `execute` has ended."""
        return self._begin(request) if deadline else request

    async def _begin(self, request: InferRequest) -> LocalStream:
        answers = self._execute(request)
        return LocalStream([self._result(each, request, each is answers[-1]) for each in answers])

    # ---- the model

    def _execute(self, request: InferRequest) -> list[Any]:
        decoupled = bool(self._config.decoupled)
        sender = Sender(self._pb)
        made = _request(self._pb, self.name, request, [each["name"] for each in self._config.as_dict["output"]])
        made.sender = sender
        with self._lock:
            self._check_open()
            returned = self._model.execute([made])
            if hasattr(returned, "__await__"):
                with ThreadPoolExecutor(1) as thread:  # an event loop may run in this one
                    returned = thread.submit(asyncio.run, _awaited(returned)).result()
        if decoupled or returned is None or list(returned) == [None]:
            return sender.all(self.name)
        responses = list(returned)
        if len(responses) != 1:
            raise Internal(f"execute of model '{self.name}' returned {len(responses)} responses for 1 request")
        return responses

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed(f"the LocalModel '{self.name}' is closed; make another one")

    def _result(self, response: Any, request: InferRequest, final: bool) -> Result:
        if response.has_error():
            raise Internal(response.error().message())
        wanted = None if request.outputs is None else {each.name for each in request.outputs.outputs}
        if request.outputs is not None and any(each.classes for each in request.outputs.outputs):
            raise BadRequest("a LocalModel gives no classes")
        tensors = [each for each in response.output_tensors() if wanted is None or each.name() in wanted]
        arrays, names = [_array(each.as_numpy()) for each in tensors], tuple(each.name() for each in tensors)
        return result_with(arrays, names, self.name, self.version, request.id, {}, final)


class LocalStream:
    """See transport.Stream."""

    def __init__(self, results: list[Result]) -> None:
        self._results = results

    async def next(self, deadline: float) -> tuple[str, Any] | None:
        """The next answer."""
        return ("", self._results.pop(0)) if self._results else None

    def cancel(self) -> None:
        """No further answer is wanted."""
        self._results = []


class Sender:
    """The response sender of one request."""

    def __init__(self, pb_utils: Any) -> None:
        self._pb = pb_utils
        self._responses: list[Any] = []
        self._ended = threading.Event()

    def send(self, response: Any = None, flags: int = 0) -> None:
        """As Triton's."""
        if self._ended.is_set():
            raise self._pb.TritonModelException("Unable to send response. Response sender has been closed.")
        if response is not None:
            self._responses.append(response)
        if flags & FINAL:
            self._ended.set()

    def is_cancelled(self) -> bool:
        """Nobody cancels."""
        return False

    def all(self, model: str) -> list[Any]:
        """What was sent, when the end is."""
        if not self._ended.wait(SECONDS_MAX):
            raise Internal(f"model '{model}' did not send the final flag within {SECONDS_MAX} s")
        return self._responses


def _highest(folder: Path) -> str:
    versions = [int(path.name) for path in folder.glob("*/") if path.name.isdecimal()] if folder.is_dir() else []
    if not versions:
        raise NotFound(f"{folder} has no folder of a version (1, 2, ...): it is no model")
    return str(max(versions))


def _pb_utils() -> Any:
    """The module that models import."""
    if "triton_python_backend_utils" not in sys.modules:
        for workers in (PACKAGE / "_workers", PACKAGE.parent / "workers"):
            if (workers / "__main__.py").is_file() and str(workers) not in sys.path:
                sys.path.append(str(workers))
    return importlib.import_module("triton_python_backend_utils")


def _config(folder: Path) -> LoadedConfig:
    file = folder / "config.pbtxt"
    text = file.read_text() if file.is_file() else ""
    draft = model_config.parse(text, str(file))
    if not draft.message.backend:
        draft.message.backend = "python"
    if draft.message.backend != "python":
        raise Unsupported(f"{file} names the backend '{draft.message.backend}'; LocalModel runs model.py only")
    return model_config.finish(draft, folder.name, partial=True)


def _completed(module: ModuleType, config: LoadedConfig, pb_utils: Any) -> LoadedConfig:
    complete = getattr(module.TritonPythonModel, "auto_complete_config", None)
    if complete is None:
        return config
    given = complete(pb_utils.ModelConfig(json.dumps(config.as_dict)))
    return auto_complete.merge_completed(config, given.as_json())


class ModelImports:
    """What lies in a model's folders can be imported, as in a worker, until `end`.

    A module of that name which is loaded already, another model's `helper` perhaps, is out of the way meanwhile.
    """

    _open: ClassVar[list[ModelImports]] = []
    """Of this process, as sys.modules is; a later one has put modules of the earlier ones aside."""

    def __init__(self, folder: Path, version: str) -> None:
        self._folders = [str(folder / version), str(folder)]
        files = {path.stem for each in self._folders for path in Path(each).glob("*") if _importable(path)}
        self._names = files | {_module_name(folder, version)}
        self._others = {name: module for name, module in list(sys.modules.items()) if self._has(name)}
        for name in self._others:
            del sys.modules[name]
        sys.path[:0] = self._folders
        importlib.invalidate_caches()
        self._open.append(self)

    def end(self) -> None:
        """The model's modules are forgotten, and the others are back: for who opened later, among what it put aside."""
        if self not in self._open:
            return
        for each in self._folders:
            with suppress(ValueError):
                sys.path.remove(each)
        later = self._open[self._open.index(self) + 1 :]
        self._open.remove(self)
        for place in (sys.modules, *[each._others for each in later]):
            for name, module in list(place.items()):
                if self._place_of(name, later) is place and self._is_mine(module):
                    del place[name]
        for name, module in self._others.items():
            self._place_of(name, later)[name] = module

    def _has(self, module: str) -> bool:
        return module.partition(".")[0] in self._names

    @staticmethod
    def _place_of(name: str, later: list[ModelImports]) -> dict[str, ModuleType]:
        """Where a module lies that this model imported."""
        return next((each._others for each in later if each._has(name)), sys.modules)

    def _is_mine(self, module: ModuleType) -> bool:
        try:  # a module that is loaded when it is used must not be woken
            file = object.__getattribute__(module, "__dict__").get("__file__")
        except AttributeError:
            return False
        return isinstance(file, str) and any(file.startswith(f"{each}/") for each in self._folders)


def _module_name(folder: Path, version: str) -> str:
    return f"{folder.name}_{version}_model"


def _importable(path: Path) -> bool:
    return path.suffix == ".py" or (path / "__init__.py").is_file()


def _module(folder: Path, version: str, config: LoadedConfig) -> ModuleType:
    """The model's file as a module of its own."""
    file = folder / version / (config.default_model_filename or "model.py")
    if not file.is_file():
        raise NotFound(f"{file} is missing: LocalModel runs models that are Python files")
    spec = importlib.util.spec_from_file_location(_module_name(folder, version), file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look for it there
    spec.loader.exec_module(module)
    if not hasattr(module, "TritonPythonModel"):
        raise BadRequest(f"{file} has no class TritonPythonModel")
    return module


def _metadata(tensor: dict[str, Any], batch: list[int]) -> dict[str, Any]:
    return {
        "name": tensor["name"],
        "datatype": WIRE[tensor["data_type"]],
        "shape": [*batch, *map(int, tensor["dims"])],
    }


def _request(pb_utils: Any, model: str, request: InferRequest, outputs: list[str]) -> Any:
    """A request as a model gets it."""

    class LocalRequest(pb_utils.InferenceRequest):  # type: ignore[misc] # whose class is known when models can be run
        sender: Sender

        def get_response_sender(self) -> Sender:
            return self.sender

    parameters = dict(request.parameters or {})
    flags = (1 if parameters.pop("sequence_start", False) else 0) | (2 if parameters.pop("sequence_end", False) else 0)
    tensors = [pb_utils.Tensor(each.name, _writable(array_of(each))) for each in request.tensors]
    wanted = outputs if request.outputs is None else [each.name for each in request.outputs.outputs]
    return LocalRequest(
        request_id=request.id,
        correlation_id=parameters.pop("sequence_id", 0),
        inputs=tensors,
        requested_output_names=wanted,
        model_name=model,
        flags=flags,
        timeout=request.server_timeout_ns // 1000,
        parameters={name: value for name, value in parameters.items() if name != "priority"},
    )


async def _awaited(asked: Awaitable[Any]) -> Any:
    """What it returns, when its tasks have ended, too, which send answers."""
    returned = await asked
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=SECONDS_MAX)
    return returned


def _writable(array: Any) -> Any:
    return array.copy()  # models write into their inputs, and the caller keeps its own


def _array(array: Any) -> Any:
    """Strings are bytes, as from a server."""
    if array.dtype.kind not in "OSU":
        return array
    found = np.empty(array.shape, np.object_)
    found.ravel()[:] = [each.encode() if isinstance(each, str) else bytes(each) for each in array.ravel().tolist()]
    return found
