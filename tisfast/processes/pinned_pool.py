"""Host memory that workers pin for CUDA: how much all of them may, and who has some.  Layer 4 (processes).

A worker pins parts of arenas that it has mapped anyway, so nothing is allocated here.  But pinned pages take memory
until they are let go of, and the server must not give them back to the system (models/idle_memory.py).
"""

from __future__ import annotations

from typing import Any

from tisfast.limits import PINNED_POOL_BYTES

Message = dict[str, Any]


class PinnedPool:
    """The bytes that workers may pin, altogether (--pinned-memory-pool-byte-size)."""

    def __init__(self, total_bytes: int = PINNED_POOL_BYTES) -> None:
        self.total_bytes = total_bytes
        self._bytes: dict[str, int] = {}  # by the worker's id

    @property
    def used_bytes(self) -> int:
        """Bytes that workers may have pinned now."""
        return sum(self._bytes.values())

    def bytes_of(self, worker: str) -> int:
        """Bytes that this one may have pinned."""
        return self._bytes.get(worker, 0)

    def answer(self, worker: str, message: Message) -> Message:
        """The answer to a worker's message of type "pin" (workers/WIRE.md)."""
        answer: Message = {"t": "answer", "n": message.get("n", 0)}
        wanted = message.get("bytes")
        if not isinstance(wanted, int) or wanted < 0:
            answer["error"] = "the message says no number of bytes"
            return answer
        others = self.used_bytes - self.bytes_of(worker)
        if wanted > self.total_bytes - others:
            answer["error"] = (
                f"{wanted} bytes are wanted here, other instances have {others}, and all may have {self.total_bytes}; "
                "--pinned-memory-pool-byte-size has the server allow more"
            )
        elif wanted:
            self._bytes[worker] = wanted
        else:
            self.forget(worker)
        return answer

    def forget(self, worker: str) -> None:
        """It has none, or is gone."""
        self._bytes.pop(worker, None)
