"""Several models in one load: each is looked up, and its requests are made.  Layer 5 (bench)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from tisfast.bench.asked import Asked, Data, ModelShare, Replay
from tisfast.bench.inputs import Reading, request_of
from tisfast.bench.mix_file import MODELS_MAX
from tisfast.bench.replay import FORM, Line, from_start, read_lines
from tisfast.bench.session import Model, Part, Session, counted_models, form_of, look_up
from tisfast.bench.steps import steps_of
from tisfast.bench.templates import Step, grpc_templates, http_templates
from tisfast.client import Client, ModelMetadata
from tisfast.client.checks import optional_inputs
from tisfast.errors import BadRequest, TisError


class Looked(NamedTuple):
    """One of the models, as the server knows it.  flag: that brought it, for errors."""

    share: ModelShare
    one: Asked
    model: Model
    flag: str


def mixed_session(asked: Asked, client: Client, flag: str = "--mix") -> Session:
    """Of `asked.mix` or `asked.replay`.  flag: that brought the mix.  Raises TisError with the model's name."""
    if asked.replay is not None:
        return _replayed(asked, asked.replay, client)
    looked = [_looked_up(client, asked, share, flag) for share in asked.mix]
    together = _together(asked, looked)
    return Session(asked, client, together, (), parts=[_part(each, _steps(each)) for each in looked])


def _looked_up(client: Client, asked: Asked, share: ModelShare, flag: str) -> Looked:
    one = replace(asked, model=share.model, version=share.version, data=share.data, mix=(), replay=None)
    model = look_up(client, one)
    if model.sequences:
        raise BadRequest(
            f"{flag}: model '{share.name}' is served in sequences; measure it alone, with -m {share.model}"
        )
    return Looked(share, one, model, flag)


def _together(asked: Asked, looked: Sequence[Looked]) -> Model:
    """What holds for all of them."""
    decoupled = [each.share.name for each in looked if each.model.decoupled]
    if 0 < len(decoupled) < len(looked):
        raise BadRequest(
            f"{looked[0].flag}: model '{decoupled[0]}' is decoupled and others are not; a stream carries one kind: "
            "measure them apart"
        )
    return Model(
        ModelMetadata(asked.model, (), "", (), ()),
        {"model_transaction_policy": {"decoupled": bool(decoupled)}},
        looked[0].model.server,
        any(each.model.statistics for each in looked),
    )


def _steps(looked: Looked) -> Sequence[Step]:
    try:
        _, steps, _ = steps_of(looked.one, looked.model)
    except TisError as error:
        here = '; in the file that is "shape": {"NAME": [D1, D2]}' if "--shape" in error.message else ""
        raise BadRequest(f"{looked.flag}: model '{looked.share.name}': {error.message}{here}") from None
    return steps


def _part(looked: Looked, steps: Sequence[Step]) -> Part:
    share, one, model, flag = looked
    try:
        templates = (grpc_templates if one.address.grpc else http_templates)(form_of(one, model), steps)
    except TisError as error:
        raise BadRequest(f"{flag}: model '{share.name}': {error.message}") from None
    return Part(share.name, share.weight, templates, counted_models(one, model) if model.statistics else None)


@dataclass
class _Replayed:
    """Requests of one model.  numbers: of them among all, in the order of the file."""

    looked: Looked
    reading: Reading
    steps: list[Step] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)


def _replayed(asked: Asked, replay: Replay, client: Client) -> Session:
    models, times = _read(asked, replay, client, read_lines(replay.path, FORM, replay.speed))
    position = np.empty(len(times), np.uint32)  # of each request among the templates, which lie model by model
    position[np.concatenate([each.numbers for each in models])] = np.arange(len(times), dtype=np.uint32)
    due = from_start(times, replay.speed)
    order = np.argsort(due, kind="stable")
    together = _together(asked, [each.looked for each in models])
    parts = [_part(each.looked, each.steps) for each in models]
    timed = asked.at_times([due[at] for at in order.tolist()])
    return Session(timed, client, together, (), parts=parts, order=position[order])


def _read(
    asked: Asked, replay: Replay, client: Client, lines: Iterable[Line]
) -> tuple[Sequence[_Replayed], Sequence[float]]:
    """A model is looked up when the first request for it comes."""
    models: dict[tuple[str, str], _Replayed] = {}
    times: list[float] = []
    for line in lines:
        key = (line.model(replay.model), line.version(replay.version))
        if key not in models:
            if len(models) == MODELS_MAX:
                raise BadRequest(f"--replay {replay.path}: it has more than {MODELS_MAX} models: cut it in two")
            models[key] = _known(client, asked, key)
        one = models[key]
        one.steps.append(_step(line, one.reading, asked.data.parameters))
        one.numbers.append(len(times))
        times.append(line.at_ms)
    return list(models.values()), times


def _known(client: Client, asked: Asked, key: tuple[str, str]) -> _Replayed:
    looked = _looked_up(client, asked, ModelShare(*key, 1.0, Data()), "--replay")
    return _Replayed(looked, Reading(looked.model.metadata, optional=optional_inputs(looked.model.config)))


def _step(line: Line, reading: Reading, parameters: Mapping[str, Any]) -> Step:
    found = request_of(line.place, line.step(), reading)
    return Step(found.tensors, {**parameters, **found.parameters})
