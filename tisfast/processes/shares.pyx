"""The share ids of one worker; see shares.pxd.  Layer 4 (processes).

A file is told of when the first request that refers to it goes to the worker, and forgotten when it is gone, or when
SHARES_PER_WORKER_MAX others were used later.  What a model keeps of GPU memory the worker has open also then, until it says
otherwise: the id is that memory's until then.  Messages are ordered among themselves, and each submit slot says how many
came before it.  A worker may read ahead of its ring (for the answers to its calls), so an id is given out again as late as
there are numbers: when nothing that is on its way can mean the old one.
"""

from libc.stdint cimport uint16_t, uint32_t
from tisfast.native.region cimport DeviceFile
from tisfast.wire.tensors cimport LENT

import logging
import os
import socket
import struct
import weakref
from collections import deque

from tisfast import limits
from tisfast.native.cuda_faces import NOT_ENDED, By, Holder, Refusal, unused

cdef object log = logging.getLogger("tisfast.processes")

cdef Py_ssize_t SHARES_MAX = limits.SHARES_PER_WORKER_MAX
cdef int IDS_MAX = limits.SHARE_IDS_MAX
cdef int REFUSED_MAX = limits.GPU_REFUSALS_MAX + limits.REGIONS_MAX  # as many as clients are told of
cdef object MESSAGE = struct.Struct("<BBHIQQ")  # kind, guarded, share id, zero, first byte of the file, bytes
cdef int SHOW = 1, FORGET = 2, SHOW_DEVICE = 3


