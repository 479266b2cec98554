"""From what is asked to a session that can measure: the requests, where their tensors lie, Ctrl-C.  Layer 5 (bench)."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tisfast.bench.asked import Asked
from tisfast.bench.drawn_inputs import Drawn, Strings
from tisfast.bench.inputs import Reading, read_inputs
from tisfast.bench.measure import Stop
from tisfast.bench.session import Model, Session
from tisfast.bench.shared_steps import placed
from tisfast.bench.templates import Step
from tisfast.client import Client
from tisfast.client.checks import optional_inputs
from tisfast.wire.client_request import WantedOutput


@contextmanager
def prepared(client: Client, asked: Asked, model: Model) -> Iterator[Session]:
    """A session with its requests; their regions of shared memory are held until the end.  Raises TisError."""
    asked, steps, streams = _steps(asked, model)
    places: Sequence[WantedOutput] = ()
    with ExitStack() as held:
        if asked.output_bytes:
            outputs = [each.name for each in model.metadata.outputs]
            where = held.enter_context(placed(client, steps, outputs, asked.output_bytes, on_gpu=asked.on_gpu))
            steps, places = where.steps, where.outputs
        yield Session(asked, client, model, steps, streams, places)


def _steps(asked: Asked, model: Model) -> tuple[Asked, list[Step], Sequence[int]]:
    """What is sent, and how many steps each stream has.  Of a fixed schedule the data says when it is sent."""
    given = asked.data
    if asked.endpoint:
        return asked, [], ()  # the session reads bodies
    if given.files:
        optional = optional_inputs(model.config)
        data = read_inputs(given.files, Reading(model.metadata, model.batches, dict(given.shapes), optional))
        requests = data.requests(asked.batch_size)
        if asked.fixed_schedule:
            times = data.timestamps()
            requests = [requests[at] for at in sorted(range(len(times)), key=times.__getitem__)]
            asked = asked.at_times(sorted(times))
        steps = [Step(each.tensors, {**given.parameters, **each.parameters}, each.check) for each in requests]
        return asked, steps, [len(each) for each in data.streams]
    drawn = Drawn(
        model.metadata,
        model.batches,
        asked.batch_size,
        dict(given.shapes),
        zero=given.zero,
        seed=asked.seed,
        strings=Strings(given.string_length, given.string_data),
    )
    return asked, [Step(drawn.tensors(), given.parameters)], ()


@contextmanager
def stoppable(say: Callable[[str], None], *signals: int) -> Iterator[Stop]:
    """The first Ctrl-C (or one of `signals`) ends the measurement with what there is; the second one the process."""
    stop = Stop()

    def interrupted(number: int, _: Any) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True
        say(f"Interrupt signal ({number}) received.\nWaiting for in-flight inferences to complete.")

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, *signals)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
