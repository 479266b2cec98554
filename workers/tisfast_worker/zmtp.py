"""A ZMTP 3 DEALER with the NULL mechanism: bytes in, messages and bytes out.  No sockets here (see control.py).

It says it speaks 3.0, so libzmq sends it no heartbeats of its own; a PING is answered all the same.  Sections named
are those of RFC 23 (ZMTP 3.0).
"""

import struct

from tisfast_worker import limits

_MORE, _LONG, _COMMAND = 1, 2, 4
_GREETING_BYTES = 64


class ZmtpError(Exception):
    """The peer does not speak the protocol, or refuses us."""


class Dealer:
    """One connection.  Feed what was received to `receive`; send what `take_outgoing` returns."""

    def __init__(self):
        """A connection about to be greeted."""
        signature = b"\xff" + bytes(8) + b"\x7f"
        self._outgoing = bytearray(signature + bytes((3, 0)) + b"NULL".ljust(20, b"\0") + bytes(32))
        self._incoming = bytearray()
        self._parts = []  # frames of a message whose last frame has not come
        self._parts_bytes = 0
        self._greeted = False
        self.ready = False  # the peer's READY has come: messages may be sent

    def take_outgoing(self):
        """Bytes to send now; they are forgotten here."""
        data, self._outgoing = self._outgoing, bytearray()
        return data

    def give_back(self, data):
        """Put back bytes of take_outgoing that the socket did not take: they go out first."""
        self._outgoing[:0] = data

    @property
    def has_outgoing(self):
        """Whether bytes wait to be sent."""
        return bool(self._outgoing)

    def send(self, message):
        """Queue one message of one frame."""
        self._frame(0, message)

    def receive(self, data):
        """Complete messages (lists of frames) that `data` brought.  Raises ZmtpError."""
        self._incoming += data
        if not self._greeted and not self._read_greeting():
            return []
        messages = []
        at = 0
        while True:
            frame = self._read_frame(at)
            if frame is None:
                break
            flags, body, at = frame
            if flags & _COMMAND:
                self._command(body)
            else:
                self._collect(flags, body, messages)
        del self._incoming[:at]
        return messages

    def _frame(self, flags, body):
        size = len(body)
        head = struct.pack(">BB", flags, size) if size < 256 else struct.pack(">BQ", flags | _LONG, size)
        self._outgoing += head
        self._outgoing += body

    def _read_greeting(self):
        data = self._incoming
        if data and (data[0] != 0xFF or (len(data) > 9 and data[9] & 1 == 0)):
            raise ZmtpError("the control socket's peer does not speak ZMTP")
        if len(data) < _GREETING_BYTES:
            return False
        if data[10] < 3 or bytes(data[12:32]).rstrip(b"\0") != b"NULL":
            raise ZmtpError(f"the control socket's peer speaks ZMTP {data[10]} with {bytes(data[12:32])!r}")
        del data[:_GREETING_BYTES]
        self._greeted = True
        self._frame(_COMMAND, b"\x05READY" + _property("Socket-Type", b"DEALER") + _property("Identity", b""))
        return True

    def _read_frame(self, at):
        data = self._incoming
        head = 9 if len(data) > at and data[at] & _LONG else 2
        if len(data) < at + head:
            return None
        flags = data[at]
        size = struct.unpack_from(">Q", data, at + 1)[0] if head == 9 else data[at + 1]
        if size > limits.CONTROL_MESSAGE_BYTES_MAX:
            raise ZmtpError(f"a control frame of {size} bytes; at most {limits.CONTROL_MESSAGE_BYTES_MAX}")
        if len(data) < at + head + size:
            return None
        return flags, bytes(data[at + head : at + head + size]), at + head + size

    def _command(self, body):
        name = body[1 : 1 + body[0]] if body else b""
        if name == b"READY":
            self.ready = True
        elif name == b"ERROR":
            raise ZmtpError("the server refused the control connection: {}".format(body[7:].decode("utf-8", "replace")))
        elif name == b"PING":
            self._frame(_COMMAND, b"\x04PONG" + body[7:])  # after name and u16 time to live comes the context

    def _collect(self, flags, body, messages):
        if not self.ready:
            raise ZmtpError("a message before the handshake's end")
        self._parts_bytes += len(body)
        if self._parts_bytes > limits.CONTROL_MESSAGE_BYTES_MAX:
            raise ZmtpError(f"a control message longer than {limits.CONTROL_MESSAGE_BYTES_MAX} bytes")
        self._parts.append(body)
        if not flags & _MORE:
            messages.append(self._parts)
            self._parts, self._parts_bytes = [], 0


def _property(name, value):
    return bytes([len(name)]) + name.encode() + struct.pack(">I", len(value)) + value
