"""Tensors in other memory than this instance's arenas (WIRE.md, Foreign tensors): shares, windows, and their holders.

A window is a private view of whole pages, so that a model may write into its inputs and no other process sees it.  It
belongs to one request at a time.  One that was not written to, and that nothing refers to, waits for the next request
with the same place.
"""

import ctypes
import mmap
import os
import socket
import struct
import sys
import threading
import time
from collections import deque

from tisfast_worker import cuda, limits
from tisfast_worker.control_messages import ControlClosed
from tisfast_worker.cuda import CudaError, OpenedMemory
from tisfast_worker.device_tensor import ClientMemory, KnownMemory
from tisfast_worker.failure import WireError
from tisfast_worker.serving_context import current

FLAG_FOREIGN = 16  # of a request record
FLAG_OUTPUT_PLACES = 64
SHARE_SHIFT = 48
OFFSET = (1 << SHARE_SHIFT) - 1
_PAGE = mmap.PAGESIZE
_MESSAGE = struct.Struct("<BBHIQQ")  # kind, guarded, share id, zero, first byte of the file, bytes
_SHOW, _FORGET, _SHOW_DEVICE = 1, 2, 3
_HANDLE_BYTES = 64  # of GPU memory, behind a message that shows some
_GONE = (
    "input '{}' lies in a shared memory region of the client, and its memory went away while the model ran: the file "
    "was truncated, or its file system is full"
)
_UNOPENED = (
    "tensor '{}' lies in GPU memory of another process, which instance {} cannot open ({}), and the server cannot copy "
    "it: {}"
)
_UNCLOSED = (
    "the driver does not close GPU memory of another process that {} had open ({}): it stays open until the instance "
    "ends. This is said once, and there may be more such memory later"
)
_REGION = "the client's region (share {})"  # the server puts its name in the place of this (WIRE.md, Foreign tensors)
_LENT = "GPU memory that the server has lent"
_OPENING = threading.RLock()


class Share:
    """One file that this worker was told of, or GPU memory.  Owner of the descriptor, and of what is opened.

    What a model has of GPU memory keeps the share, also when the server has been told to forget it.
    """

    def __init__(self, number, serial, fd, guarded, begin, nbytes):  # noqa: PLR0913, PLR0917 - what a message says
        """[begin, begin + nbytes) of the file behind `fd`, -1 when the server could not pass it.

        `number`: its id; `serial`: ids are given again, these numbers are not.
        """
        self.number, self.serial, self.fd, self.guarded = number, serial, fd, guarded
        self.begin, self.end = begin, begin + nbytes
        self.handle = self.opened = None  # of GPU memory: how it is opened, and that when it is first used
        self.let_go = None  # of GPU memory: let_go(number, opened) is called when nobody needs it any more
        self.failed, self.failed_until = "", 0.0  # why, when it could not be opened: it is not tried before then

    def named(self):
        """GPU memory, in a text for a client or the log."""
        return _REGION.format(self.number) if self.guarded else _LENT

    def memory(self):
        """Of GPU memory: what it is opened as, from the first use on.  Raises CudaError.

        The server is told of what cannot be opened, and refers to it no more.
        """
        if time.monotonic() < self.failed_until:
            raise CudaError(self.failed)
        with _OPENING:  # two threads would open it twice
            if self.opened is None:
                try:
                    made = OpenedMemory(self.handle, of_client=self.guarded)
                except CudaError as error:
                    self.refuse(error)
                    raise
                if self.opened is None:
                    self.opened = made
                else:
                    made.close()  # a finaliser of the model's came between
        return self.opened

    def refuse(self, error):
        """GPU memory that this process cannot use, because of this CudaError."""
        if error.is_fatal or time.monotonic() < self.failed_until:
            return  # the process ends, or has said so
        self.failed = str(error)  # not the error, whose frames keep the request
        self.failed_until = time.monotonic() + limits.LENT_REFUSED_SECONDS
        tell = current().tell
        if tell is not None:
            tell({"t": "gpu_memory", "unopened": self.number, "error": str(error)})

    def __del__(self):
        """The windows on it live on."""
        if self.fd >= 0:
            os.close(self.fd)
        if self.let_go is not None:
            self.let_go(self.number, self.opened)


