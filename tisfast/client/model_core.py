"""One model of a server.  Layer 3 (client)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

from tisfast.client.calls import InferRequest, JsonDict, Parameters, Scope
from tisfast.client.checks import Missing, ModelMetadata, Signature, metadata_of, optional_inputs
from tisfast.client.errors import Cancelled, TimedOut
from tisfast.client.options import (
    NO_OPTIONS,
    CallOptions,
    are_headers,
    as_seconds,
    call_timeout,
    checked_call,
    request_parameters,
    rows_of,
    split_options,
    version_of,
    wanted_outputs,
)
from tisfast.client.results import Result, result_of
from tisfast.errors import BadRequest, NotFound, TisError, Unavailable, Unknown

if TYPE_CHECKING:
    from tisfast.client.core import ClientCore
    from tisfast.client.transport import Cancel, Stream
    from tisfast.wire.client_response import InferResponse


BATCH_TOO_LARGE: Final = "batch-size must be <="
DECOUPLED: Final = "decoupled transaction policy"
"""Of Triton's errors, and ours."""


class ModelCore:
    """See Model (sync_client.py), whose calls wait where these are awaited."""

    def __init__(self, core: ClientCore, name: str, version: str | int) -> None:
        if not isinstance(name, str) or not name:
            raise BadRequest(f"{name!r:.100} is no name of a model, which is a text")
        self._core = core
        self.name = name
        self.version = version_of(name, version)
        self._signature: Signature | None = None
        self._optional: frozenset[str] | None = None

    # ---- what it is

    async def metadata(self) -> ModelMetadata:
        """Inputs and outputs; asked once."""
        return (await self.signature()).metadata

    async def signature(self, scope: Scope | None = None) -> Signature:
        """Its inputs, as values are held against them."""
        return self._signature or await self._fetch(scope)

    def scope(self, named: Mapping[str, Any], cancel: Cancel | None = None) -> Scope | None:
        """What a call's keywords say of all its requests; None: there is one, which says so itself.

        A keyword may be an input of that name, so what is no timeout and no headers counts for nothing here.
        """
        if self._signature is not None and cancel is None:
            return None
        timeout, headers = named.get("timeout"), named.get("headers")
        seconds = as_seconds(timeout) or self._core.timeout
        sent = headers if headers is not None and are_headers(headers) else None
        return Scope(monotonic() + seconds, sent, cancel, seconds)

    def settled(self, scope: Scope | None, named: Mapping[str, Any], options: CallOptions) -> Scope | None:
        """The scope, now that it is known which keywords are inputs: these bound nothing and are no headers."""
        if scope is None:
            return None
        if "timeout" in named and "timeout" not in options:
            seconds = self._core.timeout
            scope = scope._replace(deadline=monotonic() + seconds, seconds=seconds)
        return scope._replace(headers=options.get("headers"))

    def _scope_of(self, options: CallOptions) -> Scope:
        seconds = call_timeout(options) or self._core.timeout
        return Scope(monotonic() + seconds, options.get("headers"), None, seconds)

    async def _fetch(self, scope: Scope | None = None) -> Signature:
        answer = await self._core.fetch("metadata", scope, model=self.name, version=self.version)
        self._signature = Signature(metadata_of(answer))
        return self._signature

    async def config(self, scope: Scope | None = None) -> JsonDict:
        """Its configuration, completed."""
        return cast(JsonDict, await self._core.fetch("config", scope, model=self.name, version=self.version))

    async def ready(self) -> bool:
        """It takes inferences; a model that the server does not know is not ready."""
        try:
            return await self._core.ask(self._core.calls.ready(self.name, self.version))
        except (BadRequest, NotFound, Unavailable):
            return False
        except TimedOut as error:
            raise self._core.late(error, self.name, self._core.timeout) from None

    async def statistics(self) -> list[JsonDict]:
        """Counts and times of its versions."""
        return await self._core.statistics(self.name, self.version)

    # ---- inferences

    async def call(self, values: Sequence[Any], named: dict[str, Any], cancel: Cancel | None = None) -> Any:
        """model(...): the array of the only output for values by position, else the Result."""
        scope = None if self._signature is not None and cancel is None else self.scope(named, cancel)
        signature = self._signature or await self._fetch(scope)
        inputs, options = split_options(named, signature.inputs)
        scope = self.settled(scope, named, options)
        result = await self.request(signature, values, inputs, options, scope=scope)
        return result[0] if not inputs and len(result) == 1 and len(signature.metadata.outputs) == 1 else result

    async def infer_with(
        self, inputs: Mapping[str, Any] | Sequence[Any], options: CallOptions = NO_OPTIONS, cancel: Cancel | None = None
    ) -> Result:
        """The Result for inputs by name or in order."""
        checked_call(options)
        if not isinstance(inputs, Mapping | Sequence) or isinstance(inputs, str | bytes):
            raise BadRequest(
                f"the inputs of model '{self.name}' are {type(inputs).__name__}; "
                "infer takes a mapping of them by name, or a list of them in order"
            )
        scope = self.scope(options, cancel)
        signature = self._signature or await self._fetch(scope)
        values, named = ((), inputs) if isinstance(inputs, Mapping) else (inputs, {})
        return await self.request(signature, values, named, options, scope=scope)

    async def sample_of(self, values: Sequence[Any], named: dict[str, Any], cancel: Cancel | None = None) -> Any:
        """As `call`, for one sample of a model with batches: the batch dimension is added, and taken away again."""
        scope = self.scope(named, cancel)
        signature = self._signature or await self._fetch(scope)
        inputs, options = split_options(named, signature.inputs)
        scope = self.settled(scope, named, options)
        one = [None if value is None else signature.batch_of_one(at, value) for at, value in enumerate(values)]
        more = {name: signature.batch_of_one(name, value) for name, value in inputs.items()}
        answer = await self.request(signature, one, more, options, scope=scope)
        result = Result.mapped(answer, lambda array: array[0])  # an output may have that name, too
        return result[0] if not inputs and len(result) == 1 and len(signature.metadata.outputs) == 1 else result

    async def request(
        self,
        signature: Signature,
        values: Sequence[Any],
        named: Mapping[str, Any],
        options: CallOptions,
        more: Parameters | None = None,
        scope: Scope | None = None,
    ) -> Result:
        """One inference.  more: parameters of a sequence, whose requests are made once and not again.

        scope: of the call, where it has made another request already, or can be cancelled.
        """
        request, timeout = await self._request(signature, values, named, options, more, scope)
        once = more is not None or options.get("retry") is False
        cancel = None if scope is None else scope.cancel
        try:
            response = await self._core.infer_request(request, timeout, not once, cancel)
        except TimedOut as error:
            raise self._late(error, call_timeout(options), scope) from None
        except TisError as error:
            _advise(error, request)
            raise
        return response if isinstance(response, Result) else result_of(response)

    def _late(self, error: TimedOut, seconds: float | None, scope: Scope | None) -> TimedOut:
        own = scope.seconds if scope is not None else 0.0
        return self._core.late(error, self.name, seconds or own or self._core.timeout)

    async def _request(
        self,
        signature: Signature,
        values: Sequence[Any],
        named: Mapping[str, Any],
        options: CallOptions,
        more: Parameters | None,
        scope: Scope | None,
    ) -> tuple[InferRequest, float | None]:
        timeout = call_timeout(options)
        try:
            tensors = signature.bind(values, named, self._optional)
        except BadRequest as error:
            if scope is None:
                scope = self._scope_of(options)
            signature = await self._learn(signature, error, scope)
            tensors = signature.bind(values, named, self._optional)
        left = timeout if scope is None else scope.deadline - monotonic()
        if options is NO_OPTIONS and more is None:
            return InferRequest(self.name, self.version, tensors, served=signature.output_names), left
        parameters = request_parameters(options)
        return (
            InferRequest(
                self.name,
                self.version,
                tensors,
                wanted_outputs(options, signature.metadata.outputs, self.name),
                parameters if more is None else {**(parameters or {}), **more},
                options.get("id") or "",
                options.get("headers"),
                0 if timeout is None else int(timeout * 1e9),
                signature.output_names,
            ),
            left,
        )

    async def _learn(self, signature: Signature, error: BadRequest, scope: Scope) -> Signature:
        """Values do not fit: perhaps an input may be left out, or the model has changed since it was asked."""
        if isinstance(error, Missing) and self._optional is None:
            try:
                self._optional = optional_inputs(await self.config(scope))
            except (Cancelled, TimedOut):
                raise
            except TisError:  # who may not read configurations
                self._optional = frozenset(signature.inputs)
            return signature
        try:
            return await self._fetch(scope)
        except (Cancelled, TimedOut):
            raise
        except TisError:
            raise error from None

    # ---- many

    async def split(self, values: Sequence[Any], named: dict[str, Any], size: int) -> list[dict[str, Any]]:
        """Requests of at most `size` rows each (0: the model's max_batch_size), as inputs by name and options."""
        size = rows_of(size)
        scope = self.scope(named)
        signature = await self.signature(scope)
        inputs, options = split_options(named, signature.inputs)
        scope = self.settled(scope, named, options)
        by_name = {**signature.by_position(values), **inputs}
        arrays = {name: signature.array(name, value) for name, value in by_name.items()}
        rows = {len(array) if array.ndim else -1 for array in arrays.values()}
        if len(rows) != 1 or -1 in rows:
            shapes = ", ".join(f"{name}{list(array.shape)}" for name, array in arrays.items())
            raise BadRequest(f"the inputs of model '{self.name}' must have the same number of rows, they are {shapes}")
        if size == 0:
            config = await self.config(scope or self._scope_of(options))
            size = int(config.get("max_batch_size", 0))
            if size <= 0:
                raise BadRequest(f"model '{self.name}' has no batches (max_batch_size is 0); call it for each sample")
        count = rows.pop()
        starts = range(0, count, size) if count else range(1)
        return [{**{name: array[at : at + size] for name, array in arrays.items()}, **options} for at in starts]

    # ---- streams

    async def stream_of(self, values: Sequence[Any], named: dict[str, Any]) -> ResultStream:
        """The answers of a decoupled model to one request."""
        scope = self.scope(named)
        signature = self._signature or await self._fetch(scope)
        inputs, options = split_options(named, signature.inputs)
        scope = self.settled(scope, named, options)
        request, left = await self._request(signature, values, inputs, options, None, scope)
        timeout = None if options.get("timeout") is None else left
        call = self._core.calls.stream(request)
        until = None if timeout is None else monotonic() + timeout
        try:
            stream = await self._core.transport.stream(call, until or monotonic() + self._core.timeout)
        except TimedOut as error:
            raise self._late(error, options.get("timeout"), scope) from None
        return ResultStream(
            stream, until, self._core.timeout, lambda late: self._late(late, options.get("timeout"), scope)
        )


