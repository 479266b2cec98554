"""The warm-up of one model version's instances: samples made, executed, judged.  Layer 4 (models)."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tisfast import limits
from tisfast.config.warm_up_samples import FILE, RANDOM, WarmUpInput, WarmUpSample
from tisfast.engine.warm_up_batch import ask_instance, rehearsal_of
from tisfast.errors import BadRequest, Internal, TisError
from tisfast.native.memory import Arena, Block
from tisfast.processes.worker import WorkerFailed
from tisfast.repo import layout
from tisfast.types import BY_CODE, Status
from tisfast.wire.compose import compose_request
from tisfast.wire.tensors import Tensor, in_block

if TYPE_CHECKING:
    from tisfast.engine.asking import Answers
    from tisfast.engine.runtime import ModelRuntime
    from tisfast.processes.link import RingLink
    from tisfast.processes.worker import Worker
    from tisfast.wire.record import InferInput

log = logging.getLogger("tisfast.models")
FOLDER: Final = "warmup"
STRING: Final = 13
EMPTY_STRING: Final = bytes(4)
# Of random bits, which stay, and which are set: finite numbers from 1 to 2, and truth values that are true or false.
RANDOM_BITS: Final = {1: ("01", "00"), 10: ("03ff", "3c00"), 11: ("007fffff", "3f800000"),
                      12: ("000fffffffffffff", "3ff0000000000000"), 14: ("007f", "3f80")}  # fmt: skip


class WarmUpFailed(WorkerFailed):
    """A sample could not be executed: the load fails with Triton's words."""

    status = Status.INVALID_ARG


class WarmUp:
    """Executes a model version's samples in each worker, before the worker is ready."""

    def __init__(
        self, runtime: ModelRuntime, samples: tuple[WarmUpSample, ...], folder: Path, execution_seconds_max: float
    ) -> None:
        """folder: the model's; execution_seconds_max: of each execution.  Raises TisError for what cannot be sent."""
        self._runtime = runtime
        self._samples = samples
        self._folder = folder / FOLDER
        self._seconds_max = execution_seconds_max
        for sample in samples:  # what is wrong is told before any worker starts
            self._requests(sample, self._tensors(sample), 1)

    async def run(self, link: RingLink, worker: Worker) -> None:
        """All samples, in order.  Raises WarmUpFailed, or what making a sample raised; then the worker is killed."""
        rehearsal = rehearsal_of(self._runtime)
        link.answer_to(rehearsal)
        try:
            for sample in self._samples:
                await self._run_sample(rehearsal, link, worker, sample)
        except TisError as error:
            await _last_words(link, worker)
            worker.kill("failed its warm-up")
            if isinstance(error, WorkerFailed):
                raise
            raise WarmUpFailed(error.message, kind="warm up") from error
        except BaseException:
            worker.kill("was not needed any more")
            raise
        link.answer_to(self._runtime)

    async def _run_sample(self, rehearsal: ModelRuntime, link: RingLink, worker: Worker, sample: WarmUpSample) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        most = max(1, self._runtime.signature.max_batch_size)
        if sample.requests > most:  # Triton says it once for each request
            text = f"batch size {sample.requests} for '{link.instance}', max allowed is {most if most > 1 else 0}"
            raise _failed(sample, [text] * min(sample.requests, limits.WARM_UP_ERRORS_MAX))
        tensors = await asyncio.to_thread(self._tensors, sample)  # reads its files
        for _ in range(sample.count):
            asked = ask_instance(rehearsal, link, self._requests(sample, tensors, sample.requests))
            errors = asyncio.ensure_future(_errors(asked))
            try:
                either: set[asyncio.Future[Any]] = {errors, worker.ended}
                await asyncio.wait(either, timeout=self._seconds_max, return_when=asyncio.FIRST_COMPLETED)
                if not errors.done():
                    raise _failed(sample, [self._unfinished(worker)])
                if errors.result():
                    raise _failed(sample, errors.result())
            finally:
                errors.cancel()
                for each in asked:  # a traceback may keep this frame, and is to keep no input
                    each.cancel()
        log.info(
            "instance %s: warm-up sample '%s' executed %d time(s) in %.3f s",
            link.instance, sample.name, sample.count, loop.time() - began, extra={"facts": worker.birth.facts},
        )  # fmt: skip

    def _unfinished(self, worker: Worker) -> str:
        if worker.ended.done():
            return f"the worker process of {worker.birth.name} {worker.ended.result().text}"
        return f"the worker process of {worker.birth.name} was not done within {self._seconds_max:g} s"

    def _requests(self, sample: WarmUpSample, tensors: list[Tensor], count: int) -> list[InferInput]:
        return [compose_request(self._runtime.signature, self._runtime.arena, tensors) for _ in range(count)]

    def _tensors(self, sample: WarmUpSample) -> list[Tensor]:
        """A sample's tensors in memory of its own, which all its requests refer to."""
        data = [self._bytes(each) for each in sample.inputs]
        room = sum(_block_bytes(len(each)) for each in data)
        if room > limits.WARM_UP_BYTES_MAX:
            raise BadRequest(
                f"warmup sample '{sample.name}' has {room} bytes of data; {limits.WARM_UP_BYTES_MAX} is the limit"
            )
        arena = Arena(f"tisfast-warm-{self._runtime.signature.name}", 2 * max(room, 4096), max(room, 4096))
        blocks = [_filled(arena, each) for each in data]
        sizes = map(len, data)
        return [self._tensor(*each) for each in zip(sample.inputs, blocks, sizes, strict=True)]

    def _tensor(self, given: WarmUpInput, block: Block, nbytes: int) -> Tensor:
        signature = self._runtime.signature
        known = any(spec.name == given.name for spec in signature.inputs)
        batched = known and signature.max_batch_size > 0
        return in_block(given.name, given.dtype, (1, *given.dims) if batched else given.dims, block, 0, nbytes)

    def _bytes(self, given: WarmUpInput) -> bytes:
        elements = math.prod(given.dims)
        size = BY_CODE[given.dtype].size if given.dtype in BY_CODE else 4
        if elements * max(size, len(EMPTY_STRING)) > limits.WARM_UP_BYTES_MAX:
            raise BadRequest(
                f"warmup setting for input '{given.name}' asks for {elements} elements, more than "
                f"{limits.WARM_UP_BYTES_MAX} bytes"
            )
        if given.source == FILE:
            return self._from_file(given, elements * size)
        if given.dtype == STRING:  # random strings are empty, as Triton's
            return EMPTY_STRING * elements
        return _random(given, elements * size) if given.source == RANDOM else bytes(elements * size)

    def _from_file(self, given: WarmUpInput, nbytes: int) -> bytes:
        path = self._folder / given.file
        try:
            with layout.open_file(path) as file:
                data = file.read(limits.WARM_UP_BYTES_MAX + 1 if given.dtype == STRING else nbytes)
        except OSError as error:
            raise Internal(f"failed to open text file for read {path}: {error.strerror}") from None
        if len(data) < nbytes:
            raise BadRequest(
                f"warmup setting expects {nbytes} bytes, but the data provided from {given.file} only has {len(data)} "
                "bytes"
            )
        if given.dtype == STRING:
            self._check_strings(given, data)
        return data

    def _check_strings(self, given: WarmUpInput, data: bytes) -> None:
        at, found, wanted = 0, 0, math.prod(given.dims)
        while at < len(data) and found <= wanted:
            end = at + 4 + int.from_bytes(data[at : at + 4], "little")
            if end > len(data) or at + 4 > len(data):
                raise BadRequest(
                    f"incomplete string data for inference input '{given.name}', expecting string of length "
                    f"{end - at - 4} but only {max(0, len(data) - at - 4)} bytes available"
                )
            at, found = end, found + 1
        if found != wanted:
            raise BadRequest(
                f"expected {wanted} string elements for inference input '{given.name}' for model "
                f"'{self._runtime.signature.name}', got {found}"
            )


