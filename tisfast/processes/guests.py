"""Guests: processes that the server did not start, and that serve models (workers/WIRE.md, Guests).  Layer 4
(processes).

This is their way in, and what is said on it; what becomes of their models is guest_models.py's affair.  A guest is of
the server's own user, and is not believed any more than a worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgpack

from tisfast import __version__, limits
from tisfast.errors import Internal, TisError
from tisfast.native.channel import abi_version
from tisfast.processes.control_socket import Message
from tisfast.processes.guest_directory import GuestDirectory

if TYPE_CHECKING:
    from tisfast.processes.worker import Worker

log = logging.getLogger("tisfast.guests")
HEAD: Final = struct.Struct("<IB")
"""In front of each message: its bytes, and how many descriptors come with the first of them."""
READ_BYTES: Final = 64 * 1024
_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid of SO_PEERCRED


class MessageTarget(Protocol):
    """The receiver of messages with an instance's id."""

    def heard(self, message: Message) -> None:
        """It has said something."""

    def gone(self, reason: str) -> None:
        """Its guest has."""


class GuestModelsFace(Protocol):
    """The handler of guests' orders (guest_models.py)."""

    async def serve(self, guest: Guest, order: Message) -> None:
        """Have the guest's model served.  Raises TisError."""

    async def leave(self, guest: Guest, name: str) -> None:
        """No longer, as the guest wishes: done when its last request is answered.  Raises TisError."""

    def lost(self, guest: Guest, reason: str) -> None:
        """The guest has gone, in whatever way."""


