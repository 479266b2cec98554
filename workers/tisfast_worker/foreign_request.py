"""Requests with inputs in other memory than the input arena: models see no difference."""

from tisfast_worker import limits
from tisfast_worker.device_tensor import DeviceInput
from tisfast_worker.foreign_memory import SHARE_SHIFT, Window, lost_text
from tisfast_worker.request import ArenaRequest
from tisfast_worker.tensor import ArenaTensor


class ForeignTensor(ArenaTensor):
    """An input seen through a window.

    Owner of the memory: the window, which every array made here refers to, and which refers to the request's lease.
    """

    __slots__ = ("_copied",)

    def __init__(self, layout, window, offset, nbytes, copied):
        """`copied`: the model writes into this input, and a copy costs less than copying pages as it goes."""
        ArenaTensor.__init__(self, layout, window, offset, nbytes)  # not super(): see foreign_request.pxd
        self._copied = copied

    def as_numpy(self):
        """See ArenaTensor."""
        return self._own(ArenaTensor.as_numpy(self))

    def bits(self):
        """See Tensor."""
        return self._own(ArenaTensor.bits(self))

    def _own(self, array):
        if self._copied and array.base is not None:
            array = self._array = array.copy()
        return array


class ForeignRequest(ArenaRequest):
    """An ArenaRequest with at least one input that lies elsewhere.

    By the input's position: `windows`, of those in host memory, `devices`, of those in GPU memory, and `copies`, of
    those there that this process cannot open.  By the output's index: `output_places`, of those that the client wants
    in GPU memory, or None.
    """

    __slots__ = ("_memory", "copies", "devices", "output_places", "windows")

    def __init__(self, plan, execution, lease, head, refs, strings_at, memory):  # noqa: PLR0913, PLR0917 - ArenaRequest's
        """`memory`: the ForeignMemory.  Raises WireError when a place cannot be shown."""
        ArenaRequest.__init__(self, plan, execution, lease, head, refs, strings_at)
        self._memory = memory
        self.devices, self.windows, self.copies, self.output_places = {}, {}, {}, None
        for at, layout in enumerate(plan.layouts):
            if refs[2 * at] >> SHARE_SHIFT == 0:
                continue
            if memory.is_on_device(refs[2 * at]):
                found = memory.on_device(refs[2 * at], refs[2 * at + 1], lease, layout)
                (self.copies if found.__class__ is bytearray else self.devices)[at] = found
            else:
                self.windows[at] = memory.window(refs[2 * at], refs[2 * at + 1], lease, layout.name)

    def find(self, name):
        """The input called `name`, or None."""
        at = self._plan.position.get(name)
        if at not in self.windows and at not in self.devices and at not in self.copies:
            return ArenaRequest.find(self, name)
        tensors = self._tensors
        if tensors is None:
            tensors = self._tensors = list(self._plan.none)
        if tensors[at] is None and at in self.devices:
            tensors[at] = DeviceInput(name, self._plan.layouts[at].code, self.devices[at])
        elif tensors[at] is None and at in self.copies:
            copy = self.copies[at]
            tensors[at] = ArenaTensor(self._plan.layouts[at], copy, 0, len(copy))
        elif tensors[at] is None:
            window = self.windows[at]
            copied = name in self._memory.written
            tensors[at] = ForeignTensor(self._plan.layouts[at], window, window.offset, window.key[2], copied)
        return tensors[at]

    def passed(self, array):
        """(place, bytes) of an array that is an input from elsewhere, or a large view of one, and still what it was."""
        window = array.base
        if window.__class__ is not Window:
            window = getattr(window, "base", None)
            if window.__class__ is not Window or array.nbytes < limits.PASS_VIEW_BYTES_MIN:
                return None
        if not array.flags.c_contiguous:
            return None
        if array.nbytes == window.key[2]:  # all of it: its address need not be asked for, which costs most
            return self._place(window, window.offset, array.nbytes)
        return self._place(window, array.__array_interface__["data"][0] - window.base, array.nbytes)

    def passed_unread(self, tensor):
        """The place of a tensor that no array was made of, to be passed on."""
        if tensor._lease.__class__ is not Window:
            return None
        return self._place(tensor._lease, tensor._offset, tensor._nbytes)

    def _place(self, window, offset, nbytes):
        if window.lease is not self._lease or self._memory.is_written(window):
            return None  # another request's, or no longer what the others have
        return window.place + offset - window.offset, nbytes

    def lost(self):
        """The error for the client when memory of an input was gone as it was read, else None."""
        for at, window in self.windows.items():
            if self._memory.is_lost(window):
                return lost_text(self._plan.layouts[at].name)
        return None
