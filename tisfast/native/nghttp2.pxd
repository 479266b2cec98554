# What of nghttp2 is used here.  Layer 1 (native).
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

cdef extern from "<nghttp2/nghttp2.h>":
    ctypedef struct nghttp2_nv:
        uint8_t *name
        uint8_t *value
        size_t namelen
        size_t valuelen
        uint8_t flags
    struct nghttp2_session:
        pass
    ctypedef struct nghttp2_session_callbacks:
        pass
    ctypedef struct nghttp2_option:
        pass
    ctypedef struct nghttp2_settings_entry:
        int32_t settings_id
        uint32_t value
    ctypedef struct nghttp2_frame_hd:
        size_t length
        int32_t stream_id
        uint8_t type
        uint8_t flags
    ctypedef struct nghttp2_headers:
        int cat
    ctypedef struct nghttp2_rst_stream:
        uint32_t error_code
    ctypedef struct nghttp2_goaway:
        int32_t last_stream_id
        uint32_t error_code
    ctypedef union nghttp2_frame:
        nghttp2_frame_hd hd
        nghttp2_headers headers
        nghttp2_rst_stream rst_stream
        nghttp2_goaway goaway
    ctypedef union nghttp2_data_source:
        void *ptr
    ctypedef ssize_t (*nghttp2_data_source_read_callback)(
        nghttp2_session *, int32_t, uint8_t *, size_t, uint32_t *, nghttp2_data_source *, void *) noexcept
    ctypedef int (*frame_callback)(nghttp2_session *, const nghttp2_frame *, void *) noexcept
    ctypedef struct nghttp2_data_provider:
        nghttp2_data_source source
        nghttp2_data_source_read_callback read_callback
    enum:
        NGHTTP2_DATA, NGHTTP2_HEADERS, NGHTTP2_RST_STREAM, NGHTTP2_PING, NGHTTP2_GOAWAY
        NGHTTP2_FLAG_NONE, NGHTTP2_FLAG_END_STREAM, NGHTTP2_FLAG_ACK, NGHTTP2_FLAG_PADDED, NGHTTP2_HCAT_REQUEST
        NGHTTP2_DATA_FLAG_EOF, NGHTTP2_DATA_FLAG_NO_END_STREAM, NGHTTP2_DATA_FLAG_NO_COPY
        NGHTTP2_NV_FLAG_NONE, NGHTTP2_NV_FLAG_NO_COPY_NAME, NGHTTP2_NV_FLAG_NO_COPY_VALUE
        NGHTTP2_ERR_DEFERRED, NGHTTP2_ERR_WOULDBLOCK, NGHTTP2_ERR_CALLBACK_FAILURE, NGHTTP2_ERR_NOMEM
        NGHTTP2_ERR_INVALID_ARGUMENT, NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
        NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, NGHTTP2_SETTINGS_MAX_FRAME_SIZE
        NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, NGHTTP2_SETTINGS_ENABLE_PUSH
        NGHTTP2_FLOW_CONTROL_ERROR
    const char *nghttp2_strerror(int code) noexcept
    int nghttp2_session_callbacks_new(nghttp2_session_callbacks **) noexcept
    void nghttp2_session_callbacks_del(nghttp2_session_callbacks *) noexcept
    void nghttp2_session_callbacks_set_on_begin_headers_callback(nghttp2_session_callbacks *, frame_callback) noexcept
    void nghttp2_session_callbacks_set_on_header_callback(nghttp2_session_callbacks *, int (*)(
        nghttp2_session *, const nghttp2_frame *, const uint8_t *, size_t, const uint8_t *, size_t, uint8_t,
        void *) noexcept) noexcept
    void nghttp2_session_callbacks_set_on_invalid_header_callback(nghttp2_session_callbacks *, int (*)(
        nghttp2_session *, const nghttp2_frame *, const uint8_t *, size_t, const uint8_t *, size_t, uint8_t,
        void *) noexcept) noexcept
    void nghttp2_session_callbacks_set_on_begin_frame_callback(nghttp2_session_callbacks *, int (*)(
        nghttp2_session *, const nghttp2_frame_hd *, void *) noexcept) noexcept
    void nghttp2_session_callbacks_set_on_frame_recv_callback(nghttp2_session_callbacks *, frame_callback) noexcept
    void nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(
        nghttp2_session_callbacks *, int (*)(nghttp2_session *, const nghttp2_frame *, int, void *) noexcept) noexcept
    void nghttp2_session_callbacks_set_on_data_chunk_recv_callback(nghttp2_session_callbacks *, int (*)(
        nghttp2_session *, uint8_t, int32_t, const uint8_t *, size_t, void *) noexcept) noexcept
    void nghttp2_session_callbacks_set_on_stream_close_callback(
        nghttp2_session_callbacks *, int (*)(nghttp2_session *, int32_t, uint32_t, void *) noexcept) noexcept
    void nghttp2_session_callbacks_set_on_frame_send_callback(nghttp2_session_callbacks *, frame_callback) noexcept
    void nghttp2_session_callbacks_set_send_data_callback(nghttp2_session_callbacks *, int (*)(
        nghttp2_session *, nghttp2_frame *, const uint8_t *, size_t, nghttp2_data_source *, void *) noexcept) noexcept
    void nghttp2_session_callbacks_set_data_source_read_length_callback(nghttp2_session_callbacks *, ssize_t (*)(
        nghttp2_session *, uint8_t, int32_t, int32_t, int32_t, uint32_t, void *) noexcept) noexcept
    int nghttp2_option_new(nghttp2_option **) noexcept
    void nghttp2_option_del(nghttp2_option *) noexcept
    void nghttp2_option_set_no_auto_window_update(nghttp2_option *, int) noexcept
    void nghttp2_option_set_no_closed_streams(nghttp2_option *, int) noexcept
    void nghttp2_option_set_max_settings(nghttp2_option *, size_t) noexcept
    void nghttp2_option_set_max_outbound_ack(nghttp2_option *, size_t) noexcept
    void nghttp2_option_set_stream_reset_rate_limit(nghttp2_option *, uint64_t burst, uint64_t rate) noexcept
    void nghttp2_option_set_max_continuations(nghttp2_option *, size_t) noexcept
    int nghttp2_session_server_new2(
        nghttp2_session **, const nghttp2_session_callbacks *, void *, const nghttp2_option *) noexcept
    int nghttp2_session_client_new2(
        nghttp2_session **, const nghttp2_session_callbacks *, void *, const nghttp2_option *) noexcept
    void nghttp2_session_del(nghttp2_session *) noexcept
    ssize_t nghttp2_session_mem_recv(nghttp2_session *, const uint8_t *, size_t) noexcept
    ssize_t nghttp2_session_mem_send(nghttp2_session *, const uint8_t **) noexcept
    int nghttp2_session_want_read(nghttp2_session *) noexcept
    int nghttp2_session_want_write(nghttp2_session *) noexcept
    int nghttp2_session_set_stream_user_data(nghttp2_session *, int32_t, void *) noexcept
    void *nghttp2_session_get_stream_user_data(nghttp2_session *, int32_t) noexcept
    int nghttp2_session_get_stream_remote_close(nghttp2_session *, int32_t) noexcept
    int nghttp2_session_set_local_window_size(nghttp2_session *, uint8_t, int32_t, int32_t) noexcept
    int nghttp2_session_consume_connection(nghttp2_session *, size_t) noexcept
    int nghttp2_session_consume_stream(nghttp2_session *, int32_t, size_t) noexcept
    int nghttp2_session_resume_data(nghttp2_session *, int32_t) noexcept
    int32_t nghttp2_session_get_last_proc_stream_id(nghttp2_session *) noexcept
    int nghttp2_submit_settings(nghttp2_session *, uint8_t, const nghttp2_settings_entry *, size_t) noexcept
    int32_t nghttp2_submit_request(
        nghttp2_session *, const void *priority, const nghttp2_nv *, size_t, const nghttp2_data_provider *, void *) noexcept
    uint32_t nghttp2_session_get_remote_settings(nghttp2_session *, int settings_id) noexcept
    int nghttp2_submit_response(
        nghttp2_session *, int32_t, const nghttp2_nv *, size_t, const nghttp2_data_provider *) noexcept
    int nghttp2_submit_trailer(nghttp2_session *, int32_t, const nghttp2_nv *, size_t) noexcept
    int nghttp2_submit_rst_stream(nghttp2_session *, uint8_t, int32_t, uint32_t) noexcept
    int nghttp2_submit_ping(nghttp2_session *, uint8_t, const uint8_t *) noexcept
    int nghttp2_submit_shutdown_notice(nghttp2_session *) noexcept
    int nghttp2_submit_goaway(nghttp2_session *, uint8_t, int32_t, uint32_t, const uint8_t *, size_t) noexcept
    int nghttp2_session_terminate_session(nghttp2_session *, uint32_t) noexcept
