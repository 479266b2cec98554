"""Answers onto a connection's socket.  Layer 4 (front)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t

from tisfast.front.socket_writer cimport PIECES_MAX, iovec
from tisfast.native.memory cimport Block
from tisfast.wire.generate cimport render_generate
from tisfast.wire.text_buffer cimport TextBuffer

from tisfast import tuning
from tisfast.errors import TisError
from tisfast.operations.http_response import BINARY, JSON, compressed_answer, error_response, head_lines

cdef Py_ssize_t RENDER_BYTES_KEPT = tuning.RENDER_BYTES_KEPT
cdef bytes JSON_TYPE = JSON.encode()
cdef bytes BINARY_TYPE = BINARY.encode()
cdef bytes JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
cdef bytes BINARY_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nInference-Header-Content-Length: ")


cdef int send_answer(SocketWriter sender, ResponseBody body, Answer answer, Head head, bint closes) except -1:
    cdef TextBuffer text = body.text
    cdef Py_ssize_t json_bytes
    cdef iovec pieces[PIECES_MAX]
    cdef int i
    text.reset(RENDER_BYTES_KEPT)
    try:
        body.render(answer)
    except TisError as error:
        return send_response(sender, error_response(error.status, error.message, True), head, closes)
    sender.status = 200
    if head.accept_encoding:
        tensors = [body.segments[i].data[:body.segments[i].nbytes] for i in range(body.count)]
        return send_response(sender, compressed_answer(head.accept_encoding, text.value(), tensors), head, closes)
    json_bytes = text.used
    text.put_bytes(BINARY_HEAD if body.count else JSON_HEAD)  # behind the JSON, whose length it states; sent before it
    if body.count:
        text.put_int(json_bytes)
        text.put_bytes(b"\r\nContent-Length: ")
    text.put_uint(json_bytes + body.tensor_bytes)
    text.put_bytes(head_end(head, closes))
    pieces[0] = [text.data + json_bytes, text.used - json_bytes]
    pieces[1] = [text.data, json_bytes]
    for i in range(body.count):
        pieces[2 + i] = [<void *>body.segments[i].data, body.segments[i].nbytes]
    return sender.send(pieces, 2 + body.count, 2, answer)


cdef int send_rendered(SocketWriter sender, ResponseBody body, Answer answer, object rendered, Head head, bint closes) except -1:
    cdef TextBuffer text = body.text
    cdef iovec pieces[PIECES_MAX]
    cdef Block block = rendered.text
    cdef uint64_t total = 0
    cdef int n = 1
    sender.status = 200
    for output, offset, nbytes in rendered.parts[:PIECES_MAX - 1]:
        if output < 0:
            pieces[n] = [block.data + <uint64_t>offset, <uint64_t>nbytes]
        else:
            pieces[n] = [<void *>answer.outputs[<int>output].data, answer.outputs[<int>output].nbytes]
        total += pieces[n].iov_len
        n += 1
    text.reset(RENDER_BYTES_KEPT)
    text.put_bytes(b"HTTP/1.1 200 OK\r\nContent-Type: ")
    text.put_bytes(BINARY_TYPE if rendered.tensors else JSON_TYPE)
    if rendered.coding:
        text.put_bytes(b"\r\nContent-Encoding: " + rendered.coding.encode())
    if rendered.tensors:
        text.put_bytes(b"\r\nInference-Header-Content-Length: ")
        text.put_uint(<uint64_t>rendered.text_bytes)
    text.put_bytes(b"\r\nContent-Length: ")
    text.put_uint(total)
    text.put_bytes(head_end(head, closes))
    pieces[0] = [text.data, text.used]
    return sender.send(pieces, n, 1, (block, answer))


cdef int send_generated(SocketWriter sender, ResponseBody body, Answer answer, Head head, bint closes) except -1:
    cdef TextBuffer text = body.text
    cdef iovec pieces[2]
    cdef Py_ssize_t json_bytes
    text.reset(RENDER_BYTES_KEPT)
    try:
        render_generate(text, answer)
    except TisError as error:
        return send_response(sender, error_response(error.status, error.message, True), head, closes)
    sender.status = 200
    json_bytes = text.used
    text.put_bytes(JSON_HEAD)
    text.put_uint(json_bytes)
    text.put_bytes(head_end(head, closes))
    pieces[0] = [text.data + json_bytes, text.used - json_bytes]
    pieces[1] = [text.data, json_bytes]
    return sender.send(pieces, 2, 2, None)


cdef int send_response(SocketWriter sender, object response, Head head, bint closes) except -1:
    cdef iovec pieces[2]
    cdef bytes body = response.body
    cdef bytes lines = head_lines(response) + head_end(head, closes)
    sender.status = response.status
    pieces[0] = [PyBytes_AS_STRING(lines), PyBytes_GET_SIZE(lines)]
    pieces[1] = [PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body)]
    return sender.send(pieces, 2, 2, None)


cdef bytes head_end(Head head, bint closes):
    if closes:
        return b"\r\nConnection: close\r\n\r\n"
    if head is not None and head.http10:
        return b"\r\nConnection: keep-alive\r\n\r\n"
    return b"\r\n\r\n"
