"""Requests over HTTP/1.1, one under way on each connection.  Layer 5 (bench)."""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint32_t
from tisfast.bench.kernel cimport MSG_DONTWAIT, MSG_NOSIGNAL, monotonic, send
from tisfast.bench.loop cimport Load, Loop, Marks, Slot
from tisfast.wire.client_head cimport RequestHead
from tisfast.wire.http1 cimport DATA, END, HEAD, NEED_MORE, Http1Client

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from tisfast import limits
from tisfast.errors import Unavailable
from tisfast.wire.client_response import error_text

cdef Py_ssize_t ERROR_BYTES_MAX = limits.CLIENT_ERROR_CHARS_MAX


cdef class HttpTemplate:
    """A request as it is sent, made once.  check: of (body, bytes of its JSON or -1), gives what is wrong with it, or "".

    head: of the request, of which the session wants to know; text: all of it, head and body; marks: of a sequence;
    answering: instead of `check`, makes what reads an answer to this step as it comes (openai_answers.Answer).
    """
    cdef readonly RequestHead head
    cdef readonly bytes text
    cdef readonly object check
    cdef object answering
    cdef Marks marks

    def __init__(self, RequestHead head, bytes text, check=None, Marks marks=None, answering=None):
        self.head, self.text, self.check, self.marks, self.answering = head, text, check, marks, answering


cdef class HttpLoad(Load):
    """One connection."""
    cdef Http1Client session
    cdef Slot *slot
    cdef HttpTemplate template
    cdef bytes text                      # that is sent
    cdef Py_ssize_t at                   # bytes of it that have left
    cdef bytearray body                  # where somebody wants to see it
    cdef object answer                   # who reads it as it comes, or None
    cdef bint keep

    def __init__(self, Loop loop):
        self.session = Http1Client()

    cdef int on_open(self) except -1:
        self.session = Http1Client()
        return 0

    cdef int begin(self, Slot *slot) except -1:
        self.slot = slot
        self.template = <HttpTemplate>self.loop.templates[slot.step]
        self.text, self.at = self.template.text, 0
        if self.template.marks is not None:
            self.text = self.template.marks.written(self.text, slot)
        self.keep, self.body = False, None
        self.answer = None if self.template.answering is None else self.template.answering(slot.step)
        slot.sent_bytes = <size_t>PyBytes_GET_SIZE(self.text)
        self.session.sent(self.template.head)
        return 0

    cdef int flush(self) except -1:
        cdef Py_ssize_t size, n
        if self.channel is not None:
            return self._flush_sealed()
        if self.template is None:
            return 0
        size = PyBytes_GET_SIZE(self.text)
        while self.at < size:
            n = send(self.fd, PyBytes_AS_STRING(self.text) + self.at, <size_t>(size - self.at), MSG_NOSIGNAL | MSG_DONTWAIT)
            if n < 0:
                if errno == EAGAIN:
                    return self.want_out(True)
                if errno == EINTR:
                    continue
                raise Unavailable(f"the connection was lost: {os.strerror(errno)}")
            self.at += n
        return self.want_out(False)

    cdef int _flush_sealed(self) except -1:
        if self.template is not None and self.at < PyBytes_GET_SIZE(self.text):
            self.channel.seal(self.text)
            self.at = PyBytes_GET_SIZE(self.text)
        self.send_sealed()
        return 0

    cdef int on_bytes(self, ssize_t n) except -1:
        cdef Loop loop = self.loop
        cdef int64_t now = monotonic()
        cdef int event
        cdef bint whole = False
        if n == 0:
            whole = self.session.closed()
            if not whole:
                raise Unavailable("the server closed the connection")
            return self._ended(now)
        if self.slot != NULL:
            self.slot.received_bytes += <size_t>n
            if self.slot.first == 0:
                self.slot.first = now
        self.session.feed(loop.room, n)
        event = self.session.next()
        while event != NEED_MORE:
            if self.answer is not None:
                self._read(event, now)
            elif event == HEAD:
                self.keep = self.session.head.status != 200 or (self.template is not None and self.template.check is not None)
            elif event == DATA:
                if self.keep:
                    self._see()
            if event == END:
                whole = True
            event = self.session.next()
        self.session.settle()
        return self._ended(now) if whole else 0

    cdef int _read(self, int event, int64_t now) except -1:
        cdef uint32_t before
        if event == HEAD:
            self.answer.head(self.session.head.status, self.session.head.content_type)
        elif event == DATA:
            before = self.slot.responses
            self.slot.responses = self.answer.take(self.session.data[:self.session.nbytes], now)
            if before < self.loop.period <= self.slot.responses:
                self.loop.on_period()
        return 0

    cdef int _see(self) except -1:
        if self.body is None:
            self.body = bytearray()
        if self.session.head.status == 200 or len(self.body) < ERROR_BYTES_MAX:
            self.body += self.session.data[:self.session.nbytes]
        return 0

    cdef int _ended(self, int64_t now) except -1:
        cdef Slot *slot = self.slot
        cdef HttpTemplate template = self.template
        cdef int status = self.session.head.status
        cdef bint early
        if slot == NULL or status < 200:
            return 0
        early = self.at < PyBytes_GET_SIZE(self.text) or (self.channel is not None and self.channel.waiting)  # it was answered before it was read: nothing may follow on this connection
        self.slot, self.template = NULL, None
        if self.answer is not None:
            wrong = self.answer.end(slot.intended, slot.sent, self.loop.tally.tokens)
            self.answer = None
            slot.responses = max(slot.responses, 1)
        else:
            slot.responses = 1
            wrong = "" if status == 200 else error_text(bytes(self.body or b"")) or f"HTTP status {status}"
            if not wrong and template.check is not None:
                wrong = template.check(bytes(self.body or b""), self.session.head.inference_header_length)
        if wrong:
            self.failed(slot, now, str(status), wrong)
        else:
            self.done(slot, now, status)
        if early or not self.session.reusable:
            self.renew()
        return 0

    cdef int on_lost(self, str text) except -1:
        self.slot, self.template, self.answer = NULL, None, None
        return 0
