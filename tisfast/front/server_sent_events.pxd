# Server-sent events.  Layer 4 (front).
from tisfast.front.socket_writer cimport SocketWriter
from tisfast.native.memory cimport Block
from tisfast.wire.head cimport Head
from tisfast.wire.respond cimport ResponseBody
from tisfast.wire.text_buffer cimport TextBuffer

# Renders an Answer, or an error as (status, message), into body.text as one event.  generate: in that form.  Returns the
# status of what was written: an answer that has no such form becomes its error.
cdef int render_event(ResponseBody body, object event, bint generate) except -1

# The head of a stream; what does not understand chunks reads to the end of the connection.
cdef bytes stream_head(int http_status, Head head, bint closes)

# One write: `before`, the event in `text` unless that is empty, the end of the stream if `last`.
cdef int send_event(SocketWriter sender, bytes before, TextBuffer text, bint chunked, bint last) except -1

# The same of what a codec process has written: all of a block.
cdef int send_rendered_event(SocketWriter sender, bytes before, Block text, bint chunked, bint last) except -1