class Guest:
    """One process that has connected.  `title` names it in the log and in what clients are told."""

    def __init__(
        self, connection: socket.socket, pid: int, loop: asyncio.AbstractEventLoop, models: GuestModelsFace,
        gone: Callable[[Guest], None],
    ) -> None:  # fmt: skip
        """connection: non-blocking, ours from now on; pid: 0 where it is of another pid namespace."""
        self.pid = pid
        self.title = f"guest (pid {pid})" if pid else "guest"
        self.welcome = False  # it has said hello
        self.instances: dict[str, MessageTarget] = {}
        self.ended = False
        self._connection, self._loop, self._models, self._gone = connection, loop, models, gone
        self._inbox = bytearray()
        self._outbox: deque[tuple[memoryview, list[int]]] = deque()
        self._unsent = 0
        self._orders: set[asyncio.Task[None]] = set()
        self._pidfd = -1
        self._late = loop.call_later(limits.GUEST_HELLO_SECONDS_MAX, self._is_late)
        loop.add_reader(connection.fileno(), self._readable)
        self._watch()

    # ---- to the guest

    def tell(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Send a message, with copies of descriptors.  Raises OSError where they cannot be copied."""
        if self.ended:
            return
        text: bytes = msgpack.packb(message, use_bin_type=True)
        copies: list[int] = []
        try:
            copies.extend(map(os.dup, fds))
        except OSError:
            _close_all(copies)
            raise
        data = memoryview(HEAD.pack(len(text), len(copies)) + text)
        self._outbox.append((data, copies))
        self._unsent += len(data)
        if self._unsent > limits.GUEST_UNSENT_BYTES_MAX:
            most = limits.GUEST_UNSENT_BYTES_MAX
            self.end(f"did not read {self._unsent} bytes of what it was told, and {most} are the limit")
        elif len(self._outbox) == 1:
            self._flush()

    def end(self, reason: str, said: str = "") -> None:
        """It is gone, or has to go.  reason completes "the guest ..."; said: to itself, before that."""
        if self.ended:
            return
        if said:
            self.tell({"t": "bye", "reason": said})
        if self.ended:
            return  # by what it was told
        self.ended = True
        self._late.cancel()
        self._loop.remove_reader(self._connection.fileno())
        self._loop.remove_writer(self._connection.fileno())
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        self._connection.close()
        for _, fds in self._outbox:
            _close_all(fds)
        self._outbox.clear()
        for task in self._orders:
            task.cancel()
        for instance in tuple(self.instances.values()):
            instance.gone(reason)
        self._models.lost(self, reason)
        self._gone(self)

    def _flush(self) -> None:
        while self._outbox:
            data, fds = self._outbox[0]
            try:
                sent = socket.send_fds(self._connection, [data], fds, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                self._loop.add_writer(self._connection.fileno(), self._flush)
                return
            except OSError:
                break  # it is gone, as end-of-file will say
            _close_all(fds)
            self._unsent -= sent
            if sent < len(data):
                self._outbox[0] = (data[sent:], [])
            else:
                self._outbox.popleft()
        self._loop.remove_writer(self._connection.fileno())

    # ---- from the guest

    def _watch(self) -> None:
        """Its children may hold the connection open, so look at the process as well, where we can see it."""
        try:
            self._pidfd = os.pidfd_open(self.pid) if self.pid else -1
        except OSError:
            return  # it is gone by now, or the kernel has no such thing
        if self._pidfd >= 0:
            self._loop.add_reader(self._pidfd, self._died)

    def _died(self) -> None:
        self._drain()
        self.end("has ended")

    def _is_late(self) -> None:
        said = f"no hello within {limits.GUEST_HELLO_SECONDS_MAX} s of the connection"
        self.end(f"said {said}", f"there was {said}")

    def _readable(self) -> None:
        try:
            data = self._connection.recv(READ_BYTES)  # descriptors that come with it are dropped by the kernel
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.end("has ended, or closed its connection")
            return
        self._inbox += data
        self._take()

    def _drain(self) -> None:
        """Read the guest's last message, which may say why it left."""
        for _ in range(limits.GUEST_LAST_READS_MAX):
            if self.ended:
                return
            self._readable()

    def _take(self) -> None:
        try:
            while not self.ended and (message := self._next()) is not None:
                self._handle(message)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            log.warning("%s sent what is no message of ours, and is sent away: %s", self.title, error)
            self.end("sent what is no message of this protocol", f"what you sent is no message of ours: {error}")

    def _next(self) -> Message | None:
        most = limits.CONTROL_MESSAGE_BYTES_MAX if self.welcome else limits.GUEST_HELLO_BYTES_MAX
        if len(self._inbox) < HEAD.size:
            return None
        nbytes, descriptors = HEAD.unpack_from(self._inbox)
        if nbytes > most or descriptors:
            raise ValueError(f"a message of {nbytes} bytes with {descriptors} descriptors; {most} and 0 are the limits")
        if len(self._inbox) < HEAD.size + nbytes:
            return None
        message = msgpack.unpackb(bytes(self._inbox[HEAD.size : HEAD.size + nbytes]), raw=False)
        del self._inbox[: HEAD.size + nbytes]
        if not isinstance(message, dict) or not isinstance(message.get("t"), str):
            raise ValueError("not a map with a type")
        return message

    def _handle(self, message: Message) -> None:
        kind = message["t"]
        if not self.welcome:
            self._greet(message)
        elif kind in ("serve", "leave"):
            self._order(message)
        elif kind == "bye":
            self.end("has left")
        elif isinstance(message.get("id"), str):
            instance = self.instances.get(message["id"])
            if instance is not None:  # else its last words, after it was sent away
                instance.heard(message)
        else:
            raise ValueError(f"a message of type {kind!r:.60} without an instance")

    def _greet(self, message: Message) -> None:
        if message["t"] != "guest":
            raise ValueError(f"a message of type {message['t']!r:.60} before the hello")
        if message.get("abi") != abi_version():
            text = (
                f"the guest's worker runtime speaks version {message.get('abi')!r:.20} of the protocol, the server "
                f"(tisfast {__version__}) {abi_version()}; install the same version of tisfast on both sides"
            )
            log.warning("%s is refused: %s", self.title, text)
            self.end("speaks another version of the protocol", text)
            return
        name = str(message.get("name", ""))[: limits.GUEST_NAME_CHARS_MAX]
        name = "".join(sign if sign.isprintable() else "?" for sign in name)  # it is in log lines and reasons
        self.title = f"guest '{name}'" + (f" (pid {self.pid})" if self.pid else "")
        self.welcome = True
        self._late.cancel()
        log.info("%s has come", self.title)
        self.tell({"t": "welcome", "server": __version__})

    def _order(self, message: Message) -> None:
        number, name = message.get("n"), message.get("name")
        if not isinstance(number, int) or not isinstance(name, str):
            raise ValueError("an order without a number or a name")
        if len(self._orders) >= limits.GUEST_ORDERS_MAX:
            error = f"{limits.GUEST_ORDERS_MAX} orders of this guest are not carried out yet; wait for one"
            self.tell({"t": "done", "n": number, "error": error})
            return
        task = self._loop.create_task(self._carry_out(message, number, name))
        self._orders.add(task)
        task.add_done_callback(self._orders.discard)

    async def _carry_out(self, message: Message, number: int, name: str) -> None:
        reply: Message = {"t": "done", "n": number}
        try:
            if message["t"] == "serve":
                await self._models.serve(self, message)
            else:
                await self._models.leave(self, name)
        except TisError as error:
            reply |= {"error": str(error), "status": int(error.status)}
        except Exception as error:  # a bug of ours: the guest is not to wait for ever
            log.critical("what %s wants met a bug of the server", self.title, exc_info=error)
            reply["error"] = f"unexpected {type(error).__name__} in the server; see its log"
        self.tell(reply)


class Guests:
    """All of a server.  Event-loop thread only."""

    def __init__(self, directory: GuestDirectory, loop: asyncio.AbstractEventLoop, models: GuestModelsFace) -> None:
        """directory: ours from now on.  Listens.  Raises ConfigError."""
        self._directory, self._loop, self._models = directory, loop, models
        self._guests: set[Guest] = set()
        self._listener = directory.listen()
        loop.add_reader(self._listener.fileno(), self._accept)
        log.info("guests are welcome in %s", directory.path)

    def __len__(self) -> int:
        """Guests that are here."""
        return len(self._guests)

    def refuse(self) -> None:
        """Take no further guests."""
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._directory.remove()

    def close(self, said: str) -> None:
        """Say farewell to all of them."""
        self.refuse()
        for guest in tuple(self._guests):
            guest.end("was told that the server is stopping", said)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:  # no descriptor is left
            log.error("a guest cannot come in: %s", error.strerror)
            return
        connection.setblocking(False)
        pid, user, _ = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        reason = self._why_not(user)
        if reason:
            log.warning("a guest (pid %d) is refused: %s", pid, reason)
            _farewell(connection, reason)
            return
        self._guests.add(Guest(connection, max(pid, 0), self._loop, self._models, self._guests.discard))

    def _why_not(self, user: int) -> str:
        if user != os.geteuid():
            return f"it runs as user {user}, and the server as {os.geteuid()}: guests are of the server's own user"
        if len(self._guests) >= limits.GUESTS_MAX:
            return f"{limits.GUESTS_MAX} guests are here, which is the limit; let one of them leave"
        return ""


def _farewell(connection: socket.socket, reason: str) -> None:
    text: bytes = msgpack.packb({"t": "bye", "reason": reason})
    try:
        connection.send(HEAD.pack(len(text), 0) + text, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError:
        pass  # it has gone, and needs no reason
    finally:
        connection.close()


def _close_all(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())


class Seat:
    """The place of one worker in a guest: worker.WorkerBody."""

    def __init__(self, worker: Worker, guest: Guest, order: int) -> None:
        """order: the number that the guest gave the order which it belongs to."""
        self._worker, self._guest, self._order = worker, guest, order

    @property
    def pid(self) -> int:
        """The guest's."""
        return self._guest.pid

    async def begin(self, fds: Sequence[int]) -> None:
        """Hand the guest its descriptors."""
        if self._guest.ended:
            raise Internal(f"the {self._guest.title} has gone")
        self._guest.instances[self._worker.id] = self
        self._guest.tell({"t": "seat", "id": self._worker.id, "n": self._order}, fds)

    def tell(self, message: Message) -> None:
        """With the instance's id."""
        self._guest.tell({**message, "id": self._worker.id})

    def kill(self, verdict: str) -> None:
        """The process is its user's and goes on: it is told, and not heard any more.

        Memory that it has is not used for anything else: all of a model's goes with the model.
        """
        self.tell({"t": "dismiss", "reason": verdict})
        self._worker.over(None)

    def close(self) -> None:
        """It is gone."""
        self._guest.instances.pop(self._worker.id, None)

    def heard(self, message: Message) -> None:
        """See MessageTarget."""
        kind = message["t"]
        if kind == "stopped":
            self._worker.over(None, "has stopped")
        elif kind == "broken":
            self._worker.over(None, f"failed: {str(message.get('error', ''))[: limits.GUEST_TEXT_CHARS_MAX]}")
        else:
            self._worker.hear(message)

    def gone(self, reason: str) -> None:
        """See MessageTarget."""
        self._worker.over(None, f"is gone: the {self._guest.title} {reason}")
