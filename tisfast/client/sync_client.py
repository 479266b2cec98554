"""The client that waits.  Layer 3 (client)."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from functools import partial
from typing import TYPE_CHECKING, Any

from tisfast import tuning
from tisfast.client.checks import ModelMetadata
from tisfast.client.core import ClientCore
from tisfast.client.futures import InferFuture, Submitter
from tisfast.client.grpc_sync import GrpcTransport
from tisfast.client.http_sync import HttpTransport
from tisfast.client.model_core import ModelCore, ResultStream
from tisfast.client.options import CallOptions, ClientOptions
from tisfast.client.results import Result, joined
from tisfast.client.sequences import SequenceCore
from tisfast.client.transport import Cancel, run

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self, Unpack

    from tisfast.client.calls import JsonDict


def _transport(address: Any, *more: Any) -> GrpcTransport | HttpTransport:
    return (GrpcTransport if address.grpc else HttpTransport)(address, *more)


class Client:
    """A server at HOST:PORT, or at a URL of http, https, grpc or grpcs.  Any number of threads may use it.

    Options are those of ClientOptions.  Nothing is connected before the first call.
    """

    def __init__(self, url: str = "localhost:8000", **options: Unpack[ClientOptions]) -> None:
        self._core = ClientCore(url, _transport, options)
        self._submitter = Submitter(self._core.concurrency, self._core.timeout)
        _alive.add(self)

    def forget(self) -> None:
        """In a forked child: the threads of `submit` are the parent's.  What is closed stays so."""
        self._submitter = self._submitter.anew()

    def model(self, name: str, version: str | int = "") -> Model:
        """A model of the server; nothing is asked before it is used.  version: "" for what its policy serves."""
        return Model(self._core.model(name, version), self._submit)

    def _submit(self, ask: Callable[[Cancel], Any]) -> InferFuture[Any]:
        return self._submitter.submit(ask)  # a forked child has another one

    def live(self) -> bool:
        """The server answers."""
        return run(self._core.live())

    def ready(self) -> bool:
        """The server takes inferences."""
        return run(self._core.ready())

    def metadata(self) -> JsonDict:
        """Name, version and extensions of the server."""
        return run(self._core.metadata())

    def statistics(self, model: str = "", version: str = "") -> list[JsonDict]:
        """Counts and times of a model, or of all."""
        return run(self._core.statistics(model, version))

    def models(self, ready: bool = False) -> list[JsonDict]:
        """What is in the repository: name, version, state and reason; ready: only what is served."""
        return run(self._core.models(ready))

    def load(self, model: str, config: str | None = None, files: dict[str, bytes] | None = None) -> None:
        """Load a model, or load it anew.  config: JSON instead of its file; files: by VERSION/NAME."""
        run(self._core.load(model, config, files))

    def unload(self, model: str, dependents: bool = False) -> None:
        """Unload a model; dependents: and the models that only an ensemble brought."""
        run(self._core.unload(model, dependents))

    def trace_settings(self, model: str = "") -> JsonDict:
        """The trace settings in force, of a model or of all."""
        return run(self._core.trace_settings(model))

    def update_trace_settings(self, settings: JsonDict, model: str = "") -> JsonDict:
        """Change trace settings (None: back to the default); gives those in force."""
        return run(self._core.update_trace_settings(settings, model))

    def log_settings(self) -> JsonDict:
        """The log settings in force."""
        return run(self._core.log_settings())

    def update_log_settings(self, settings: JsonDict) -> JsonDict:
        """Change log settings; gives those in force."""
        return run(self._core.update_log_settings(settings))

    def metrics(self, url: str = "") -> str:
        """The server's metrics in Prometheus' form.  url: HOST[:PORT] of its metrics, else its host; port 8002."""
        return run(self._core.metrics(url))

    def regions(self) -> list[JsonDict]:
        """The registered regions of system shared memory."""
        return run(self._core.regions())

    def register_region(self, name: str, key: str, nbytes: int, offset: int = 0) -> None:
        """Register shared memory of one's own: nbytes at offset of /dev/shm/KEY."""
        run(self._core.register_region(name, key, nbytes, offset))

    def unregister_region(self, name: str = "") -> None:
        """Unregister one region of system shared memory; "": all."""
        run(self._core.unregister_region(name))

    def cuda_regions(self) -> list[JsonDict]:
        """The registered regions of GPU memory."""
        return run(self._core.cuda_regions())

    def register_cuda_region(
        self, name: str, handle: bytes | bytearray | memoryview, nbytes: int, device: int = 0
    ) -> None:
        """Register GPU memory of one's own: its cudaIpcMemHandle_t, 64 bytes, and the GPU's number for the server."""
        run(self._core.register_cuda_region(name, handle, nbytes, device))

    def unregister_cuda_region(self, name: str = "") -> None:
        """Unregister one region of GPU memory; "": all."""
        run(self._core.unregister_cuda_region(name))

    def close(self) -> None:
        """End all calls and connections; the client cannot be used any more.

        Waits at most some seconds: for the server, which unregisters regions, and for the threads of `submit`.
        """
        try:
            self._submitter.end()
        finally:
            run(self._core.close())
        self._submitter.wait(tuning.CLIENT_CANCEL_SECONDS)

    def __enter__(self) -> Self:
        """For `with`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As `close`."""
        self.close()


