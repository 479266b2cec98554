"""The guest's end of its connection with the server: messages both ways, with descriptors (WIRE.md, Guests).

One thread serves it.  It never waits: messages of other threads are queued.
"""

import array
import contextlib
import os
import select
import socket
import struct
import sys
import threading
from collections import deque

from tisfast_worker import limits, msgpack

_HEAD = struct.Struct("<IB")  # bytes of the message, descriptors that come with it
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of SO_PEERCRED
_DESCRIPTORS = socket.CMSG_SPACE(limits.NURSERY_DESCRIPTORS_MAX * 4)


def connect(path):
    """A connection with the server that listens at `path`, which is the same user's.  Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(limits.CONNECT_SECONDS_MAX)
        connection.connect(path)
        connection.setblocking(False)
        _, user, _ = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if user != os.geteuid():
            raise PermissionError(f"the server at {path} runs as user {user}, and this process as {os.geteuid()}")
    except BaseException:
        connection.close()
        raise
    return connection


class GuestLink:
    """The connection.  `heard(message, descriptors)` and `lost(reason)` are called in its thread."""

    def __init__(self, connection, heard, lost):
        """Takes over `connection`."""
        self._connection, self._heard, self._lost = connection, heard, lost
        self._queue = deque()  # appended by any thread, emptied by this one
        self._dropped = 0
        self._outgoing = bytearray()
        self._incoming = bytearray()
        self._descriptors = deque()
        self._reason = ""  # why the server said farewell
        self._closing = False
        self._waking = threading.RLock()  # finalisers may wake it in the middle of a wake
        self._wake_read, self._wake_write = os.pipe()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        self._thread = threading.Thread(target=self._run, name="tisfast-guest", daemon=True)

    def start(self):
        """Begin to serve it."""
        self._thread.start()

    def send(self, message):
        """Queue a message.  From any thread."""
        self._queue.append(message)
        self._wake()

    def post(self, message):
        """Queue a message that is dropped, and counted, when too many wait."""
        if len(self._queue) >= limits.CONTROL_RECORDS_MAX:
            self._dropped += 1
            return
        self.send(message)

    def close(self):
        """Send what is queued, say farewell and end; waits for it, bounded."""
        self._queue.append({"t": "bye"})
        self._closing = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(limits.STOPPED_FLUSH_SECONDS_MAX + 1)

    def leave_child(self):
        """In a child process, to which the connection does not belong."""
        self._waking = threading.RLock()
        for fd in (self._connection.detach(), self._wake_read, self._wake_write):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._wake_read = self._wake_write = -1

    def _wake(self):
        with self._waking, contextlib.suppress(OSError):  # full: it wakes all the same; or closed: nobody listens
            os.write(self._wake_write, b"\0")

    def _run(self):
        reason = "the connection was closed"
        try:
            while not self._reason and not (self._closing and not self._queue and not self._outgoing):
                self._turn()
            reason = self._reason or reason
        except EOFError:
            reason = self._reason or "the server has ended, or closed the connection"
        except OSError as error:
            reason = f"the connection with the server failed: {error.strerror}"
        except Exception as error:  # after a broken message nothing that follows can be trusted
            reason = f"the server sent what is no message of this protocol: {error}"
        self._end()
        self._lost(reason)

    def _end(self):
        self._connection.close()
        with self._waking:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_write = -1
        while self._descriptors:
            os.close(self._descriptors.popleft())

    def _turn(self):
        self._encode_queued()
        poll = select.poll()  # not select: the user's process may have more than 1024 descriptors
        poll.register(self._connection, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
        poll.register(self._wake_read, select.POLLIN)
        ready = dict(poll.poll())
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        events = ready.get(self._connection.fileno(), 0)
        if events & select.POLLOUT:
            self._flush()
        if events & ~select.POLLOUT:
            self._receive()

    def _encode_queued(self):
        """Encode queued messages while nothing waits to be sent, so that the queue's bound is that of the memory."""
        while self._queue and not self._outgoing:
            text = msgpack.encode(self._queue.popleft())
            self._outgoing += _HEAD.pack(len(text), 0) + text
            self._flush()

    def _flush(self):
        try:
            while self._outgoing:
                del self._outgoing[: self._connection.send(self._outgoing, socket.MSG_NOSIGNAL)]
        except BlockingIOError:
            pass

    def _receive(self):
        try:
            data, ancillary, _, _ = self._connection.recvmsg(
                limits.CONTROL_RECEIVE_BYTES, _DESCRIPTORS, getattr(socket, "MSG_CMSG_CLOEXEC", 0)
            )
        except BlockingIOError:
            return
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found = array.array("i")
                found.frombytes(raw[: len(raw) - len(raw) % found.itemsize])
                self._descriptors.extend(found)
        if not data:
            raise EOFError
        self._incoming += data
        while len(self._incoming) >= _HEAD.size:
            nbytes, count = _HEAD.unpack_from(self._incoming)
            if nbytes > limits.CONTROL_MESSAGE_BYTES_MAX:
                raise ValueError(f"a message of {nbytes} bytes")
            if len(self._incoming) < _HEAD.size + nbytes:
                return
            message = msgpack.decode(bytes(self._incoming[_HEAD.size : _HEAD.size + nbytes]))
            del self._incoming[: _HEAD.size + nbytes]
            self._take(message, [self._descriptors.popleft() for _ in range(count)])

    def _take(self, message, descriptors):
        if message.get("t") == "bye":
            self._reason = str(message.get("reason", "")) or "the server said farewell"
        else:
            self._heard(message, descriptors)


def script_name():
    """The name of this process for the server."""
    return os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "python"
