"""Answers as server-sent events in a chunked body.  Layer 4 (front)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdio cimport snprintf
from libc.string cimport strlen
from tisfast.front.socket_writer cimport iovec
from tisfast.native.memory cimport Block
from tisfast.wire.generate cimport render_generate
from tisfast.wire.record cimport Answer

import orjson

from tisfast import tuning
from tisfast.errors import TisError
from tisfast.operations.http_response import EVENTS, printable, status_line
from tisfast.types import Status

cdef Py_ssize_t RENDER_BYTES_KEPT = tuning.RENDER_BYTES_KEPT
cdef int OK = Status.OK
cdef const char *END = "0\r\n\r\n"
cdef const char *LINE_END = "\r\n"
cdef const char *EVENT_START = "data: "
cdef const char *EVENT_END = "\n\n"
cdef size_t EVENT_BYTES = strlen(EVENT_START) + strlen(EVENT_END)


cdef int render_event(ResponseBody body, object event, bint generate) except -1:
    cdef TextBuffer text = body.text
    cdef int status = OK
    text.reset(RENDER_BYTES_KEPT)
    text.put(b"data: ", 6)
    if isinstance(event, Answer):
        try:
            if generate:
                render_generate(text, <Answer>event)
            else:
                body.render(<Answer>event)
        except TisError as error:
            event = (error.status, error.message)
            text.reset(RENDER_BYTES_KEPT)
            text.put(b"data: ", 6)
    if not isinstance(event, Answer):
        status, message = event
        text.put_bytes(orjson.dumps({"error": printable(message)}))
    text.put(b"\n\n", 2)
    return status


cdef bytes stream_head(int http_status, Head head, bint closes):
    cdef list lines = [status_line(http_status), f"Content-Type: {EVENTS}"]
    if not head.http10:
        lines.append("Transfer-Encoding: chunked")
    if closes:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


cdef int send_event(SocketWriter sender, bytes before, TextBuffer text, bint chunked, bint last) except -1:
    cdef iovec pieces[5]
    cdef char size[24]
    cdef int n = 0
    pieces[n] = [PyBytes_AS_STRING(before), PyBytes_GET_SIZE(before)]
    n += 1
    if text.used:
        if chunked:
            pieces[n] = [size, snprintf(size, sizeof(size), b"%zx\r\n", <size_t>text.used)]
            n += 1
        pieces[n] = [text.data, text.used]
        n += 1
        if chunked:
            pieces[n] = [<void *>LINE_END, 2]
            n += 1
    if chunked and last:
        pieces[n] = [<void *>END, 5]
        n += 1
    return sender.send(pieces, n, n, None)


cdef int send_rendered_event(SocketWriter sender, bytes before, Block text, bint chunked, bint last) except -1:
    cdef iovec pieces[7]
    cdef char size[24]
    cdef int n = 1, passing
    pieces[0] = [PyBytes_AS_STRING(before), PyBytes_GET_SIZE(before)]
    if chunked:
        pieces[n] = [size, snprintf(size, sizeof(size), b"%zx\r\n", <size_t>text.nbytes + EVENT_BYTES)]
        n += 1
    pieces[n] = [<void *>EVENT_START, strlen(EVENT_START)]
    passing = n + 1
    pieces[n + 1] = [text.data, text.nbytes]
    pieces[n + 2] = [<void *>EVENT_END, strlen(EVENT_END)]
    n += 3
    if chunked:
        pieces[n] = [<void *>LINE_END, 2]
        n += 1
        if last:
            pieces[n] = [<void *>END, 5]
            n += 1
    return sender.send(pieces, n, passing, text)
