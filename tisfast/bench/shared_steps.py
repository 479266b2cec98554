"""Requests whose tensors lie in shared memory, where client and server are on one machine.  Layer 5 (bench)."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tisfast.bench.templates import Step
from tisfast.client import Client
from tisfast.client.regions import ALIGNMENT, Region
from tisfast.errors import BadRequest, TisError, Unavailable
from tisfast.native.cuda import Cuda
from tisfast.native.cuda_driver import CudaMissing
from tisfast.wire.buffer_tensor import BufferTensor
from tisfast.wire.client_request import WantedOutput

NAME: Final = "tisfast-bench"


@dataclass(frozen=True)
class Placed:
    """steps: without bytes in their inputs; outputs: where each is written, the same place for all requests."""

    steps: list[Step]
    outputs: list[WantedOutput]


@contextmanager
def placed(
    client: Client, steps: Sequence[Step], outputs: Sequence[str], output_bytes: int, *, on_gpu: bool = False
) -> Iterator[Placed]:
    """Regions for the inputs of all steps, and for the outputs, of so many bytes each; on_gpu: on GPU 0.

    The server has them registered within; files have no name from then on.  Raises BadRequest where there is no room,
    and what the server says when it refuses them.
    """
    if any(step.check is not None for step in steps):
        raise BadRequest(
            f"--shared-memory {'cuda' if on_gpu else 'system'}: the outputs of all requests are written to one place, "
            "so expected outputs cannot be checked; leave them out of --input-data, or use --shared-memory none"
        )
    kind = _DeviceRegion if on_gpu else _HostRegion
    nbytes = sum(_room(tensor.nbytes) for step in steps for tensor in step.tensors)
    inputs = kind(client, "in", nbytes)
    try:
        answers = kind(client, "out", _room(output_bytes) * len(outputs))
        try:
            yield Placed(
                _copied(steps, inputs),
                [
                    WantedOutput(name, region=answers.name, nbytes=output_bytes, offset=at * _room(output_bytes))
                    for at, name in enumerate(outputs)
                ],
            )
        finally:
            answers.give_back()
    finally:
        inputs.give_back()


class _HostRegion:
    """A file in /dev/shm that the server has registered."""

    def __init__(self, client: Client, what: str, nbytes: int) -> None:
        """Raises BadRequest, and what the server says."""
        self._client, self.name = client, _name(what)
        try:
            self._region = Region(self.name, max(nbytes, ALIGNMENT))
        except OSError as error:
            raise BadRequest(
                f"--shared-memory system: {nbytes} bytes cannot be had in /dev/shm ({error.strerror}); send less data, "
                "or lower --output-shared-memory-size"
            ) from None
        try:
            client.register_region(self.name, f"/{self.name}", self._region.nbytes)
        finally:
            self._region.unlink()

    def write(self, at: int, data: memoryview) -> None:
        """Bytes from `at` on."""
        self._region.memory[at : at + data.nbytes] = data

    def give_back(self) -> None:
        """Unregister it."""
        with suppress(TisError):  # a server that is gone has forgotten it
            self._client.unregister_region(self.name)


class _DeviceRegion:
    """Memory on GPU 0, as this process counts, that the server has registered."""

    def __init__(self, client: Client, what: str, nbytes: int) -> None:
        """Raises BadRequest, and what the server says."""
        self._client, self.name = client, _name(what)
        try:
            cuda = Cuda()
            self._memory = cuda.allocate(0, max(nbytes, ALIGNMENT))
        except (CudaMissing, Unavailable) as error:
            raise BadRequest(f"--shared-memory cuda: {nbytes} bytes cannot be had on GPU 0: {error}") from None
        client.register_cuda_region(self.name, self._memory.handle, self._memory.nbytes)

    def write(self, at: int, data: memoryview) -> None:
        """Bytes from `at` on."""
        if data.nbytes:
            self._memory.from_host(at, np.frombuffer(data, np.uint8).ctypes.data, data.nbytes)

    def give_back(self) -> None:
        """Unregister it."""
        with suppress(TisError):
            self._client.unregister_cuda_region(self.name)


def _name(what: str) -> str:
    return f"{NAME}-{what}-{os.getpid()}-{secrets.token_hex(8)}"


def _copied(steps: Sequence[Step], region: _HostRegion | _DeviceRegion) -> list[Step]:
    at, made = 0, []
    for step in steps:
        tensors = []
        for tensor in step.tensors:
            region.write(at, memoryview(tensor.memory()))
            tensors.append(
                BufferTensor.in_region(tensor.name, tensor.datatype, tensor.shape, region.name, tensor.nbytes, at)
            )
            at += _room(tensor.nbytes)
        made.append(replace(step, tensors=tensors))
    return made


def _room(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
