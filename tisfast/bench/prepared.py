"""From what is asked to a session that can measure: the requests, where their tensors lie, Ctrl-C.  Layer 5 (bench)."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tisfast.bench.asked import Asked
from tisfast.bench.measure import Stop
from tisfast.bench.session import Model, Session
from tisfast.bench.shared_steps import placed
from tisfast.bench.steps import steps_of
from tisfast.client import Client
from tisfast.wire.client_request import WantedOutput


@contextmanager
def prepared(client: Client, asked: Asked, model: Model) -> Iterator[Session]:
    """A session with its requests; their regions of shared memory are held until the end.  Raises TisError."""
    asked, steps, streams = steps_of(asked, model)
    places: Sequence[WantedOutput] = ()
    with ExitStack() as held:
        if asked.output_bytes:
            outputs = [each.name for each in model.metadata.outputs]
            where = held.enter_context(placed(client, steps, outputs, asked.output_bytes, on_gpu=asked.on_gpu))
            steps, places = where.steps, where.outputs
        yield Session(asked, client, model, steps, streams, places)


@contextmanager
def stoppable(say: Callable[[str], None]) -> Iterator[Stop]:
    """The first Ctrl-C ends the measurement with what there is; the second one the process."""
    stop = Stop()

    def interrupted(number: int, _: Any) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True
        say(f"Interrupt signal ({number}) received.\nWaiting for in-flight inferences to complete.")

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
