"""The data plane of one instance: the descriptors of a fork order, mapped and checked."""

import mmap
import os

from tisfast_worker.completions import Completions
from tisfast_worker.foreign_memory import ForeignMemory
from tisfast_worker.native import TF_ABI_VERSION, Channel, Mapping, NativeError
from tisfast_worker.output import OutputArena


class DataPlane:
    """Rings and arenas.  Raises NativeError when one is not what it should be."""

    def __init__(self, library, fds, output_bytes_max):
        """`fds`: channel, bell, bell eventfd, cells, input and output arena, share socket; mapped ones are closed."""
        channel, page, self._eventfd, cells, inputs, outputs, shares = fds
        self.library = library
        self.channel = Channel(library, channel)
        bell = library.tf_bell_map(page)
        if not bell:
            raise NativeError(f"the bell page has another layout than this runtime's (ABI {TF_ABI_VERSION})")
        self.cells = Mapping(cells, "file of metric cells")
        self.inputs = Mapping(inputs, "input arena")
        self.outputs = OutputArena(library, outputs, self.channel, output_bytes_max)
        self.completions = Completions(library, self.channel, bell, self._eventfd)
        self.foreign = ForeignMemory(library, shares, self.channel.nudge)
        self.foreign.inputs = self.inputs.memory
        self.device_arena = None  # the DeviceArena of an instance on a GPU
        self._bell = bell
        for fd in (channel, page, cells, inputs, outputs):
            os.close(fd)  # mappings stay

    def close(self):
        """End the plane before the process ends: say nothing more, and keep nothing that is not in use.

        Memory is unmapped, and the book-keeping of the output arena goes, when nothing refers to them any more.
        """
        self.completions.close()
        os.close(self._eventfd)
        self.library.tf_window_unmap(self._bell, mmap.PAGESIZE)
        self.foreign.close()
        self.outputs.before_wait = self.outputs.owners = self.device_arena = None  # they refer to it
