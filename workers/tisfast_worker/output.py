"""The instance's output arena: blocks taken here, given back by the server through the give ring."""

import os
import struct
import threading
import time

from tisfast_worker import limits
from tisfast_worker.native import BLOCK_MIN, SLOT_BYTES, Mapping, block_offset


class OutputArenaFull(Exception):  # noqa: N818 - a state, met in normal service
    """No block came free in time, or none can ever be large enough."""


class OutputArena(Mapping):
    """Owner of the arena's book-keeping.

    The loop's thread only, or the thread that holds the stream writer's lock; but `take_now`, and `collect` where
    nobody counts owners, are one C call under the GIL, and may come from any thread.
    """

    offset = staticmethod(block_offset)

    def __init__(self, library, fd, channel, use_bytes_max):
        """`use_bytes_max`: most bytes in use at one time; 0: half of the address space, the other half being slack."""
        super().__init__(fd, "output arena")
        self._arena = 0
        self._fd = os.dup(fd)  # the caller closes its own; ours gives pages back
        self.use_bytes_max = use_bytes_max or max(self.nbytes // 2, BLOCK_MIN)
        self._delete = library.tf_arena_delete
        self._arena = library.tf_arena_new(self.nbytes, self.use_bytes_max)
        self._take, self._give = library.tf_output_take, library.tf_arena_give
        self._used_bytes = library.tf_arena_used_bytes
        self._collect, self._used_blocks = library.tf_output_collect, library.tf_arena_used_blocks
        self._trim = library.tf_arena_trim
        self._pending, self._advance = library.tf_ring_pending, library.tf_ring_take
        self._channel, self._ring = channel, channel.give
        self._mask, self._slots_at = channel.give_slots
        self._head = 0  # give slots taken
        self._out = 0  # blocks that the server holds, or will; threads that call other models may blur it between looks
        self._large_out = False  # a large one may be among them
        self.owners = None  # StreamBlocks or DeviceArena, told which blocks come back
        self._owned = threading.Lock()  # models' calls take blocks in threads of theirs
        self.before_wait = (
            None  # called before the first pause: what is encoded must be published, or nothing comes back
        )

    def take(self, nbytes):
        """Handle of a block; `offset` finds it.  May wait for the server, bounded.  Raises OutputArenaFull."""
        block = self.take_now(nbytes)
        return block if block else self._wait(nbytes)

    def take_now(self, nbytes):
        """Take a block, or 0 when there is no room now."""
        block = self._take(self._arena, nbytes)
        if block:
            self._out += 1
            if nbytes > limits.JOIN_BYTES_MAX:
                self._large_out = True
        return block

    def free_bytes(self):
        """Bytes that no block has.  From any thread: one C call."""
        return max(0, self.use_bytes_max - self._used_bytes(self._arena))

    def close(self):
        """For the rehearsal: in a worker it lasts as long as the process, in a guest until nobody refers to it."""
        if self._arena:
            os.close(self._fd)
            self._delete(self._arena)
        self._arena = 0

    def __del__(self):
        """Threads of a guest's own may be in the middle of a call when its instance ends."""
        self.close()

    def check_fits(self, nbytes):
        """Raises OutputArenaFull for what no waiting can make room for."""
        if nbytes > self.use_bytes_max:
            raise OutputArenaFull(
                f"an answer of {nbytes} bytes does not fit the output arena of {self.use_bytes_max} bytes"
            )

    def put_back(self, block):
        """A block that the server will not hear of."""
        self._give(self._arena, block)
        self._out -= 1

    def collect_some(self):
        """Take back what the server has given back, when it is worth the calls: at once what is large, to be written
        again while it is warm in the cache; small blocks by the dozen.
        """
        if self._large_out or self._out >= limits.COLLECT_BLOCKS_MIN:
            self.collect()

    def collect(self):
        """Take back all that the server has given back."""
        if self.owners is None:
            self._collect(self._channel.base, self._arena)
        else:
            self._collect_owned()
        self._out = self._used_blocks(self._arena)
        self._large_out = self._large_out and self._out > 0

    def _collect_owned(self):
        with self._owned:
            self._collect_for_owners()

    def _collect_for_owners(self):
        pending = self._pending(self._ring)
        given = []
        for at in range(self._head, self._head + pending):
            slot = self._slots_at + (at & self._mask) * SLOT_BYTES
            block = struct.unpack_from("<Q", self._channel.memory, slot)[0]
            given.append(block)
            # A stale or foreign handle is refused by the arena: the server's bug, and it loses nothing of ours.
            self._give(self._arena, block)
        self.owners.given(given)
        self._head += pending
        self._advance(self._ring, pending)

    def rest(self, *, trims=True):
        """The instance is idle: give the pages of free blocks back to the system, but where the GPU may use them."""
        self.collect()
        if trims:
            self._trim(self._arena, self._fd)
        if self.owners is not None:
            self.owners.rest()

    def _wait(self, nbytes):
        """The server rings no bell for given blocks, so the wait looks, with growing pauses; it is the rare case."""
        self.check_fits(nbytes)
        self.before_wait()
        pause = limits.OUTPUT_WAIT_STEP_SECONDS_MAX / 50
        deadline = time.monotonic() + limits.OUTPUT_WAIT_SECONDS_MAX
        while time.monotonic() < deadline:
            self.collect()
            block = self.take_now(nbytes)
            if block:
                return block
            time.sleep(pause)
            pause = min(2 * pause, limits.OUTPUT_WAIT_STEP_SECONDS_MAX)
        raise OutputArenaFull("")
