"""The control socket and the thread that serves it: everything that is not a request (WIRE.md, "Life of an instance").

The hot loop never waits here: it appends to a bounded queue and goes on.  When the server goes, so does this process.
"""

import contextlib
import os
import select
import socket
import threading
import time
import traceback
from collections import deque

from tisfast_worker import limits, msgpack
from tisfast_worker.control_messages import ControlClosed, ControlMessages
from tisfast_worker.zmtp import Dealer, ZmtpError


class ControlSocket:
    """A Dealer on a Unix socket, with one msgpack map to a message."""

    def __init__(self, endpoint):
        """Connect to `ipc://PATH`.  Raises OSError."""
        self._dealer = Dealer()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(limits.CONNECT_SECONDS_MAX)
        self._socket.connect(endpoint[len("ipc://") :])
        self._socket.setblocking(False)
        self._inbox = deque()

    def fileno(self):
        """For select."""
        return self._socket.fileno()

    def close(self):
        """End the connection."""
        self._socket.close()

    @property
    def wants_write(self):
        """Whether bytes wait for the socket."""
        return self._dealer.has_outgoing

    def send(self, message):
        """Queue one message; `flush` sends it."""
        self._dealer.send(msgpack.encode(message))

    def flush(self):
        """Send what the socket takes now.  Raises ControlClosed."""
        data = self._dealer.take_outgoing()
        try:
            while data:
                del data[: self._socket.send(data)]
        except BlockingIOError:
            self._dealer.give_back(data)
        except ConnectionError as error:  # no other OSError: a model's TimeoutError, raised in this thread, is one
            raise ControlClosed(str(error)) from None

    def receive(self):
        """Messages that have come.  Raises ControlClosed, ZmtpError or MsgpackError."""
        try:
            data = self._socket.recv(limits.CONTROL_RECEIVE_BYTES)
        except BlockingIOError:
            return []
        except ConnectionError as error:
            raise ControlClosed(str(error)) from None
        if not data:
            raise ControlClosed("end of file")
        return [_one_map(frames) for frames in self._dealer.receive(data)]

    def handshake(self):
        """Wait until messages may be sent.  Raises ZmtpError when that takes too long."""
        deadline = time.monotonic() + limits.CONNECT_SECONDS_MAX
        while not self._dealer.ready:
            self._step(deadline)
        self.flush()

    def wait_message(self, deadline=None):
        """The next message, waiting for it.  For the time before the control thread runs."""
        while not self._inbox:
            self._step(deadline)
        return self._inbox.popleft()

    def drain(self, seconds_max):
        """Send everything queued, waiting at most this long."""
        deadline = time.monotonic() + seconds_max
        self.flush()
        while self.wants_write and time.monotonic() < deadline:
            select.select([], [self], [], seconds_max)
            self.flush()

    def _step(self, deadline):
        self.flush()
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise ZmtpError(f"no answer on the control socket within {limits.CONNECT_SECONDS_MAX} s")
        readable, _, _ = select.select([self], [self] if self.wants_write else [], [], left)
        if readable:
            self._inbox.extend(self.receive())


def _one_map(frames):
    message = msgpack.decode(frames[0])
    if len(frames) != 1 or not isinstance(message, dict):
        raise ZmtpError("a control message must be one frame with one map")
    return message


class ControlThread(ControlMessages):
    """The control of the instance that a process is: answers pings, passes `stop` on, and carries its records."""

    def __init__(self, control, on_stop):
        """Takes over `control`; `on_stop` is called in this thread."""
        super().__init__()
        self._control, self._on_stop = control, on_stop
        self._queue = deque()  # appended by any thread, emptied by this one; both are atomic under the GIL
        self._dropped = 0
        self._finishing = self._to_be_read = False
        self._wake_read, self._wake_write = os.pipe()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        self._thread = threading.Thread(target=self._run, name="tisfast-control", daemon=True)
        self._has_begun = threading.Event()

    def start(self):
        """Begin to serve the socket.  From now on the server sees when this process begins to end."""
        self._thread.start()
        self._has_begun.wait()

    def post(self, message):
        """See ControlMessages."""
        if len(self._queue) >= limits.CONTROL_RECORDS_MAX:
            self._dropped += 1
            return
        self.send(message)

    def send(self, message):
        """See ControlMessages."""
        self._queue.append(message)
        self._wake()

    def finish(self, message, to_be_read=False):
        """Send everything queued and then `message`, and end the thread; waits for it, bounded.

        to_be_read: wait for the server as well, which kills who it has heard: ZeroMQ drops what a peer that is gone has
        left unread.
        """
        self._queue.append(message)
        self._to_be_read = to_be_read
        self._finishing = True
        self._wake()
        self._thread.join(2 * limits.STOPPED_FLUSH_SECONDS_MAX + 1)

    def _wake(self):
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes the thread as well
            os.write(self._wake_write, b"\0")

    def _run(self):
        try:
            self._serve()
        except BaseException as error:  # a model can raise what it likes in any thread of its process
            try:
                _say_last(error)
            finally:
                os._exit(1)  # who does not hear the server cannot serve; other threads may be deep in user code

    def _serve(self):
        self._control.send({"t": "thread", "thread": threading.get_native_id()})
        self._control.flush()
        self._has_begun.set()
        while not self._finishing:
            self._turn()
        self._send_queued(everything=True)
        self._control.drain(limits.STOPPED_FLUSH_SECONDS_MAX)
        if self._to_be_read:
            select.select([self._control], [], [], limits.STOPPED_FLUSH_SECONDS_MAX)

    def _turn(self):
        self._send_queued()
        writers = [self._control] if self._control.wants_write else []
        readable, writable, _ = select.select([self._control, self._wake_read], writers, [])
        if self._wake_read in readable:
            os.read(self._wake_read, 4096)
        if writable:
            self._control.flush()
        if self._control in readable:
            for message in self._control.receive():
                self._answer(message)

    def _answer(self, message):
        kind = message.get("t")
        if kind == "stop":
            self._on_stop()
        elif not self.hear(message):
            raise ZmtpError(f"the server sent a {kind!r} message to a running worker")

    def _send_queued(self, everything=False):
        """Move records to the socket only as it takes them, so that the bound on the queue is the bound on memory."""
        while self._queue and (everything or not self._control.wants_write):
            self._control.send(self._queue.popleft())
            self._control.flush()
        if self._dropped and not self._queue:
            dropped, self._dropped = self._dropped, 0
            text = f"{dropped} log records were dropped: more came than the control socket could carry"
            self._control.send({"t": "log", "level": "WARN", "msg": text, "file": "control.py", "line": 0})
            self._control.flush()


def _say_last(error):
    """Write the last line of this process, which the server tells to who waits for an answer (WIRE.md, 6)."""
    if isinstance(error, ControlClosed):
        return  # nobody is left to hear it
    if isinstance(error, (ZmtpError, msgpack.MsgpackError)):
        # The peer is our own server: after a broken message nothing that follows can be trusted.
        text = f"tisfast worker: control socket: {error}\n"
    else:
        what = traceback.format_exception_only(type(error), error)[0].partition("\n")[0][: limits.LAST_ERROR_CHARS_MAX]
        text = (
            f"{traceback.format_exc()}tisfast worker: its thread '{threading.current_thread().name}', which hears the "
            f"server, was ended by {what}. If the model or a library ends threads, it has to leave this one alone\n"
        )
    if select.select([], [2], [], limits.STOPPED_FLUSH_SECONDS_MAX)[1]:  # so many bytes do not wait then
        os.write(2, text.encode("utf-8", "backslashreplace")[-select.PIPE_BUF :])
