"""Requests that belong together.  Layer 3 (client)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from tisfast import tuning
from tisfast.client.calls import Parameters, Scope
from tisfast.client.errors import ConnectionLost, TimedOut
from tisfast.client.options import NO_OPTIONS, sequence_id_of, split_options
from tisfast.errors import BadRequest, TisError

if TYPE_CHECKING:
    from tisfast.client.model_core import ModelCore
    from tisfast.client.results import Result


class SequenceCore:
    """One sequence.  id: of it, a number from 1 on or a text; 0: one that nobody else has.

    The first request starts it.  The last one is marked by `last=True`; if none is, `end` sends the last inputs once
    more, with the end flag, and drops the answer: the protocols have no end without a request.
    """

    def __init__(self, model: ModelCore, id: int | str = 0) -> None:
        self._model = model
        self.id: int | str = sequence_id_of(id) or secrets.randbits(62) + 1
        self._started = False
        self._ended = False
        self._latest: tuple[Sequence[Any], Mapping[str, Any]] | None = None

    async def call(self, values: Sequence[Any], named: dict[str, Any]) -> Any:
        """As a model is called; last=True ends the sequence with this request."""
        scope = self._model.scope(named)
        signature = await self._model.signature(scope)
        inputs, options = split_options(named, signature.inputs)
        scope = self._model.settled(scope, named, options)
        last = "last" not in signature.inputs and bool(inputs.pop("last", False))
        if self._ended:
            raise BadRequest(f"sequence {self.id!r} of model '{self._model.name}' has ended; begin another one")
        parameters: Parameters = {"sequence_id": self.id, "sequence_start": not self._started, "sequence_end": last}
        try:
            result: Result = await self._model.request(signature, values, inputs, options, parameters, scope=scope)
        except (ConnectionLost, TimedOut):
            self._ended = last  # the server may have it, and a request is made once
            raise
        self._latest = (values, inputs)
        self._started = True
        self._ended = last
        return result[0] if not inputs and len(result) == 1 and len(signature.metadata.outputs) == 1 else result

    async def end(self, seconds: float | None = None) -> None:
        """The sequence is over, also for the server; seconds: that it has at most to say so.  Raises TisError."""
        if self._ended or not self._started or self._latest is None:
            return
        self._ended = True
        parameters: Parameters = {"sequence_id": self.id, "sequence_start": False, "sequence_end": True}
        values, named = self._latest
        scope = None if seconds is None else Scope(monotonic() + seconds)
        await self._model.request(await self._model.signature(scope), values, named, NO_OPTIONS, parameters, scope)

    async def leave(self, error: BaseException | None) -> None:
        """End it.  error: it is on its way already, and another one would hide it.

        A block that is left because its time is over, or by Ctrl-C or a cancel, is left soon.
        """
        if error is None:
            await self.end()
            return
        soon = isinstance(error, TimeoutError) or not isinstance(error, Exception)
        with suppress(TisError):
            await self.end(tuning.CLIENT_CANCEL_SECONDS if soon else None)
