"""A callable of the user's as what a guest serves: requests in, answers out.

Objects of the worker runtime (`triton_python_backend_utils`) come in and go out; in between are plain arrays.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from tisfast.pytriton.exceptions import PyTritonUnrecoverableError
from tisfast.pytriton.model_config.datatypes import is_text
from tisfast.pytriton.model_config.triton_model_config import TritonModelConfig
from tisfast.pytriton.proxy.tracing import RequestSpans
from tisfast.pytriton.proxy.types import Request
from tisfast.pytriton.proxy.validators import TritonResultsValidator

log = logging.getLogger("tisfast.pytriton")
_TEXT_KINDS: Final = "OSU"
_ONE_RESULT: Final = "Exactly one result must be yielded by a callable of a model that is not decoupled"


class CallableBackend:
    """One callable of one model, as an object with `execute(requests)` (docs/guests.md).

    unrecoverable: told of a PyTritonUnrecoverableError that the callable raised.
    """

    def __init__(
        self,
        callable_: Callable[..., Any],
        config: TritonModelConfig,
        strict: bool,
        unrecoverable: Callable[[PyTritonUnrecoverableError], None],
    ) -> None:
        self._callable, self._unrecoverable = callable_, unrecoverable
        self._name, self._decoupled = config.model_name, config.decoupled
        self._validator = TritonResultsValidator(config, strict)
        self._types = {
            spec.name: None if is_text(spec.dtype) else np.dtype(spec.dtype) for spec in config.outputs or ()
        }
        self._worker = importlib.import_module("triton_python_backend_utils")
        self._told_unknown = False

    def execute(self, requests: Sequence[Any]) -> Any:
        """The answers, or a coroutine of them; None of a decoupled model.  Raises what the callable raises."""
        call = _Call(self, requests)
        try:
            result = self._callable(call.given)
            if inspect.isasyncgen(result):
                return call.later_items(result)
            if inspect.isgenerator(result):
                return call.items(result)
            if inspect.isawaitable(result):
                return call.later(result)
            return call.whole(result)
        except BaseException as error:
            call.failed(error)
            raise

    def request(self, request: Any) -> Request:
        """What the callable sees of a request, but for its span."""
        data = {tensor.name(): tensor.as_numpy() for tensor in request.inputs() if tensor is not None}
        parameters = json.loads(request.parameters())
        wanted = request.requested_output_names()
        return Request(data, parameters, None, list(wanted) if len(wanted) < len(self._types) else None)

    def responses(self, given: Sequence[Request], result: Any) -> list[Any]:
        """An InferenceResponse of each dictionary.  Raises ValueError for what is no result."""
        self._validator.validate_responses(given, result)
        return [self._response(request, outputs) for request, outputs in zip(given, result, strict=True)]

    def final(self) -> int:
        """The flag of the last answer of a stream."""
        flag: int = self._worker.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        return flag

    @property
    def decoupled(self) -> bool:
        """Whether any number of answers goes to a request."""
        return self._decoupled

    def raised(self, error: BaseException) -> None:
        """What a callable raised."""
        if isinstance(error, PyTritonUnrecoverableError):
            self._unrecoverable(error)

    def _response(self, request: Request, outputs: dict[str, np.ndarray[Any, Any]]) -> Any:
        wanted, types = request.requested_output_names, self._types
        if not self._told_unknown and not outputs.keys() <= types.keys():
            self._tell_unknown(outputs)
        tensors = [
            self._worker.Tensor(name, _as_declared(array, types[name]))
            for name, array in outputs.items()
            if name in types and (wanted is None or name in wanted)
        ]
        return self._worker.InferenceResponse(tensors)

    def _tell_unknown(self, outputs: dict[str, Any]) -> None:
        """Once: PyTriton drops it without a word, and its clients miss an output."""
        self._told_unknown = True
        unknown = next(name for name in outputs if name not in self._types)
        log.warning(
            "model '%s': the callable returned '%s', which is left out, as the outputs of the model are %s; bind it "
            "with strict=True to have an error for that",
            *(self._name, unknown, ", ".join(f"'{name}'" for name in self._types) or "none"),
        )


class _Call:
    """One call of the callable: its requests, and what becomes of what it returns."""

    def __init__(self, backend: CallableBackend, requests: Sequence[Any]) -> None:
        self._backend = backend
        self._senders = [request.get_response_sender() for request in requests] if backend.decoupled else []
        self.given = [backend.request(request) for request in requests]
        self._spans = RequestSpans(requests)  # at the end, as whatever raises before `failed` can be called leaves none
        for request, span in zip(self.given, self._spans.spans, strict=True):
            request.span = span

    def whole(self, result: Any) -> list[Any] | None:
        """A list of dictionaries."""
        answers = self._answers(result)
        self._done()
        return answers

    def items(self, items: Iterator[Any]) -> list[Any] | None:
        """What a generator yields."""
        answers: list[list[Any]] = []
        for item in items:
            self._item(item, answers)
            if self._left():
                break
        return self._all(answers)

    async def later(self, result: Awaitable[Any]) -> list[Any] | None:
        """What a coroutine returns."""
        try:
            return self.whole(await result)
        except BaseException as error:
            self.failed(error)
            raise

    async def later_items(self, items: AsyncIterator[Any]) -> list[Any] | None:
        """What an asynchronous generator yields."""
        answers: list[list[Any]] = []
        try:
            async for item in items:
                self._item(item, answers)
                if self._left():
                    break
            return self._all(answers)
        except BaseException as error:
            self.failed(error)
            raise

    def failed(self, error: BaseException) -> None:
        """It has raised; the error goes to all its clients."""
        self._spans.end(error)
        self._backend.raised(error)

    def _item(self, item: Any, answers: list[list[Any]]) -> None:
        if not self._backend.decoupled and answers:
            raise ValueError(f"{_ONE_RESULT}: there is a second one")
        made = self._answers(item)
        if made is not None:
            answers.append(made)

    def _all(self, answers: list[list[Any]]) -> list[Any] | None:
        if not self._backend.decoupled and not answers:
            raise ValueError(f"{_ONE_RESULT}: there is none")
        self._done()
        return answers[0] if answers else None

    def _answers(self, result: Any) -> list[Any] | None:
        """Answers to return; of a decoupled model they are sent."""
        responses = self._backend.responses(self.given, result)
        if not self._backend.decoupled:
            return responses
        for sender, response in zip(self._senders, responses, strict=True):
            sender.send(response)
        return None

    def _done(self) -> None:
        for sender in self._senders:
            sender.send(flags=self._backend.final())
        self._spans.end(None)

    def _left(self) -> bool:
        """Whether all clients of a stream have left, so that nobody reads on."""
        return bool(self._senders) and all(sender.is_cancelled() for sender in self._senders)


def _as_declared(array: np.ndarray[Any, Any], dtype: np.dtype[Any] | None) -> np.ndarray[Any, Any]:
    """An output in its declared type; None is text."""
    if dtype is not None:
        return array if array.dtype == dtype else array.astype(dtype)
    if array.dtype.kind == "U":
        return np.char.encode(array, "utf-8")
    return array if array.dtype.kind in _TEXT_KINDS else array.astype(np.bytes_)