class Window(ctypes.c_char * (1 << SHARE_SHIFT)):
    """A private view of pages of a share.  What arrays over it refer to, so that it lives as long as they do.

    Its length is nobody's: places are checked before one is made.  `clean_at`: page faults of this process when none of
    its pages was written to, or -1.
    """

    __slots__ = ("base", "clean_at", "foreign", "guard", "key", "lease", "length", "name", "offset", "place")

    def __del__(self):
        """Nothing refers to it any more."""
        self.foreign.unmap(self)


class ForeignMemory:
    """The other memory that this worker was told of.

    The loop's thread only, but for the last reference to a window, and for what answers to calls lie in
    (`window_ahead`, `give_back`): threads that read those run ahead of the loop, so what a message shows holds as soon
    as it is read, and what it forgets when the loop has come as far.
    """

    def __init__(self, library, fd, nudge):
        """`fd`: the share socket; `nudge()`: wakes the loop, from any thread and finaliser."""
        self._library = library
        self._faults, self._windows_written = library.tf_faults, library.tf_window_written
        self._guard_arm, self._guard_lost = library.tf_guard_arm, library.tf_guard_lost
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(True)
        self._lock = threading.Lock()  # of all that other threads may change, too
        self._seen = 0  # messages that were read; of these, `told` hold for the loop
        self._ahead = {}  # id: Share, after all that was read
        self._shares = {}  # the same for the loop
        self._unheld_messages = deque()  # (number, id, Share or None) that do not hold for the loop yet
        self._serials = 0
        self._returned = deque()  # windows on answers that user code has let go of
        self._nudge = nudge
        self.unneeded = deque()  # (share id, OpenedMemory or None) of GPU memory that nobody needs any more
        self._idle = {}  # (serial of the share, offset, bytes): windows
        self._idle_count = 0
        self._faults_counted = library.tf_faults_counted() != 0
        self.devices = KnownMemory()  # of inputs, and of answers to calls, that lie on the GPU
        self.inputs = None  # the input arena's memory, where the server leaves copies
        self.device_lost = None  # why no memory on the GPU can be opened or closed any more
        self._pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        self.told = 0  # messages that hold
        self.written = set()  # inputs that the model writes into: copied from now on
        self.open = []  # windows of the batch at hand
        # What a count of references reads when nobody else refers to the object differs between interpreters.
        self._unheld = _references([object()])[0]

    def close(self):
        """End before the process ends: windows that user code holds live on."""
        with self._lock:
            self._take_back()
            self._drop_idle()
            self._socket.close()
            os.close(self._pagemap)
            self._shares, self._ahead = {}, {}
            self._unheld_messages.clear()

    # ---- what the server says

    def catch_up(self, told):
        """Have the first `told` messages hold, waiting for those that are on their way."""
        with self._lock:
            self._read_ahead(told)
            self._hold(told)
        self.close_unneeded()

    def rest(self, pending):
        """Read what the server said to an idle instance; `pending`: whether a request is there after all."""
        with self._lock:
            while self._receive(socket.MSG_DONTWAIT):
                pass
            if not pending():  # else that request may need what a later message forgets
                self._hold(self._seen)
            self._take_back()
            self._drop_idle()
        self.close_unneeded()

    def _read_ahead(self, told):
        while 0 < (told - self._seen) & 0xFFFFFFFF < 1 << 31:
            self._receive(0)

    def _receive(self, flags):
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_MESSAGE.size + _HANDLE_BYTES, socket.CMSG_SPACE(4), flags)
        except BlockingIOError:
            return False
        fds = [struct.unpack("i", raw[:4])[0] for _, kind, raw in ancillary if kind == socket.SCM_RIGHTS]
        handle = data[_MESSAGE.size :]
        if len(data) < _MESSAGE.size or len(handle) != (_HANDLE_BYTES if data[0] == _SHOW_DEVICE else 0):
            raise WireError(f"a message of {len(data)} bytes on the share socket")
        kind, guarded, share, _, begin, nbytes = _MESSAGE.unpack_from(data)
        self._seen = (self._seen + 1) & 0xFFFFFFFF
        if kind in (_SHOW, _SHOW_DEVICE):
            self._serials += 1
            fd = fds[0] if fds else -1
            shown = self._ahead[share] = Share(share, self._serials, fd, guarded, begin, nbytes)
            if handle:
                shown.handle, shown.let_go = handle, self._let_go
        elif kind == _FORGET:
            shown = None
            self._ahead.pop(share, None)
        else:
            raise WireError(f"a message of kind {kind} on the share socket")
        self._unheld_messages.append((self._seen, share, shown))
        return True

    def _hold(self, told):
        self.told = told
        while self._unheld_messages and (told - self._unheld_messages[0][0]) & 0xFFFFFFFF < 1 << 31:
            _, share, shown = self._unheld_messages.popleft()
            forgotten = self._shares.pop(share, None)
            if forgotten is not None:
                self._drop_idle(forgotten.serial)
            if shown is not None:
                self._shares[share] = shown

    def _let_go(self, share, opened):
        """In a finaliser, in any thread and at any moment: the loop closes it, and tells the server."""
        self.unneeded.append((share, opened))
        self._nudge()

    def close_unneeded(self):
        """Close GPU memory that nobody needs any more, and tell the server, which waits for it.  The loop's thread.

        Where the GPU is lost (`device_lost`), the end of the process closes what is left, and the server sees that.
        """
        while self.unneeded and self.device_lost is None:
            share, opened = self.unneeded.popleft()
            told = {"t": "gpu_memory", "closed": share}
            try:
                refusal = "" if opened is None else opened.close()
            except CudaError as error:
                self.device_lost = str(cuda.failure(f"closing GPU memory of another process failed: {error}", error))
                return
            if refusal:
                told["error"] = refusal
                current().log("WARN", _UNCLOSED.format(current().whose, refusal), "foreign_memory.py", 0, "unclosed")
            current().tell(told)

    # ---- windows

    def window(self, place, nbytes, lease, name):
        """A window that shows [place, place + nbytes) at its `offset`.  `lease`: of the request that it is for, which
        it keeps; `name`: of the input.  Raises WireError.
        """
        with self._lock:
            return self._window(self._shares, place, nbytes, lease, name)

    def is_on_device(self, place):
        """Whether a place of the batch at hand lies in GPU memory."""
        share = self._shares.get(place >> SHARE_SHIFT)
        return share is not None and share.handle is not None

    def on_device(self, place, nbytes, lease, layout):
        """The ClientMemory at a place for which `is_on_device`; where this process cannot open it, a bytearray with a
        copy; `layout`: of the input.  Raises WireError.
        """
        return self._on_device(self._shares[place >> SHARE_SHIFT], place, nbytes, lease, layout)

    def on_device_ahead(self, place, nbytes, lease, layout, told):
        """The same of an answer to a call, where that lies on the GPU, else None.  See window_ahead.

        Raises WireError.
        """
        with self._lock:
            self._read_ahead(told)
            share = self._ahead.get(place >> SHARE_SHIFT)
        if share is None or share.handle is None:
            return None
        return self._on_device(share, place, nbytes, lease, layout)

    def _on_device(self, share, place, nbytes, lease, layout):
        offset = place & OFFSET
        if offset + nbytes > share.end:
            raise WireError(f"a tensor at share {place >> SHARE_SHIFT}, offset {offset}, {nbytes} bytes: outside of it")
        try:
            return self.devices.add(ClientMemory(share, place, offset, nbytes, layout.shape, lease))
        except CudaError as error:
            if not error.is_fatal:
                return self._copied(share, offset, nbytes, layout, error)
            opening = f"opening {share.named()} for tensor '{layout.name}' failed: {error}"
            self.device_lost = str(cuda.failure(opening, error))
            raise WireError(
                f"tensor '{layout.name}' lies in {share.named()}, and instance {current().instance} has lost its GPU "
                f"({error}). It ends, and the server starts it again: try again then"
            ) from None

    def _copied(self, share, offset, nbytes, layout, error):
        """A copy that the server leaves in the input arena: the answer waits until it is taken from there."""
        try:
            asked = {"t": "gpu_memory", "copy": share.number, "offset": offset, "bytes": nbytes}
            answer = current().ask(asked)
        except ControlClosed as closed:
            answer = {"error": str(closed)}
            current().tell({"t": "gpu_memory", "copied": closed.number})  # it is taken by nobody now
        if "error" in answer:
            raise WireError(_UNOPENED.format(layout.name, current().instance, error, answer["error"]))
        copy = bytearray(self.inputs[answer["at"] : answer["at"] + nbytes])
        current().tell({"t": "gpu_memory", "copied": answer["n"]})
        return copy

    def share_at(self, place):
        """The Share of a place of the batch at hand; None when this worker was told of none."""
        return self._shares.get(place >> SHARE_SHIFT)

    def window_ahead(self, place, nbytes, name, told):
        """A window for an answer to a call, which the server sent behind `told` messages; any thread.
        It is to come back through `give_back`.
        """
        with self._lock:
            self._read_ahead(told)
            self._take_back()
            return self._window(self._ahead, place, nbytes, None, name)

    def give_back(self, window):
        """Nothing refers any more to a window that `window_ahead` gave.  For finalisers: takes no lock."""
        self._returned.append(window)

    def _window(self, shares, place, nbytes, lease, name):
        share, offset = shares.get(place >> SHARE_SHIFT), place & OFFSET
        if share is None or share.fd < 0 or offset < share.begin or offset + nbytes > share.end:
            raise WireError(
                f"a tensor at share {place >> SHARE_SHIFT}, offset {offset}, {nbytes} bytes: "
                + ("the worker could not be given this memory" if share is None or share.fd < 0 else "outside of it")
            )
        idle = self._idle.get((share.serial, offset, nbytes))
        if idle:
            window = idle.pop()
            self._idle_count -= 1
            if window.guard >= 0:
                self._guard_arm()
        else:
            window = self._map(share, offset, nbytes)
            window.place = place
        window.lease, window.name = lease, name
        return window

    def _map(self, share, offset, nbytes):
        first = offset & -_PAGE
        length = ((offset + nbytes + _PAGE - 1) & -_PAGE) - first
        error = ctypes.c_int()
        base = self._library.tf_window_map(share.fd, first, length, ctypes.addressof(error))
        if not base:
            raise WireError(f"cannot map {length} bytes of a share at {first}: {os.strerror(-error.value)}")
        guard = self._library.tf_guard_add(base, length) if share.guarded else -1
        if share.guarded and guard < 0:
            self._library.tf_window_unmap(base, length)
            raise WireError(f"cannot guard a window on a client's memory: {os.strerror(-guard)}")
        window = Window.from_address(base)
        window.foreign, window.base, window.length, window.guard = self, base, length, guard
        window.key, window.offset, window.clean_at = (share.serial, offset, nbytes), offset - first, -1
        return window

    def unmap(self, window):
        """For its finaliser."""
        if window.guard >= 0:
            self._library.tf_guard_remove(window.guard)
        self._library.tf_window_unmap(window.base, window.length)

    def is_written(self, window):
        """Whether a page of it may differ from the file's."""
        return self._may_differ(window, self._faults())

    def _may_differ(self, window, faults):
        """Whether the window's memory may have been written to; `faults`: read before."""
        if faults == window.clean_at:
            return False  # nothing was written to for the first time since
        if self._windows_written(self._pagemap, window.base, window.length) != 0:
            return True
        if self._faults_counted:
            window.clean_at = faults
        return False

    def is_lost(self, window):
        """Whether some of its memory was gone when it was read or written."""
        return window.guard >= 0 and self._guard_lost(window.guard) != 0

    def settle(self):
        """The batch is over, and only user code can hold its windows: keep those that are as they were."""
        windows = self.open
        self.open = []
        free = [at for at, count in enumerate(_references(windows)) if count == self._unheld]
        for at in free:  # the others keep their requests' leases, until the last arrays over them are gone
            windows[at].lease = None
        faults = self._faults()
        with self._lock:
            for at in free:
                window, windows[at] = windows[at], None
                if not self._may_differ(window, faults):
                    self._keep(window)
                elif not self.is_lost(window):  # zeros in place of what was lost are no writing of the model's
                    self.written.add(window.name)

    def _take_back(self):
        while self._returned:
            window = self._returned.popleft()
            if not self.is_written(window):
                self._keep(window)

    def _keep(self, window):
        serial, share = window.key[0], window.place >> SHARE_SHIFT
        if self._serial(self._shares, share) != serial and self._serial(self._ahead, share) != serial:
            return  # forgotten
        if self._idle_count >= limits.WINDOWS_IDLE_MAX:
            self._drop_idle()
        self._idle.setdefault(window.key, []).append(window)
        self._idle_count += 1

    def _serial(self, shares, share):
        found = shares.get(share)
        return 0 if found is None else found.serial

    def _drop_idle(self, serial=None):
        """Unmap windows that are not in use: of one share, or all."""
        for key in [key for key in self._idle if serial is None or key[0] == serial]:
            self._idle_count -= len(self._idle.pop(key))


def lost_text(name):
    """The error for a client whose memory went away."""
    return _GONE.format(name)


def _references(objects):
    """How often each is referred to."""
    return [sys.getrefcount(item) for item in objects]
