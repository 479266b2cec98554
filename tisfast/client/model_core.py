"""One model of a server.  Layer 3 (client)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from tisfast.client.calls import InferRequest, JsonDict, Parameters
from tisfast.client.checks import Missing, ModelMetadata, Signature, metadata_of, optional_inputs
from tisfast.client.options import (
    NO_OPTIONS,
    CallOptions,
    call_timeout,
    checked_call,
    request_parameters,
    split_options,
    wanted_outputs,
)
from tisfast.client.results import Result, result_of
from tisfast.errors import BadRequest, NotFound, TisError, Unavailable, Unknown

if TYPE_CHECKING:
    from tisfast.client.core import ClientCore
    from tisfast.client.transport import Cancel, Stream
    from tisfast.wire.client_response import InferResponse


class ModelCore:
    """See Model (sync_client.py), whose calls wait where these are awaited."""

    def __init__(self, core: ClientCore, name: str, version: str) -> None:
        self._core = core
        self.name = name
        self.version = version
        self._signature: Signature | None = None
        self._optional: frozenset[str] | None = None

    # ---- what it is

    async def metadata(self) -> ModelMetadata:
        """Inputs and outputs; asked once."""
        return (await self.signature()).metadata

    async def signature(self) -> Signature:
        """Its inputs, as values are held against them."""
        return self._signature or await self._fetch()

    async def _fetch(self) -> Signature:
        answer = await self._core.fetch("metadata", model=self.name, version=self.version)
        self._signature = Signature(metadata_of(answer))
        return self._signature

    async def config(self) -> JsonDict:
        """Its configuration, completed."""
        return cast(JsonDict, await self._core.fetch("config", model=self.name, version=self.version))

    async def ready(self) -> bool:
        """It takes inferences; a model that the server does not know is not ready."""
        try:
            return await self._core.ask(self._core.calls.ready(self.name, self.version))
        except (BadRequest, NotFound, Unavailable):
            return False

    async def statistics(self) -> list[JsonDict]:
        """Counts and times of its versions."""
        return await self._core.statistics(self.name, self.version)

    # ---- inferences

    async def call(self, values: Sequence[Any], named: dict[str, Any], cancel: Cancel | None = None) -> Any:
        """model(...): the array of the only output for values by position, else the Result."""
        signature = self._signature or await self._fetch()
        inputs, options = split_options(named, signature.inputs)
        result = await self.request(signature, values, inputs, options, cancel=cancel)
        return result[0] if not inputs and len(result) == 1 and len(signature.metadata.outputs) == 1 else result

    async def infer_with(
        self, inputs: Mapping[str, Any] | Sequence[Any], options: CallOptions = NO_OPTIONS, cancel: Cancel | None = None
    ) -> Result:
        """The Result for inputs by name or in order."""
        signature = self._signature or await self._fetch()
        values, named = ((), inputs) if isinstance(inputs, Mapping) else (inputs, {})
        return await self.request(signature, values, named, checked_call(options), cancel=cancel)

    async def sample_of(self, values: Sequence[Any], named: dict[str, Any], cancel: Cancel | None = None) -> Any:
        """As `call`, for one sample of a model with batches: the batch dimension is added, and taken away again."""
        signature = self._signature or await self._fetch()
        inputs, options = split_options(named, signature.inputs)
        one = [None if value is None else signature.batch_of_one(at, value) for at, value in enumerate(values)]
        more = {name: signature.batch_of_one(name, value) for name, value in inputs.items()}
        result = (await self.request(signature, one, more, options, cancel=cancel)).mapped(lambda array: array[0])
        return result[0] if not inputs and len(result) == 1 and len(signature.metadata.outputs) == 1 else result

    async def request(
        self,
        signature: Signature,
        values: Sequence[Any],
        named: Mapping[str, Any],
        options: CallOptions,
        more: Parameters | None = None,
        cancel: Cancel | None = None,
    ) -> Result:
        """One inference.  more: parameters of a sequence, whose requests are made once and not again."""
        request, timeout = await self._request(signature, values, named, options, more)
        once = more is not None or not options.get("retry", True)
        response = await self._core.infer_request(request, timeout, not once, cancel)
        return response if isinstance(response, Result) else result_of(response)

    async def _request(
        self,
        signature: Signature,
        values: Sequence[Any],
        named: Mapping[str, Any],
        options: CallOptions,
        more: Parameters | None,
    ) -> tuple[InferRequest, float | None]:
        try:
            tensors = signature.bind(values, named, self._optional)
        except BadRequest as error:
            signature = await self._learn(signature, error)
            tensors = signature.bind(values, named, self._optional)
        if options is NO_OPTIONS and more is None:
            return InferRequest(self.name, self.version, tensors), None
        timeout = call_timeout(options)
        parameters = request_parameters(options)
        return (
            InferRequest(
                self.name,
                self.version,
                tensors,
                wanted_outputs(options, signature.metadata.outputs, self.name),
                parameters if more is None else {**(parameters or {}), **more},
                options.get("id", ""),
                options.get("headers"),
                0 if timeout is None else int(timeout * 1e9),
            ),
            timeout,
        )

    async def _learn(self, signature: Signature, error: BadRequest) -> Signature:
        """Values do not fit: perhaps an input may be left out, or the model has changed since it was asked."""
        if isinstance(error, Missing) and self._optional is None:
            try:
                self._optional = optional_inputs(await self.config())
            except TisError:  # who may not read configurations
                self._optional = frozenset(signature.inputs)
            return signature
        try:
            return await self._fetch()
        except TisError:
            raise error from None

    # ---- many

    async def split(self, values: Sequence[Any], named: dict[str, Any], size: int) -> list[dict[str, Any]]:
        """Requests of at most `size` rows each (0: the model's max_batch_size), as inputs by name and options."""
        signature = await self.signature()
        inputs, options = split_options(named, signature.inputs)
        by_name = {**dict(zip(signature.inputs, values, strict=False)), **inputs}
        arrays = {name: signature.array(name, value) for name, value in by_name.items()}
        rows = {len(array) if array.ndim else -1 for array in arrays.values()}
        if len(rows) != 1 or -1 in rows:
            shapes = ", ".join(f"{name}{list(array.shape)}" for name, array in arrays.items())
            raise BadRequest(f"the inputs of model '{self.name}' must have the same number of rows, they are {shapes}")
        if size <= 0:
            size = int((await self.config()).get("max_batch_size", 0))
            if size <= 0:
                raise BadRequest(f"model '{self.name}' has no batches (max_batch_size is 0); call it for each sample")
        count = rows.pop()
        starts = range(0, count, size) if count else range(1)
        return [{**{name: array[at : at + size] for name, array in arrays.items()}, **options} for at in starts]

    # ---- streams

    async def stream_of(self, values: Sequence[Any], named: dict[str, Any]) -> ResultStream:
        """The answers of a decoupled model to one request."""
        signature = self._signature or await self._fetch()
        inputs, options = split_options(named, signature.inputs)
        request, timeout = await self._request(signature, values, inputs, options, None)
        call = self._core.calls.stream(request)
        until = None if timeout is None else monotonic() + timeout
        stream = await self._core.transport.stream(call, until or monotonic() + self._core.timeout)
        return ResultStream(stream, self.name, until, self._core.timeout)


class ResultStream:
    """The answers to one request, in order.  until: when it ends at the latest; seconds: else, between two answers."""

    def __init__(
        self, stream: Stream[tuple[str, InferResponse | Result]], model: str, until: float | None, seconds: float
    ) -> None:
        self._stream = stream
        self._model = model
        self._until = until
        self._seconds = seconds
        self.cancel = stream.cancel

    async def next(self) -> Result | None:
        """The next answer with outputs; None: there is none."""
        while True:
            answer = await self._stream.next(self._until or monotonic() + self._seconds)
            if answer is None:
                return None
            error, response = answer
            if error:
                self._stream.cancel()
                raise Unknown(error)
            result = response if isinstance(response, Result) else result_of(response)
            if len(result):
                return result
