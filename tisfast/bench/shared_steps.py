"""Requests whose tensors lie in shared memory, where client and server are on one machine.  Layer 5 (bench)."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

from tisfast.bench.templates import Step
from tisfast.client import Client
from tisfast.client.regions import ALIGNMENT, Region
from tisfast.errors import BadRequest, TisError
from tisfast.wire.buffer_tensor import BufferTensor
from tisfast.wire.client_request import WantedOutput

NAME: Final = "tisfast-bench"


@dataclass(frozen=True)
class Placed:
    """steps: without bytes in their inputs; outputs: where each is written, the same place for all requests."""

    steps: list[Step]
    outputs: list[WantedOutput]


@contextmanager
def placed(client: Client, steps: Sequence[Step], outputs: Sequence[str], output_bytes: int) -> Iterator[Placed]:
    """Regions for the inputs of all steps, and for the outputs, of so many bytes each.

    The server has them registered within; their files have no name from then on.  Raises BadRequest where there is no
    room, and what the server says when it refuses them.
    """
    if any(step.check is not None for step in steps):
        raise BadRequest(
            "--shared-memory system: the outputs of all requests are written to one place, so expected outputs cannot "
            "be checked; leave them out of --input-data, or use --shared-memory none"
        )
    nbytes = sum(_room(tensor.nbytes) for step in steps for tensor in step.tensors)
    inputs = _registered(client, "in", nbytes)
    try:
        answers = _registered(client, "out", _room(output_bytes) * len(outputs))
        try:
            yield Placed(
                _copied(steps, inputs),
                [
                    WantedOutput(name, region=answers.name, nbytes=output_bytes, offset=at * _room(output_bytes))
                    for at, name in enumerate(outputs)
                ],
            )
        finally:
            _given_back(client, answers)
    finally:
        _given_back(client, inputs)


def _registered(client: Client, what: str, nbytes: int) -> Region:
    name = f"{NAME}-{what}-{os.getpid()}-{secrets.token_hex(8)}"
    try:
        region = Region(name, max(nbytes, ALIGNMENT))
    except OSError as error:
        raise BadRequest(
            f"--shared-memory system: {nbytes} bytes cannot be had in /dev/shm ({error.strerror}); send less data, or "
            "lower --output-shared-memory-size"
        ) from None
    try:
        client.register_region(name, f"/{name}", region.nbytes)
    finally:
        region.unlink()
    return region


def _copied(steps: Sequence[Step], region: Region) -> list[Step]:
    at, made = 0, []
    for step in steps:
        tensors = []
        for tensor in step.tensors:
            region.memory[at : at + tensor.nbytes] = tensor.memory()
            tensors.append(
                BufferTensor.in_region(tensor.name, tensor.datatype, tensor.shape, region.name, tensor.nbytes, at)
            )
            at += _room(tensor.nbytes)
        made.append(replace(step, tensors=tensors))
    return made


def _given_back(client: Client, region: Region) -> None:
    with suppress(TisError):  # a server that is gone has forgotten it
        client.unregister_region(region.name)


def _room(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
