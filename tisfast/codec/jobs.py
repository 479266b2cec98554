"""The jobs of codec processes, as the server sees them.  Layer 3 (codec).

A job holds all memory that its codec may write to or read from until the codec has reported, or is dead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tisfast.errors import Internal, TisError
from tisfast.native.region import Regions
from tisfast.wire.plain_values import describe, rebuild

if TYPE_CHECKING:
    from tisfast.native.memory import Arena, Block, MemoryFile
    from tisfast.native.region import Region
    from tisfast.wire.record import Answer, InferInput
    from tisfast.wire.signature import ModelSignature


class CodecFace(Protocol):
    """The part of a codec process that a job uses."""

    def model(self, signature: ModelSignature) -> int:
        """The number by which the process knows the model."""

    def file(self, file: MemoryFile, *, writable: bool) -> int:
        """Give the process a memory file."""

    def send(self, *message: object, fd: int = -1) -> None:
        """A message, and a copy of a descriptor."""

    def send_after(self, work: Callable[[], None], kept: object, *message: object) -> None:
        """A message once a thread has done `work`, which may raise TisError; `kept` stays until then."""


class ParseTarget(Protocol):
    """The model of a request: its signature, and the arena that its requests lie in."""

    @property
    def signature(self) -> ModelSignature: ...  # noqa: D102
    @property
    def arena(self) -> Arena: ...  # noqa: D102


class Job(ABC):
    """One piece of work.

    owner: whose turn it counts as, say a connection; nbytes: what waits with it; done: called once with the job, unless
    it was cancelled, when `error` or the result is there.
    """

    answers = False
    """It ends a request rather than beginning one."""
    what = "worked on the request"

    def __init__(self, owner: object, nbytes: int, done: Callable[[Any], None]) -> None:
        self.owner, self.nbytes, self.done = owner, nbytes, done
        self.error: TisError | None = None
        self.cancelled = False
        self.arena: Arena | None = None
        self.blocks: list[Block] = []

    @abstractmethod
    def begin(self, codec: CodecFace) -> None:
        """Tell the process what to do.  Raises TisError when there is nothing that it could do."""

    @abstractmethod
    def finish(self, result: Any) -> None:
        """The process's result.  Raises TisError."""

    def asked(self, codec: CodecFace, kind: str, *question: Any) -> None:
        """A question of the process's.  Raises TisError, which is then its answer."""
        if kind != "take" or self.arena is None:
            raise Internal(f"a codec process asked for {kind!r}")
        block = self.arena.take_block(*question)
        self.blocks.append(block)
        codec.send("block", block.offset, block.nbytes)

    def forget(self) -> None:
        """Let go of all memory: it is done, or its process is dead."""
        self.blocks = []
        self.arena = None


class BodyInBlock(NamedTuple):
    """A body in a block of the model's arena: where it starts there, and its bytes."""

    block: Block
    start: int
    nbytes: int


