"""Answers that clients of streams have not read: which block is of which stream, and when a stream has to wait."""

from tisfast_worker import limits
from tisfast_worker.output import OutputArenaFull


class StreamBacklog:
    """The blocks of one stream's answers that the server still holds."""

    __slots__ = ("blocks", "nbytes")

    def __init__(self):
        """None."""
        self.blocks = self.nbytes = 0

    def __str__(self):
        """For messages."""
        return f"{self.blocks} responses of {self.nbytes} bytes"


class StreamBlocks:
    """The output arena as the answers of streams are written to it: under the stream writer's lock.

    A stream may hold as much as is left for the others: one whose client does not read stops at half of the arena, and
    of two each at a third, so there is always room for a stream that is read.

    Nothing here waits.  `wanted`: bytes of a block for which there was no room; who waits for it lets go of the lock.
    """

    def __init__(self, arena):
        """`arena` is the OutputArena; the answer writer takes its blocks here."""
        self.memory, self.offset, self.base, self.put_back = arena.memory, arena.offset, arena.base, arena.put_back
        self._arena, self.wanted = arena, 0
        self._held = None  # (block, bytes) that was waited for
        self._left = arena.use_bytes_max
        self._taken = 0  # bytes of the latest block
        self._of = {}  # block: (its stream's StreamBacklog, bytes)
        self.lent = None  # the DeviceArena, told which blocks come back, of an instance on a GPU

    def take(self, nbytes):
        """Take a block at once, without a wait.  Raises OutputArenaFull."""
        block = self._take_held(nbytes) or self._arena.take_now(nbytes)
        if not block:
            self._arena.collect()
            block = self._arena.take_now(nbytes)
        if not block:
            self._arena.check_fits(nbytes)
            self.wanted = nbytes
            raise OutputArenaFull("")
        self._taken = nbytes
        return block

    def hold(self, nbytes):
        """Whether there is room now; the next `take` of as much, under the same hold of the lock, has it."""
        self._arena.collect()
        block = self._arena.take_now(nbytes)
        if block:
            self._held = (block, nbytes)
        return block != 0

    def _take_held(self, nbytes):
        held, self._held = self._held, None
        if held is None or held[1] == nbytes:
            return held and held[0]
        self._arena.put_back(held[0])  # the response has become another one meanwhile
        return 0

    def add(self, block, backlog):
        """The block that was taken last is this stream's; returns its count, made for its first block."""
        if backlog is None:
            backlog = StreamBacklog()
        nbytes = self._taken
        backlog.blocks += 1
        backlog.nbytes += nbytes
        self._left -= nbytes
        self._of[block] = (backlog, nbytes)
        return backlog

    def given(self, blocks):
        """These have come back."""
        if self.lent is not None:
            self.lent.given(blocks)
        for block in blocks:
            backlog, nbytes = self._of.pop(block, (None, 0))
            if backlog is not None:
                backlog.blocks -= 1
                backlog.nbytes -= nbytes
                self._left += nbytes

    def rest(self):
        """The instance is idle, and blocks were collected."""
        if self.lent is not None:
            self.lent.rest()

    def must_wait(self, backlog):
        """Whether this stream's client has to read before more is written for it."""
        return backlog.blocks >= limits.STREAM_BLOCKS_MAX or backlog.nbytes > self._left