_alive: weakref.WeakSet[Client] = weakref.WeakSet()


def _forget() -> None:
    for client in list(_alive):
        client.forget()


os.register_at_fork(after_in_child=_forget)


class Model:
    """A model of a server, to be called like a function.

    `model(a, b)` gives inputs in order, and the array itself where the model has one output; `model(A=a, B=b)` by name.
    Else there is a Result.  Keywords of CallOptions are options, where no input has that name.
    """

    def __init__(self, core: ModelCore, submit: Callable[[Callable[[Cancel], Any]], InferFuture[Any]]) -> None:
        self._core = core
        self._submit = submit
        self.name = core.name
        self.version = core.version

    def __call__(self, *values: Any, **named: Any) -> Any:
        """Ask the model.  Raises TisError."""
        return run(self._core.call(values, named))

    def infer(self, inputs: Mapping[str, Any] | SequenceOf[Any], **options: Unpack[CallOptions]) -> Result:
        """Ask the model with inputs by name or in order; always gives a Result."""
        return run(self._core.infer_with(inputs, options))

    def sample(self, *values: Any, **named: Any) -> Any:
        """Ask a model with batches about one sample: without the batch dimension, in and out."""
        return run(self._core.sample_of(values, named))

    def submit(self, *values: Any, **named: Any) -> InferFuture[Any]:
        """As a call, without waiting: a Future, whose `cancel` ends the request.  Client(concurrency=N) bounds them."""
        return self._submit(lambda cancel: run(self._core.call(values, named, cancel)))

    def batches(self, *values: Any, size: int = 0, **named: Any) -> Result:
        """Ask about any number of rows: in requests of at most max_batch_size (or `size`) rows, several at a time."""
        parts = run(self._core.split(values, named, size))
        futures: list[InferFuture[Any]] = []
        try:
            for part in parts:
                futures.append(self._submit(partial(self._part, part)))
            return joined([future.result() for future in futures])
        finally:
            for future in futures:
                future.cancel()

    def _part(self, part: dict[str, Any], cancel: Cancel) -> Any:
        return run(self._core.call((), part, cancel))

    def sequence(self, id: int | str = 0) -> Sequence:
        """Requests that belong together: `with model.sequence() as ask: ask(a); ask(b, last=True)`."""
        return Sequence(SequenceCore(self._core, id))

    def stream(self, *values: Any, **named: Any) -> ResultIterator:
        """Ask a decoupled model (over gRPC): its answers as they come."""
        return ResultIterator(run(self._core.stream_of(values, named)))

    def metadata(self) -> ModelMetadata:
        """Inputs and outputs; asked once."""
        return run(self._core.metadata())

    def config(self) -> JsonDict:
        """Its configuration, completed."""
        return run(self._core.config())

    def ready(self) -> bool:
        """It takes inferences."""
        return run(self._core.ready())

    def statistics(self) -> list[JsonDict]:
        """Counts and times of its versions."""
        return run(self._core.statistics())


class Sequence:
    """One sequence, called like its model.  Start and end are told to the server; see SequenceCore."""

    def __init__(self, core: SequenceCore) -> None:
        self._core = core
        self.id = core.id

    def __call__(self, *values: Any, **named: Any) -> Any:
        """The next request; last=True: none follows."""
        return run(self._core.call(values, named))

    def __enter__(self) -> Self:
        """For `with`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, where no request was marked as the last one."""
        run(self._core.leave(error))


class ResultIterator(Iterator[Result]):
    """The answers of a stream, which ends with its last reference; `cancel`, or a `with` block, ends it at once."""

    def __init__(self, stream: ResultStream) -> None:
        self._stream = stream
        self.cancel = stream.cancel

    def __next__(self) -> Result:
        """The next answer."""
        found = run(self._stream.next())
        if found is None:
            raise StopIteration
        return found

    def __enter__(self) -> Self:
        """For `with`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """No further answer is wanted."""
        self.cancel()

    def __del__(self) -> None:
        """Who leaves a stream has the server stop."""
        self.cancel()