class ParseJob(Job):
    """A body becomes a request, which is in `request` then.

    runtime: whose request it is; None: the body says, and `resolve` finds it by name and version.  body: a BodyInBlock
    in the model's arena, bytes, or a file that is as long as the body.  options: see JobRunner._parse.  regions: the
    clients' memory.  Raises Unavailable when the arena is full.
    """

    what = "read the request"
    request: InferInput | None = None

    def __init__(  # noqa: PLR0913 - all that a request is made of
        self,
        owner: object,
        done: Callable[[ParseJob], None],
        *,
        form: str,
        runtime: ParseTarget | None,
        body: Any,
        nbytes: int,
        regions: Regions | None,
        options: dict[str, Any],
        resolve: Callable[[str, str], ParseTarget] | None = None,
    ) -> None:
        super().__init__(owner, nbytes, done)
        self.runtime = runtime
        # What is unloaded stays while it has blocks out: a body in a block is one, any other needs one that says so.
        self._claim = None if runtime is None or isinstance(body, BodyInBlock) else runtime.arena.take_block(1)
        self._form, self._body, self._regions, self._options, self._resolve = form, body, regions, options, resolve

    def begin(self, codec: CodecFace) -> None:
        """See Job."""
        source, fd = self._body, -1
        if isinstance(source, BodyInBlock):
            self.blocks.append(source.block)
            self._options |= {"start": source.start, "nbytes": source.nbytes}
            source = (source.block.offset, source.block.nbytes)
        elif not isinstance(source, bytes):
            source, fd = None, self._body.fileno()
        model, arena = -1, -1
        if self.runtime is not None:
            model, arena = self._tell(codec, self.runtime)
        codec.send("parse", self._form, model, arena, source, self._options, fd=fd)

    def _tell(self, codec: CodecFace, runtime: ParseTarget) -> tuple[int, int]:
        self.arena = runtime.arena
        return codec.model(runtime.signature), codec.file(runtime.arena, writable=True)

    def asked(self, codec: CodecFace, kind: str, *question: Any) -> None:
        """See Job."""
        if kind == "resolve" and self._resolve is not None:
            self.runtime = self._resolve(*question)
            codec.send("resolved", *self._tell(codec, self.runtime))
        elif kind == "region":
            self._show(codec, self._region(*question))
        elif kind == "copy":
            self._copy(codec, *question)
        else:
            super().asked(codec, kind, *question)

    def _region(self, name: str) -> Region:
        return (self._regions if self._regions is not None else Regions()).lookup(name)

    def _show(self, codec: CodecFace, region: Region) -> None:
        fd = region.file.fd if region.device < 0 else -1
        codec.send("region", region.key, region.offset, region.nbytes, region.device, fd=fd)

    def _copy(self, codec: CodecFace, name: str, offset: int, place: int, nbytes: int) -> None:
        """What the process cannot map, to a place in the arena.  The block outlives the copy."""
        for block in self.blocks:
            if block.offset <= place and place + nbytes <= block.offset + block.nbytes:
                at = place - block.offset
                work = partial(_copy_region, [self._region(name), block], offset, at, nbytes)
                return codec.send_after(work, block, "copied")
        raise Internal(f"a codec process asked for {nbytes} bytes at {place}, outside its blocks")

    def finish(self, result: Any) -> None:
        """See Job."""
        assert self.runtime is not None
        self.request = rebuild(self.runtime.signature, result, self.blocks, self._regions)

    def forget(self) -> None:
        """See Job."""
        super().forget()
        self._body = self._claim = None


def _copy_region(holder: list[Any], offset: int, at: int, nbytes: int) -> None:
    """In a thread, which keeps nothing: memory is given back by the loop alone."""
    block, region = holder.pop(), holder.pop()
    region.copy_to(offset, block, at, nbytes)


class Rendered(NamedTuple):
    """An answer's body.  text: the block that all parts lie in which are no outputs, None when there are none.

    text_bytes: of its JSON, before compression; tensors: something follows it; parts: (output or -1, offset in the
    block, bytes), in their order; coding: of the whole, "" for none.
    """

    text: Block
    text_bytes: int
    tensors: bool
    parts: tuple[tuple[int, int, int], ...]
    coding: str


class RenderJob(Job):
    """An answer becomes a body, which is in `rendered` then.  arena: where texts go."""

    answers = True
    what = "wrote the answer"
    rendered: Rendered | None = None

    def __init__(  # noqa: PLR0913 - all that an answer is made of
        self,
        owner: object,
        done: Callable[[RenderJob], None],
        *,
        form: str,
        answer: Answer,
        nbytes: int,
        coding: str = "",
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(owner, nbytes, done)
        self.answer: Answer | None = answer
        self._form, self._coding, self._options = form, coding, options or {}

    def begin(self, codec: CodecFace) -> None:
        """See Job."""
        assert self.answer is not None and self.arena is not None
        description, files = describe(self.answer)
        model = codec.model(self.answer.input.model)
        text = codec.file(self.arena, writable=True)
        numbers = [codec.file(file, writable=False) for file in files]
        options = {**self._options, "coding": self._coding}
        codec.send("render", self._form, model, text, description, numbers, options)

    def finish(self, result: Any) -> None:
        """See Job."""
        text_bytes, tensors, parts = result
        if len(self.blocks) != 1:
            raise Internal(f"a codec process used {len(self.blocks)} blocks for one text")
        self.rendered = Rendered(self.blocks[0], text_bytes, tensors, parts, self._coding)
        self._check(self.rendered)

    def _check(self, rendered: Rendered) -> None:
        assert self.answer is not None
        for output, offset, nbytes in rendered.parts:
            if output < -1 or output >= self.answer.count or (output < 0 and offset + nbytes > rendered.text.nbytes):
                raise Internal(f"a codec process named output {output}, bytes {offset} to {offset + nbytes}")

    def forget(self) -> None:
        """See Job."""
        super().forget()
        self.answer = None
