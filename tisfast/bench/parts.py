"""Several models in one load: each is looked up, and its requests are made.  Layer 5 (bench)."""

from __future__ import annotations

from dataclasses import replace

from tisfast.bench.asked import Asked, ModelShare
from tisfast.bench.session import Model, Part, Session, counted_models, form_of, look_up
from tisfast.bench.steps import steps_of
from tisfast.bench.templates import grpc_templates, http_templates
from tisfast.client import Client, ModelMetadata
from tisfast.errors import BadRequest, TisError


def mixed_session(asked: Asked, client: Client) -> Session:
    """Of `asked.mix`.  Raises TisError with the model's name."""
    looked = [(share, *_looked_up(client, asked, share)) for share in asked.mix]
    decoupled = [share.name for share, _, model in looked if model.decoupled]
    if 0 < len(decoupled) < len(looked):
        raise BadRequest(
            f"--mix: model '{decoupled[0]}' is decoupled and others are not; a stream carries one kind: measure them "
            "apart"
        )
    together = Model(
        ModelMetadata(asked.model, (), "", (), ()),
        {"model_transaction_policy": {"decoupled": bool(decoupled)}},
        looked[0][2].server,
        any(model.statistics for _, _, model in looked),
    )
    parts = [_part(share, one, model) for share, one, model in looked]
    return Session(asked, client, together, (), parts=parts)


def _looked_up(client: Client, asked: Asked, share: ModelShare) -> tuple[Asked, Model]:
    one = replace(asked, model=share.model, version=share.version, data=share.data, mix=())
    model = look_up(client, one)
    if model.sequences:
        raise BadRequest(f"--mix: model '{share.name}' is served in sequences; measure it alone, with -m {share.model}")
    return one, model


def _part(share: ModelShare, one: Asked, model: Model) -> Part:
    try:
        _, steps, _ = steps_of(one, model)
        templates = (grpc_templates if one.address.grpc else http_templates)(form_of(one, model), steps)
    except TisError as error:
        raise BadRequest(f"--mix: model '{share.name}': {error.message}") from None
    return Part(share.name, share.weight, templates, counted_models(one, model) if model.statistics else None)
