"""The steps of a model: its input data as requests.  Layer 5 (bench)."""

from __future__ import annotations

from collections.abc import Sequence

from tisfast.bench.asked import Asked
from tisfast.bench.drawn_inputs import Drawn, Strings
from tisfast.bench.inputs import Reading, read_inputs
from tisfast.bench.session import Model
from tisfast.bench.templates import Step
from tisfast.client.checks import optional_inputs


def steps_of(asked: Asked, model: Model) -> tuple[Asked, list[Step], Sequence[int]]:
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
