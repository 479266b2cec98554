"""In place of kernels where the driver's stand-in is that of tests/gpu, whose memory the processor cannot touch.

Executions are done when they are queued, behind what the stream had before.
"""

from __future__ import annotations

import ctypes


class Driver:
    """See tests/system/tensorrt_stand_in/driver.c, of which these are the calls."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for name in ("memory_read", "memory_write"):  # neither of which counts as a copy
            getattr(library, name).argtypes = (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t)

    def stand_in_covers(self, address: int, nbytes: int) -> bool:
        return self._library.memory_read(address, ctypes.create_string_buffer(max(nbytes, 1)), nbytes) == 0

    def stand_in_captures(self) -> bool:
        return False

    def stand_in_launch(self, stream: int, kernel: object, token: int) -> int:
        failed = self._library.cuStreamSynchronize(ctypes.c_void_p(stream))
        return failed or kernel(token)  # type: ignore[operator]

    def read(self, address: int, nbytes: int) -> bytearray:
        """A copy."""
        found = bytearray(nbytes)
        assert self._library.memory_read(address, (ctypes.c_char * nbytes).from_buffer(found), nbytes) == 0
        return found

    def write(self, address: int, content: bytes) -> None:
        assert self._library.memory_write(address, content, len(content)) == 0
