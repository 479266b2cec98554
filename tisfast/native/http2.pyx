"""HTTP/2 sessions over nghttp2, of a server and of a client, sans-io.  Layer 1 (native).

GIL: held; nghttp2 calls back on the same thread, from `receive` and `collect` only.  An exception in an override stops
the call that led to it and comes out of `receive` or `collect`.

Bounds against misuse: streams, CONTINUATION frames, SETTINGS entries and unsent acknowledgements are limited by nghttp2
with the figures of limits.py, resets of calls, header blocks and frames that move nothing by native/http2_frames before it.  A
head whose fields are too long is decoded no further than HPACK's state demands.

From nghttp2 1.52 (Debian 12) to 1.70 its defaults have changed: what it did by itself in one of them is asked for here.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from tisfast.native.http2_frames cimport FrameGate, Piece
from tisfast.native.nghttp2 cimport *
from tisfast.native.gather_write cimport Outgoing

from tisfast import limits
from tisfast.errors import Internal

cdef extern from *:
    """
    #ifdef TISFAST_NGHTTP2_CHECKS_SPACES
    #define take_outer_spaces(option) nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(option, 1)
    #else
    #define take_outer_spaces(option) (void)(option)
    #endif
    """
    void take_outer_spaces(nghttp2_option *) noexcept

cdef extern from *:
    """
    #if NGHTTP2_VERSION_NUM >= 0x014300
    #define set_glitch_rate_limit(option, burst, rate) nghttp2_option_set_glitch_rate_limit(option, burst, rate)
    #else
    #define set_glitch_rate_limit(option, burst, rate) ((void)(burst), (void)(rate))
    #endif
    """
    void set_glitch_rate_limit(nghttp2_option *, uint64_t burst, uint64_t rate) noexcept

cdef enum:
    FRAME_HEAD_BYTES = 9
    FIELD_OVERHEAD_BYTES = 32    # RFC 9113, 6.5.2
    LIBRARY_SHARE = 10           # its own bound for resets comes after ours, whose reason the client is told
cdef size_t FIELDS_BYTES_MAX = limits.HTTP2_FIELDS_BYTES_MAX
cdef int LARGE_HEADS_MAX = limits.HTTP2_LARGE_HEADS_MAX


cdef Field constant_field(const char *name, size_t name_bytes, const char *value, size_t value_bytes) noexcept:
    return Field(<uint8_t *>name, <uint8_t *>value, name_bytes, value_bytes,
                 NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE)


cdef Field copied_field(const char *name, size_t name_bytes, const char *value, size_t value_bytes) noexcept:
    return Field(<uint8_t *>name, <uint8_t *>value, name_bytes, value_bytes, NGHTTP2_NV_FLAG_NONE)


cdef class Http2Session:
    """See http2.pxd."""

    def __cinit__(self, *_, **__):
        self.streams = {}
        self.gate = FrameGate.__new__(FrameGate)
        self.out = Outgoing()

    def __dealloc__(self):
        nghttp2_session_del(self.raw)

    cdef int _begin(self, bint client) except -1:
        cdef nghttp2_session_callbacks *callbacks = NULL
        cdef nghttp2_option *option = NULL
        cdef int code
        self.client = client
        if nghttp2_session_callbacks_new(&callbacks) or nghttp2_option_new(&option):
            nghttp2_session_callbacks_del(callbacks)
            raise MemoryError()
        set_callbacks(callbacks)
        set_options(option)
        if client:
            code = nghttp2_session_client_new2(&self.raw, callbacks, <void *>self, option)
        else:
            code = nghttp2_session_server_new2(&self.raw, callbacks, <void *>self, option)
        nghttp2_session_callbacks_del(callbacks)
        nghttp2_option_del(option)
        if code:
            raise MemoryError()
        return submit_settings(self.raw, client)

    # ---- overridden (Cython has no abstract methods: what raises here must be)

    cdef int on_head_begins(self, int32_t stream_id) except -1:
        return 0

    cdef int on_field(self, const uint8_t *name, size_t name_bytes, const uint8_t *value, size_t value_bytes) except -1:
        return 0

    cdef int on_head(self, int32_t stream_id) except -1:
        raise NotImplementedError(f"{type(self).__name__}.on_head")

    cdef void on_head_invalid(self) noexcept:
        pass

    cdef int on_data(self, object stream, const uint8_t *data, size_t n) except -1:
        return 0

    cdef int on_end(self, object stream) except -1:
        return 0

    cdef int on_closed(self, object stream, uint32_t error_code) except -1:
        return 0

    cdef ssize_t on_room(self, object stream, size_t most, bint *end) except -1:
        end[0] = True
        return 0

    cdef int on_take(self, object stream, Outgoing out, size_t n) except -1:
        return 0

    cdef int on_ping(self, bint ack) except -1:
        return 0

    cdef int on_flood(self, bytes reason) except -1:
        return 0

    cdef int on_goaway(self, int32_t last_stream_id, uint32_t error_code) except -1:
        return 0

    cdef int on_sent(self, bint carries, bint resets) except -1:
        return 0

    # ---- called

    cdef int receive(self, const uint8_t *data, size_t n) except -2:
        cdef size_t at = 0
        cdef ssize_t code
        cdef Piece piece
        if self.client:  # what the gate counts are requests
            code = nghttp2_session_mem_recv(self.raw, data, n)
            return self._settle(code) if code < 0 else 0
        while at < n and self.gate.refusal is None:
            at += self.gate.next(data + at, n - at, &piece)
            if piece.nbytes:
                code = nghttp2_session_mem_recv(self.raw, piece.data, piece.nbytes)
                if code < 0:
                    return self._settle(code)
        if self.gate.refusal is not None:
            self.on_flood(self.gate.refusal)
        return 0

    cdef int collect(self) except -1:
        cdef const uint8_t *data
        cdef ssize_t n
        while not self.out.full():
            n = nghttp2_session_mem_send(self.raw, &data)
            if n == 0:
                break
            if n < 0:
                self._settle(n)
                raise Internal(f"HTTP/2 frames cannot be made: {nghttp2_strerror(<int>n).decode()}")
            self.out.put(data, n)
        return self.out.count

    cdef int _settle(self, ssize_t code) except -2:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        if code == NGHTTP2_ERR_NOMEM:
            raise MemoryError()
        return -1

    cdef int renew_out(self) except -1:
        self.out = Outgoing()
        return 0

    cdef bint over(self) noexcept:
        return not nghttp2_session_want_read(self.raw) and not nghttp2_session_want_write(self.raw)

    cdef int resume(self, int32_t stream_id) except -1:
        cdef int code = nghttp2_session_resume_data(self.raw, stream_id)
        return 0 if code == NGHTTP2_ERR_INVALID_ARGUMENT else check(code)  # it was not waiting: it goes on anyway

    cdef int reset(self, int32_t stream_id, uint32_t error_code) except -1:
        return check(nghttp2_submit_rst_stream(self.raw, NGHTTP2_FLAG_NONE, stream_id, error_code))

    cdef int consumed(self, int32_t stream_id, size_t connection_bytes, size_t stream_bytes) except -1:
        if connection_bytes:
            check(nghttp2_session_consume_connection(self.raw, connection_bytes))
        if stream_bytes:
            check(nghttp2_session_consume_stream(self.raw, stream_id, stream_bytes))
        return 0

    cdef int ping(self) except -1:
        return check(nghttp2_submit_ping(self.raw, NGHTTP2_FLAG_NONE, NULL))

    cdef int announce_shutdown(self) except -1:
        return check(nghttp2_submit_shutdown_notice(self.raw))

    cdef int go_away(self, uint32_t error_code, bytes reason) except -1:
        cdef int32_t last = nghttp2_session_get_last_proc_stream_id(self.raw)
        return check(nghttp2_submit_goaway(
            self.raw, NGHTTP2_FLAG_NONE, last, error_code, <const uint8_t *>reason, len(reason)))


cdef class Http2Server(Http2Session):
    """See http2.pxd."""

    def __cinit__(self, *_, **__):
        self._begin(False)

    cdef int on_request_begins(self) except -1:
        return 0

    cdef object on_request(self, int32_t stream_id):
        raise NotImplementedError(f"{type(self).__name__}.on_request")

    cdef int on_head_begins(self, int32_t stream_id) except -1:
        return self.on_request_begins()

    cdef int on_head(self, int32_t stream_id) except -1:
        stream = self.on_request(stream_id)
        self.streams[stream_id] = stream
        return check(nghttp2_session_set_stream_user_data(self.raw, stream_id, <void *>stream))

    cdef int respond(self, int32_t stream_id, const Field *fields, int n, bint body) except -1:
        cdef nghttp2_data_provider provider
        provider.source.ptr = NULL
        provider.read_callback = read_body
        return check(nghttp2_submit_response(
            self.raw, stream_id, <const nghttp2_nv *>fields, n, &provider if body else NULL))

    cdef int trail(self, int32_t stream_id, const Field *fields, int n) except -1:
        return check(nghttp2_submit_trailer(self.raw, stream_id, <const nghttp2_nv *>fields, n))


cdef class Http2Client(Http2Session):
    """See http2.pxd."""

    def __cinit__(self, *_, **__):
        self._begin(True)

    cdef int32_t request(self, const Field *fields, int n, object stream, bint body) except -1:
        cdef nghttp2_data_provider provider
        cdef int32_t stream_id
        provider.source.ptr = NULL
        provider.read_callback = read_body
        stream_id = nghttp2_submit_request(
            self.raw, NULL, <const nghttp2_nv *>fields, n, &provider if body else NULL, <void *>stream)
        if stream_id < 0:
            check(stream_id)
        self.streams[stream_id] = stream
        return stream_id

    cdef uint32_t streams_max(self) noexcept:
        return nghttp2_session_get_remote_settings(self.raw, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS)

    cdef int on_response_begins(self, object stream) except -1:
        return 0

    cdef int on_response(self, object stream) except -1:
        return 0

    cdef int on_head_begins(self, int32_t stream_id) except -1:
        stream = self.streams.get(stream_id)
        return 0 if stream is None else self.on_response_begins(stream)

    cdef int on_head(self, int32_t stream_id) except -1:
        stream = self.streams.get(stream_id)
        return 0 if stream is None else self.on_response(stream)


cdef int check(int code) except -1:
    if code:
        raise Internal(f"HTTP/2 library: {nghttp2_strerror(code).decode()}")
    return 0


cdef void set_callbacks(nghttp2_session_callbacks *callbacks) noexcept:
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, begin_frame)
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, begin_headers)
    nghttp2_session_callbacks_set_on_header_callback(callbacks, header)
    nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, invalid_field)
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, frame_received)
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, frame_invalid)
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, data_chunk)
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, stream_closed)
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, frame_sent)
    nghttp2_session_callbacks_set_send_data_callback(callbacks, send_data)
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, frame_bytes)


cdef void set_options(nghttp2_option *option):
    take_outer_spaces(option)  # of values, as grpcio's own server does, and older versions of the library
    nghttp2_option_set_no_auto_window_update(option, 1)  # `consumed` says what may come again
    nghttp2_option_set_no_closed_streams(option, 1)      # they serve the priority tree, which is not used
    nghttp2_option_set_max_settings(option, limits.HTTP2_SETTINGS_MAX)
    nghttp2_option_set_max_outbound_ack(option, limits.HTTP2_UNSENT_ACKS_MAX)
    nghttp2_option_set_stream_reset_rate_limit(
        option, LIBRARY_SHARE * limits.HTTP2_RESETS_BURST, LIBRARY_SHARE * limits.HTTP2_RESETS_PER_SECOND)
    nghttp2_option_set_max_continuations(option, limits.HTTP2_CONTINUATIONS_MAX)
    # From 1.67 on it counts odd frames, too, and sends away who sends more than 33 a second.  Ours is the stricter count
    # of resets, and the milder one of frames that do nothing: with either version the same clients are sent away.
    set_glitch_rate_limit(option, limits.HTTP2_IDLE_FRAMES_MAX, limits.HTTP2_IDLE_FRAMES_MAX)


cdef int submit_settings(nghttp2_session *raw, bint client) except -1:
    cdef nghttp2_settings_entry entries[5]
    entries[0] = nghttp2_settings_entry(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits.GRPC_STREAMS_MAX)
    entries[1] = nghttp2_settings_entry(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, limits.HTTP2_STREAM_WINDOW_BYTES)
    entries[2] = nghttp2_settings_entry(NGHTTP2_SETTINGS_MAX_FRAME_SIZE, limits.HTTP2_FRAME_BYTES_MAX)
    entries[3] = nghttp2_settings_entry(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, limits.GRPC_METADATA_BYTES_MAX)
    entries[4] = nghttp2_settings_entry(NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1)
    if client:  # a server opens no streams
        entries[0] = nghttp2_settings_entry(NGHTTP2_SETTINGS_ENABLE_PUSH, 0)
    check(nghttp2_submit_settings(raw, NGHTTP2_FLAG_NONE, entries, 5))
    return check(nghttp2_session_set_local_window_size(raw, NGHTTP2_FLAG_NONE, 0, limits.HTTP2_CONNECTION_WINDOW_BYTES))


# ---- nghttp2's callbacks: `user` is the session

cdef int failed(Http2Session session, object error) noexcept:
    session.failure = error
    return NGHTTP2_ERR_CALLBACK_FAILURE


cdef int begin_frame(nghttp2_session *raw, const nghttp2_frame_hd *head, void *user) noexcept:
    cdef Http2Session session = <Http2Session>user
    session.data_left = 0
    if head.type == NGHTTP2_DATA and not head.flags & NGHTTP2_FLAG_PADDED:
        session.data_stream, session.data_left = head.stream_id, head.length
    return 0


cdef int begin_headers(nghttp2_session *raw, const nghttp2_frame *frame, void *user) noexcept:
    cdef Http2Session session = <Http2Session>user
    session.fields_bytes = 0
    try:
        if session.client or frame.headers.cat == NGHTTP2_HCAT_REQUEST:
            session.on_head_begins(frame.hd.stream_id)
    except BaseException as error:
        return failed(session, error)
    return 0


cdef int header(
        nghttp2_session *raw, const nghttp2_frame *frame, const uint8_t *name, size_t name_bytes, const uint8_t *value,
        size_t value_bytes, uint8_t flags, void *user) noexcept:
    cdef Http2Session session = <Http2Session>user
    session.fields_bytes += name_bytes + value_bytes + FIELD_OVERHEAD_BYTES
    try:
        if session.fields_bytes > FIELDS_BYTES_MAX or session.gate.large_heads > LARGE_HEADS_MAX:
            session.gate.count_large_head()
            session.on_head_invalid()
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE  # the call is reset; the rest is decoded without telling
        if session.client or frame.headers.cat == NGHTTP2_HCAT_REQUEST:  # trailers of a request say nothing in gRPC
            session.on_field(name, name_bytes, value, value_bytes)
    except BaseException as error:
        return failed(session, error)
    return 0


cdef int invalid_field(
        nghttp2_session *raw, const nghttp2_frame *frame, const uint8_t *name, size_t name_bytes, const uint8_t *value,
        size_t value_bytes, uint8_t flags, void *user) noexcept:
    """The call is reset: without this callback 1.52 does so by itself, and 1.70 passes over the field."""
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE


cdef int frame_received(nghttp2_session *raw, const nghttp2_frame *frame, void *user) noexcept:
    cdef Http2Session session = <Http2Session>user
    cdef void *known
    cdef int kind = frame.hd.type
    try:
        if kind == NGHTTP2_HEADERS or kind == NGHTTP2_DATA:
            if kind == NGHTTP2_HEADERS and (session.client or frame.headers.cat == NGHTTP2_HCAT_REQUEST):
                session.on_head(frame.hd.stream_id)
            if frame.hd.flags & NGHTTP2_FLAG_END_STREAM:
                known = nghttp2_session_get_stream_user_data(raw, frame.hd.stream_id)
                if known != NULL:
                    session.on_end(<object>known)
        elif kind == NGHTTP2_PING:
            session.on_ping(frame.hd.flags & NGHTTP2_FLAG_ACK)
        elif kind == NGHTTP2_GOAWAY:
            session.on_goaway(frame.goaway.last_stream_id, frame.goaway.error_code)
    except BaseException as error:
        return failed(session, error)
    return 0


cdef int frame_invalid(nghttp2_session *raw, const nghttp2_frame *frame, int code, void *user) noexcept:
    if frame.hd.type == NGHTTP2_HEADERS and frame.headers.cat == NGHTTP2_HCAT_REQUEST:
        (<Http2Session>user).on_head_invalid()
    return 0


cdef int data_chunk(
        nghttp2_session *raw, uint8_t flags, int32_t stream_id, const uint8_t *data, size_t n, void *user) noexcept:
    cdef Http2Session session = <Http2Session>user
    cdef void *stream = nghttp2_session_get_stream_user_data(raw, stream_id)
    session.data_left -= min(n, session.data_left)
    try:
        if stream == NULL:
            return check(nghttp2_session_consume_connection(raw, n))
        session.on_data(<object>stream, data, n)
    except BaseException as error:
        return failed(session, error)
    return 0


cdef int stream_closed(nghttp2_session *raw, int32_t stream_id, uint32_t error_code, void *user) noexcept:
    cdef Http2Session session = <Http2Session>user
    try:
        stream = session.streams.pop(stream_id, None)
        if stream is not None:
            session.on_closed(stream, error_code)
    except BaseException as error:
        return failed(session, error)
    return 0


cdef int frame_sent(nghttp2_session *raw, const nghttp2_frame *frame, void *user) noexcept:
    cdef Http2Session session = <Http2Session>user
    cdef int kind = frame.hd.type
    cdef bint carries = kind == NGHTTP2_HEADERS or kind == NGHTTP2_DATA
    try:
        if carries or kind == NGHTTP2_RST_STREAM:
            session.on_sent(carries, kind == NGHTTP2_RST_STREAM and frame.rst_stream.error_code != NO_ERROR)
        if not session.client and carries and frame.hd.flags & NGHTTP2_FLAG_END_STREAM \
                and nghttp2_session_get_stream_remote_close(raw, frame.hd.stream_id) == 0:
            session.reset(frame.hd.stream_id, NO_ERROR)  # answered early: the rest of the request is not wanted
        if kind == NGHTTP2_RST_STREAM and frame.rst_stream.error_code == NGHTTP2_FLOW_CONTROL_ERROR:
            # It is nghttp2's word.  From 1.69 on it ends the connection at once, as RFC 9113, 6.9.2, asks.
            check(nghttp2_session_terminate_session(raw, NGHTTP2_FLOW_CONTROL_ERROR))
    except BaseException as error:
        return failed(session, error)
    return 0


cdef ssize_t frame_bytes(
        nghttp2_session *raw, uint8_t kind, int32_t stream_id, int32_t session_window, int32_t stream_window,
        uint32_t frame_bytes_max, void *user) noexcept:
    return min(min(session_window, stream_window), <int32_t>min(frame_bytes_max, <uint32_t>(1 << 30)))


cdef ssize_t read_body(
        nghttp2_session *raw, int32_t stream_id, uint8_t *at, size_t most, uint32_t *flags, nghttp2_data_source *source,
        void *user) noexcept:
    cdef Http2Session session = <Http2Session>user
    cdef void *stream = nghttp2_session_get_stream_user_data(raw, stream_id)
    cdef bint end = False
    cdef ssize_t n
    try:
        if stream == NULL:
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
        n = session.on_room(<object>stream, most, &end)
    except BaseException as error:
        return failed(session, error)
    if n == 0 and not end:
        return NGHTTP2_ERR_DEFERRED
    flags[0] |= NGHTTP2_DATA_FLAG_NO_COPY
    if end:
        flags[0] |= NGHTTP2_DATA_FLAG_EOF
        if not session.client:
            flags[0] |= NGHTTP2_DATA_FLAG_NO_END_STREAM  # the trailers end it
    return n


cdef int send_data(
        nghttp2_session *raw, nghttp2_frame *frame, const uint8_t *head, size_t n, nghttp2_data_source *source,
        void *user) noexcept:
    cdef Http2Session session = <Http2Session>user
    cdef void *stream = nghttp2_session_get_stream_user_data(raw, frame.hd.stream_id)
    try:
        if session.out.full():
            return NGHTTP2_ERR_WOULDBLOCK  # asked again by the next `collect`
        session.out.put(head, FRAME_HEAD_BYTES)
        if n:
            session.on_take(<object>stream, session.out, n)
    except BaseException as error:
        return failed(session, error)
    return 0