def _advise(error: TisError, request: InferRequest) -> None:
    """A server's refusal that the client knows a way around."""
    if BATCH_TOO_LARGE in error.message and request.tensors:
        rows = request.tensors[0].shape[0]
        error.reword(lambda text: f"{text}; {rows} rows were given: model.batches(...) asks about any number of them")
    elif DECOUPLED in error.message:
        error.reword(lambda text: f"{text}; ask it by model.stream(...), with a client of grpc://HOST:PORT")


class ResultStream:
    """The answers to one request, in order.

    until: when it ends at the latest; seconds: else, between two answers; late: what is said of an answer in vain.
    """

    def __init__(
        self,
        stream: Stream[tuple[str, InferResponse | Result]],
        until: float | None,
        seconds: float,
        late: Callable[[TimedOut], TimedOut],
    ) -> None:
        self._stream = stream
        self._until = until
        self._seconds = seconds
        self._late = late
        self.cancel = stream.cancel

    async def next(self) -> Result | None:
        """The next answer with outputs; None: there is none."""
        while True:
            try:
                answer = await self._stream.next(self._until or monotonic() + self._seconds)
            except TimedOut as late:
                raise self._late(late) from None
            if answer is None:
                return None
            error, response = answer
            if error:
                self._stream.cancel()
                raise Unknown(error)
            result = response if isinstance(response, Result) else result_of(response)
            if len(result):
                return result