cdef class ShareTable:
    """channel: of the same worker; instance: its name."""

    def __cinit__(self, Channel channel, loop, str instance):
        self.channel = channel
        self.instance = instance
        self.loop = loop
        self.open = {}
        self.names = {}
        self.closing = set()
        self.uses = unused
        self.unclosed = []
        self.refused = deque(maxlen=REFUSED_MAX)
        self.shares = {}
        self.free = deque()
        self.unused = 1
        self.outbox = deque()    # (message, descriptor or -1) that found no room in the socket
        self.socket, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setblocking(False)

    @property
    def fd(self) -> int:
        """The worker's end, until `worker_has_it`."""
        return self.theirs.fileno()

    def worker_has_it(self) -> None:
        """The worker's end is the worker's alone from now on."""
        self.theirs.close()

    def close(self, lingers) -> None:
        """The worker is over.  lingers: Worker.lingers; GPU memory stays its process's until `process_ended`."""
        self.closed = True
        self.uses = unused
        if self.waiting:
            self.loop.remove_writer(self.socket.fileno())
        for _, fd in self.outbox:
            if fd >= 0:
                os.close(fd)
        self.outbox.clear()
        self.shares.clear()
        self.socket.close()
        self.theirs.close()
        if lingers:
            for share, memory in self.open.items():
                memory.holders[id(self), share] = Holder(self.whose(), self.end, lingers)
            for memory, share in self.unclosed:
                memory.holders[id(self), share] = Holder(self.whose(), self.end, lingers)
            for unclosed, refusal in self.refused:
                unclosed[id(self)] = Refusal(By.LINGERING, f"{lingers}, {NOT_ENDED}", refusal)

    def lingers_with(self, memory, lingers) -> None:
        """Its process, which lingers, has this open too: memory that it was lent."""
        memory.holders[id(self), LENT] = Holder(self.whose(), self.end, lingers)
        self.unclosed.append((memory, LENT))

    def process_ended(self) -> None:
        """It has no GPU memory open any more."""
        self.closing.update(self.open)
        for share in list(self.open):
            self.closed_there(share, "")
        for memory, share in self.unclosed:
            memory.holders.pop((id(self), share), None)
        self.unclosed.clear()
        for unclosed, _ in self.refused:
            unclosed.pop(id(self), None)
        self.refused.clear()

    def closed_there(self, share, refusal) -> None:
        """The worker says that it has let go of GPU memory, of which it was told that the id stands for it no more.

        refusal: why its driver has not closed it, or ""."""
        if share not in self.closing:
            return
        self.closing.remove(share)
        memory = self.open.pop(share)
        self.names.pop(share, None)
        if refusal and memory.is_lent:
            self.unclosed.append((memory, share))  # it is not freed before this process has ended, nor is its id
            return
        del memory.holders[id(self), share]
        self.free.append(share)
        if refusal:
            memory.unclosed[id(self)] = Refusal(By.INSTANCE, self.whose(), refusal)
            self.refused.append((memory.unclosed, refusal))

    def named(self, share) -> str:
        """GPU memory of a client that the worker may have open, in texts."""
        return self.names.get(share, "a client's region")

    def file_of(self, share):
        """The DeviceFile that the worker knows by this id; None when that stands for none now."""
        for known, reference in self.shares.values():
            if known == share:
                file = reference()
                return file if isinstance(file, DeviceFile) else None
        return None

    cdef uint16_t id_of(self, MemoryFile file) except 0:
        cdef uint16_t share
        key = id(file)
        cdef int fd
        found = self.shares.pop(key, None)
        if found is not None:
            self.shares[key] = found  # used last: what this request refers to is not what makes room for its next file
            return <uint16_t>found[0]
        if len(self.shares) >= SHARES_MAX:
            self._forget(next(iter(self.shares)))
        share = self._new_id()
        if share == LENT:  # which no file has, so this request fails
            if not self.full:
                log.error(
                    "instance %s keeps GPU memory %d times that it was told to forget, and can be told of no more "
                    "(SHARE_IDS_MAX): requests with inputs in memory that is new to it fail until its model lets go of some",
                    self.instance, len(self.closing))
            self.full = True
            return share
        self.full = False
        fd = self._readable_copy(file.fd) if file.device < 0 else -1
        if fd >= 0 or file.device >= 0:
            self.shares[key] = (share, weakref.ref(file, lambda _: self._forget(key)))
            file.shown = not file.guarded
            if file.device >= 0:  # by its handle; of a descriptor there is no need
                self.open[share] = memory = (<DeviceFile>file).memory  # which is closed behind the worker's
                self.names[share] = f"region '{(<DeviceFile>file).region:.60}'"
                message = MESSAGE.pack(SHOW_DEVICE, not memory.is_lent, share, 0, 0, file.nbytes)
                self._tell(message + (<DeviceFile>file).handle, -1)
                memory.holders[id(self), share] = Holder(self.whose(), self.end, uses=self.uses)
                return share
        else:  # this request fails, and the next one with the file tries again
            self.free.append(share)
        self._tell(MESSAGE.pack(SHOW, file.guarded, share, 0, file.begin, file.nbytes), fd)
        return share

    cdef int _readable_copy(self, int fd) except -2:
        """A descriptor of the same file that cannot write: what a worker does to a foreign tensor is its own affair.

        -1: there is none left, which the log hears once."""
        try:
            copy = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if not self.short:
                log.error(
                    "a worker cannot be given memory of others (%s): requests with inputs there fail until it can. Raise "
                    "the limit of open files (ulimit -n), or have fewer connections", error.strerror)
            self.short = True
            return -1
        self.short = False
        return copy

    cdef uint16_t _new_id(self) except 0:
        """LENT: none is left, as a model keeps that much GPU memory."""
        if self.unused > IDS_MAX:  # the one that was given back first, 65,000 ids ago
            return <uint16_t>self.free.popleft() if self.free else LENT
        self.unused += 1
        return <uint16_t>(self.unused - 1)

    def _forget(self, key) -> None:
        """The file is gone, or others need its place."""
        found = self.shares.pop(key, None)
        if found is None or self.closed:
            return
        if found[0] in self.open:
            self.closing.add(found[0])
        else:
            self.free.append(found[0])
        self._tell(MESSAGE.pack(FORGET, 0, found[0], 0, 0, 0), -1)
        self.channel.nudge()

    cdef int _tell(self, bytes message, int fd) except -1:
        self.outbox.append((message, fd))
        self.channel.told += 1
        if not self.waiting:
            self._send()
        return 0

    def _send(self) -> None:
        """Send what waits.  A message that finds no room is sent later; the worker waits for as many as a slot says."""
        if self.sending:
            return  # a file that ends while another one is told of
        self.sending = True
        try:
            while self.outbox:
                message, fd = self.outbox[0]
                try:
                    socket.send_fds(self.socket, [message], [fd] if fd >= 0 else [], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                except BlockingIOError:
                    break
                except OSError:
                    pass  # it died: whoever watches over it knows, and what is in its ring is dealt with then
                self.outbox.popleft()
                if fd >= 0:
                    os.close(fd)
        finally:
            self.sending = False
        self._watch(len(self.outbox) > 0)

    def _watch(self, waiting) -> None:
        if waiting and not self.waiting:
            self.loop.add_writer(self.socket.fileno(), self._send)
        elif self.waiting and not waiting:
            self.loop.remove_writer(self.socket.fileno())
        self.waiting = waiting
