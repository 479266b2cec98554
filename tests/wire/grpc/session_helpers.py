"""The server's side of a client session, frame by frame; hyperframe and hpack write and read it, not our code."""

from __future__ import annotations

import struct

from hpack import Decoder, Encoder
from hyperframe.frame import DataFrame, Frame, HeadersFrame, SettingsFrame

from tisfast.wire.grpc.client_session import GrpcClientSession

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
OK = (("grpc-status", "0"),)


def framed(message, flag=0):
    """A message as it goes in DATA frames."""
    return struct.pack(">BI", flag, len(message)) + message


class Server:
    """What one session is connected to."""

    def __init__(self, **options):
        self.session = GrpcClientSession("h:1", **options)
        self._encoder, self._decoder = Encoder(), Decoder()
        self._greeted = False
        self.fields = {}  # of each call
        self.data = {}  # what came of each call
        self.closed = set()  # calls that the client has ended its side of
        self.resets = {}  # call to error code
        self.settings = {}
        self.tell(SettingsFrame(0))

    def tell(self, *frames):
        """The events that these frames make."""
        return self.session.take(b"".join(frame.serialize() for frame in frames))

    def read(self):
        """Take what the session sends, into the fields above."""
        data = self.session.outgoing()
        if data and not self._greeted:
            assert data.startswith(PREFACE)
            data, self._greeted = data[len(PREFACE) :], True
        while data:
            frame, n = Frame.parse_frame_header(memoryview(data[:9]))
            frame.parse_body(memoryview(data[9 : 9 + n]))
            data = data[9 + n :]
            self._note(frame, frame.stream_id)
        return self

    def _note(self, frame, call):
        if isinstance(frame, HeadersFrame):
            assert "END_HEADERS" in frame.flags
            self.fields[call] = self._decoder.decode(frame.data)
            self.data[call] = b""
        elif isinstance(frame, DataFrame):
            self.data[call] += frame.data
        elif isinstance(frame, SettingsFrame):
            self.settings.update(frame.settings)
        elif hasattr(frame, "error_code") and call:
            self.resets[call] = frame.error_code
        if "END_STREAM" in frame.flags:
            self.closed.add(call)

    # ---- frames

    def head(self, call, fields=(), *, status="200", end=False):
        """The beginning of an answer, or all of one that has nothing else."""
        return self.block(call, [(":status", status), *fields], end)

    def trailers(self, call, fields=OK):
        return self.block(call, fields, True)

    def block(self, call, fields, end):
        flags = ["END_HEADERS", "END_STREAM"] if end else ["END_HEADERS"]
        return HeadersFrame(call.id, self._encoder.encode(list(fields)), flags=flags)

    def piece(self, call, data, end=False):
        """Of the messages of an answer."""
        return DataFrame(call.id, data, flags=["END_STREAM"] if end else [])