def _block_bytes(nbytes: int) -> int:
    """The bytes of a block for so many: a power of two."""
    return 1 << max(9, (nbytes - 1).bit_length())


def _filled(arena: Arena, data: bytes) -> Block:
    block = arena.take_block(max(1, len(data)))
    memoryview(block)[: len(data)] = data
    return block


def _random(given: WarmUpInput, nbytes: int) -> bytes:
    """Random bytes, equal for equal settings, so that a failure can be repeated."""
    data = random.Random(f"{given.name} {given.dims}").randbytes(nbytes)
    if given.dtype not in RANDOM_BITS:
        return data
    keep, put = (bytes.fromhex(text)[::-1] for text in RANDOM_BITS[given.dtype])
    times = nbytes // len(keep)
    masked = int.from_bytes(data, "little") & int.from_bytes(keep * times, "little")
    return (masked | int.from_bytes(put * times, "little")).to_bytes(nbytes, "little")


def _failed(sample: WarmUpSample, errors: list[str]) -> WarmUpFailed:
    told = "".join(f"{error}; " for error in errors)
    return WarmUpFailed(f"failed to run warmup sample '{sample.name}': {told}", kind="warm up")


async def _last_words(link: RingLink, worker: Worker) -> None:
    """Wait for the model's log of its failure, which comes over another socket than its answer."""
    if not worker.ended.done():
        worker.stop()
        link.request_stop()
        await asyncio.wait({worker.ended}, timeout=limits.LAST_WORDS_SECONDS_MAX)


async def _errors(asked: list[Answers]) -> list[str]:
    """The errors among the answers, when all have come."""
    found = []
    for answers in asked:
        while True:
            try:
                await anext(answers)
            except StopAsyncIteration:
                break
            except TisError as error:
                found.append(error.message)
    return found
