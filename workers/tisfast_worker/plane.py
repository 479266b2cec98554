"""The data plane of one instance: the descriptors of a fork order, mapped and checked."""

import os

from tisfast_worker.completions import Completions
from tisfast_worker.foreign import ForeignMemory
from tisfast_worker.native import TF_ABI_VERSION, Channel, Mapping, NativeError
from tisfast_worker.output import OutputArena

_BELL_HEAD = (0x54495346, TF_ABI_VERSION)  # magic, abi


class DataPlane:
    """Rings and arenas.  Raises NativeError when one is not what it should be."""

    def __init__(self, library, fds, output_bytes_max):
        """`fds`: channel, bell file, bell eventfd, input and output arena, share socket; mapped ones are closed."""
        channel, page, self._eventfd, inputs, outputs, shares = fds
        self.library = library
        self.channel = Channel(library, channel)
        self.bell = Mapping(page, "bell page")
        if tuple(memoryview(self.bell.memory)[:8].cast("I")) != _BELL_HEAD:
            raise NativeError(f"the bell page has another layout than this runtime's (ABI {TF_ABI_VERSION})")
        self.inputs = Mapping(inputs, "input arena")
        self.outputs = OutputArena(library, outputs, self.channel, output_bytes_max)
        self.completions = Completions(library, self.channel, self.bell, self._eventfd)
        self.foreign = ForeignMemory(library, shares)
        for fd in (channel, page, inputs, outputs):
            os.close(fd)  # mappings stay
