"""The client that is awaited.  Layer 3 (client)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from tisfast.client.core import ClientCore
from tisfast.client.grpc_async import AsyncGrpcTransport
from tisfast.client.http_async import AsyncHttpTransport
from tisfast.client.model_core import ModelCore, ResultStream
from tisfast.client.options import CallOptions, ClientOptions
from tisfast.client.results import Result, joined
from tisfast.client.sequences import SequenceCore

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self, Unpack


def _transport(address: Any, *more: Any) -> AsyncGrpcTransport | AsyncHttpTransport:
    return (AsyncGrpcTransport if address.grpc else AsyncHttpTransport)(address, *more)


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class AsyncClient(ClientCore):
    """The same as Client, for one event loop: all calls are awaited, any number at a time.

    Whoever cancels a task that awaits a call has the server stop.
    """

    def __init__(self, url: str = "localhost:8000", **options: Unpack[ClientOptions]) -> None:
        super().__init__(url, _transport, options)

    def model(self, name: str, version: str | int = "") -> AsyncModel:
        """A model of the server; nothing is asked before it is used."""
        return AsyncModel(self, name, version)

    async def __aenter__(self) -> Self:
        """For `async with`."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As `close`."""
        await self.close()


class AsyncModel(ModelCore):
    """A model of a server: `await model(a, b)`.  See Model."""

    async def __call__(self, *values: Any, **named: Any) -> Any:
        """Ask the model.  Raises TisError."""
        return await self.call(values, named)

    async def infer(self, inputs: Mapping[str, Any] | Sequence[Any], **options: Unpack[CallOptions]) -> Result:
        """Ask the model with inputs by name or in order; always gives a Result."""
        return await self.infer_with(inputs, options)

    async def sample(self, *values: Any, **named: Any) -> Any:
        """Ask a model with batches about one sample: without the batch dimension, in and out."""
        return await self.sample_of(values, named)

    async def batches(self, *values: Any, size: int = 0, **named: Any) -> Result:
        """Ask about any number of rows: in requests of at most max_batch_size (or `size`) rows, several at a time."""
        room = asyncio.Semaphore(self._core.concurrency)

        async def ask(part: dict[str, Any]) -> Result:
            async with room:
                return cast(Result, await self.call((), part))

        tasks = [asyncio.ensure_future(ask(part)) for part in await self.split(values, named, size)]
        try:
            return joined(list(await asyncio.gather(*tasks)))
        finally:
            for task in tasks:
                task.cancel()

    def sequence(self, id: int | str = 0) -> AsyncSequence:
        """Requests that belong together: `async with model.sequence() as ask: await ask(a)`."""
        return AsyncSequence(SequenceCore(self, id))

    def stream(self, *values: Any, **named: Any) -> AsyncResults:
        """Ask a decoupled model (over gRPC): `async for answer in model.stream(...)`."""
        return AsyncResults(self, values, named)


class AsyncSequence:
    """See Sequence."""

    def __init__(self, core: SequenceCore) -> None:
        self._core = core
        self.id = core.id

    async def __call__(self, *values: Any, **named: Any) -> Any:
        """The next request; last=True: none follows."""
        return await self._core.call(values, named)

    async def __aenter__(self) -> Self:
        """For `async with`."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, where no request was marked as the last one."""
        await self._core.leave(error)


class AsyncResults(AsyncIterator[Result]):
    """The answers of a stream, which begins with the first that is awaited.

    It ends with its last reference, as when `async for` is left; `cancel` ends it at once.
    """

    def __init__(self, model: AsyncModel, values: Sequence[Any], named: dict[str, Any]) -> None:
        self._model, self._values, self._named = model, values, named
        self._stream: ResultStream | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cancelled = False

    async def __anext__(self) -> Result:
        """The next answer."""
        if self._stream is None and not self._cancelled:
            self._stream = await self._model.stream_of(self._values, self._named)
            self._loop = asyncio.get_running_loop()
        if self._cancelled:
            self.cancel()
        found = None if self._stream is None else await self._stream.next()
        if found is None:
            self._loop = None
            raise StopAsyncIteration
        return found

    def cancel(self) -> None:
        """No further answer is wanted, and none is given; the server is told.  From any thread."""
        self._cancelled = True
        loop = self._loop
        if self._stream is None or loop is None:
            return
        if _runs_here(loop):
            self._stream.cancel()
        else:
            with suppress(RuntimeError):  # that loop is closed, and its connections with it
                loop.call_soon_threadsafe(self._stream.cancel)

    async def __aenter__(self) -> Self:
        """For `async with`."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """No further answer is wanted."""
        self.cancel()

    def __del__(self) -> None:
        """Who leaves a stream has the server stop; this may be told to any thread."""
        if self._stream is not None and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and with it the connection
                self._loop.call_soon_threadsafe(self._stream.cancel)
