"""Thresholds that were tuned, each with its unit and the measurement or the cost that decided it.

Layer 0.  Another value makes the server slower, not less safe: what bounds outsiders is in limits.py, what a flag sets
in defaults.py.  Behind a section's name stands the section of docs/experiments.md that has the tables.
"""

from __future__ import annotations

from typing import Final

# ---- HTTP front: "Caches of the processor", "Large bodies"
CLIENT_TEXT_BYTES_KEPT: Final = 64 * 1024
"""Size of the buffer that a client writes heads and JSON into and keeps between requests."""
CLIENT_JOINED_BYTES_MAX: Final = 32 * 1024
"""Bytes of a request that a client joins for one send; beyond, the pieces go as they lie (a copy costs more then)."""
CLIENT_RECEIVE_BYTES: Final = 64 * 1024
"""Bytes that a client receives at one time, but for a large body, which is received in its place."""
CLIENT_PLACED_BYTES_MIN: Final = 16 * 1024
"""Bytes of a body still to come from which on it is received in its place."""
CLIENT_SHARED_BYTES_MIN: Final = 512 * 1024
"""Bytes of a request's inputs from which on a client uses shared memory.  p50 by socket and by shared memory, identity:
HTTP 256 KB 347 and 479 us, 640 KB 447 and 531, 4 MB 2384 and 1265; gRPC 640 KB 1023 and 1289, 1 MB 998 and 638.  On a
busy machine it pays far earlier (HTTP 600 KB: 3728 and 1075), as nobody has to be woken to take the bytes."""
CLIENT_SHARED_TENSOR_BYTES_MIN: Final = 64 * 1024
"""Bytes of a tensor that goes through it: servers copy smaller ones anyway."""
CLIENT_REGION_BYTES_MIN: Final = 2 * 1024 * 1024
"""Size of a client's smallest region: registering one costs as much as some requests."""
CLIENT_CANCEL_SECONDS: Final = 1.0
"""A client that cancels tells the server within so long, or closes the connection."""
JSON_WEIGHED_BYTES_MIN: Final = 64 * 1024
"""Bytes of JSON from which on a text is weighed before it is parsed: `{},` are 3 bytes and take 88 of memory."""
RECEIVE_BUFFER_BYTES: Final = 64 * 1024
"""The one buffer in which heads are received; what it holds of a body is copied once."""
RECEIVE_START_BYTES: Final = 4 * 1024
"""The part of that buffer which is used for a client that sends large bodies: a head, and little of the body, which is
received in its place from there on."""
RENDER_BYTES_KEPT: Final = 1024 * 1024
"""Size of the buffer that answers are written into, which is kept from one answer to the next."""
TLS_SLICE_BYTES: Final = 128 * 1024
"""Bytes that are encrypted in one go; a client must take as many within HTTP_SEND_IDLE_SECONDS_MAX to count as
reading."""

# ---- gRPC front: "Large bodies"
GRPC_TURN_MESSAGES: Final = 64
"""Messages of all connections of a listener that one turn of the loop handles; then others have theirs.  Refusing one
takes some 6 us, and a small request 15."""
GRPC_TURN_SHARE: Final = 16
"""Messages of these that one waiting call may have before the next call has its turn."""
GRPC_TURN_WEIGHED_BYTES: Final = 4096
"""A message counts as one more for each of so many of its bytes, up to CODEC_BYTES_MIN: reading 64 KB that are made to
cost takes 1.6 ms.  A compressed one counts as what may be expanded on the loop."""
GRPC_SMALL_MESSAGE_BYTES: Final = 16 * 1024
"""Answers up to here are copied when they are rendered, which frees their block at once."""
GRPC_WRITE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes gathered for one write: more than a socket's buffer takes."""
GRPC_RECEIVE_BUFFER_BYTES: Final = 256 * 1024
"""The one buffer in which frames are received, before tensors are copied to their arena: what fits a core's cache."""
GRPC_DIRECT_BYTES_MIN: Final = 16 * 1024
"""Bytes of a DATA frame that are still to come for which a tensor's own memory is the better place to receive them in:
copying so much costs what the detour does."""
GRPC_RECEIVE_START_BYTES: Final = 64 * 1024
"""The part of that buffer which is used for a client that sends large tensors: the head of a message, and little of the
tensor, which is received in its place from there on."""
GRPC_COPIED_OUTPUT_BYTES_MAX: Final = 1024
"""Outputs of at most so many bytes are copied behind their head: cheaper than a piece of their own to gather."""
GRPC_COPIED_PIECE_BYTES_MAX: Final = 4096
"""Bytes of one piece of a write, up to which it is copied: copying this much costs less than a piece more to gather."""
GRPC_TEXT_BYTES_KEPT: Final = 64 * 1024
"""Bytes of a response's text buffer that are kept for the next response."""

# ---- codec processes: "Codec processes"
CODEC_WALKED_FACTOR: Final = 16
"""Binary tensors of BYTES, whose elements are counted and measured where they lie, may be so many times as large."""
CODEC_NICE: Final = 5
"""How much more willing than the server a codec process is to leave a core to others.  A small request beside two
clients with JSON of 5.5 MB, two busy cores, three runs each: p50 1.5 to 19 ms with 0, 0.6 to 0.7 with 5, 0.5 to 0.8
with 10."""
CODEC_IDLE_SECONDS: Final = 10
"""Seconds without a job after which a codec process ends: it starts within a fifth of a second."""

# ---- engine: "Scheduling"
PREFETCH_NS: Final = 1_000_000
"""Work that may wait in an instance's ring behind the running execution, in ns of its measured execution time."""
BATCH_PREFETCH_NS: Final = 10_000_000
"""Such work of batches, in ns: their way between server and worker is longer, as each request is answered first."""
PREFETCH_REQUESTS_MAX: Final = 64
"""Requests that may wait in an instance's ring."""
BATCH_REJOIN_EXECUTION_NS_MIN: Final = 500_000
"""Executions shorter than this are not worth waiting for each other's clients."""
BATCH_REJOIN_NS_MAX: Final = 1_000_000
"""How long a batch that is not full waits at most, when an instance becomes idle, for clients that were just
answered."""
BATCH_REJOIN_VAIN_MAX: Final = 8
"""So many such waits in a row that brought less than half of them end the trying."""

# ---- access log
ACCESS_LINES_PORTION_MAX: Final = 256
"""Lines of one write: other threads wait for the interpreter lock for about a millisecond meanwhile."""

# ---- response cache
CACHE_TRIM_SHARE: Final = 8
"""Evicted answers leave pages behind where sizes change: they are given back at most once each time the size's
eighth has been written."""

# ---- arenas
ARENA_TRIM_SECONDS: Final = 10
"""Seconds without a request after which free pages go back to the system."""
ARENA_TRIM_SLICE_BYTES: Final = 1024 * 1024
"""Bytes of them that are given back in one turn of the loop: the kernel takes 0.1 to 0.5 ms for so many."""
HEAP_LOOKS: Final = 10
"""Seconds between two looks at the server's own memory."""
HEAP_GROWTH_BYTES: Final = 8 * 1024 * 1024
"""Growth of it since its free pages were last given back, after which they are given back again."""

# ---- tensors by reference: "Tensors by reference"
REFERENCE_BYTES_MIN: Final = 64 * 1024
"""Smallest tensor that goes to a worker as a place in another file: a smaller one is copied beside its request's
record.  At least a page, so that no two blocks of an arena lie in one page of it."""

# ---- event loop: "Waiting without sleep", "Large bodies", "Turns, slices, garbage"
BODY_NEAR_BYTES: Final = 1024 * 1024
"""When no more than this is missing of a request's body, the loop waits as if it had a request, for --spin-us from each
piece on: asleep, it would be woken for each piece, which costs the client's core as much as its own."""
BODY_WAKE_BYTES: Final = 1024 * 1024
"""Bytes of a larger HTTP body that the kernel collects before it wakes the loop (front/receive_watermark.pyx)."""
TURN_BYTES: Final = 256 * 1024
"""Bytes that a large transfer moves in one turn of the loop while small requests come.  The kernel copies so much in
some 0.1 ms."""
LOOP_COPY_BYTES_MAX: Final = 1024 * 1024
"""Bytes that are copied or hashed on the loop in one piece, in some 0.2 ms (BLAKE2: 1.7 ms); what is longer is a
thread's."""
SHORT_GPU_COPY_BYTES_MAX: Final = 1024 * 1024
"""Copies of GPU memory of so many bytes wait for no longer ones, which another thread makes on a stream of its own."""
TURN_TEXT_BYTES: Final = 256 * 1024
"""Bytes of JSON that one turn of the loop reads, some 5 ms; codec processes read what is beyond.  A turn reads as much
of gRPC's messages: GRPC_TURN_MESSAGES of GRPC_TURN_WEIGHED_BYTES."""
TURN_WHOLE_BYTES: Final = 1024 * 1024
"""The last bytes of a body or an answer, which are moved in one turn even while others wait: sliced, bodies of 600 KB
lost a third."""
TURN_ALONE_BYTES: Final = 256 * 1024 * 1024
"""After so many bytes of large transfers without a small request, some 0.1 s, they need not take turns any more."""
WORKER_OUTPUT_TURN_LINES_MAX: Final = 32
"""Lines of one worker's output that one turn of the loop logs one by one (some 20 us each); more share a record."""
WORKER_OUTPUT_TURN_BYTES_MAX: Final = 32 * 1024
"""Bytes of one worker's output read in one turn, which takes 1 ms where they are lines of one character."""
WORKER_OUTPUT_PAUSE_SECONDS: Final = 0.005
"""Pause after a turn that met one of these two bounds: 6 MB a second; a model that prints more waits."""
CONTROL_TURN_MESSAGES_MAX: Final = 64
"""Control messages handled in one turn of the loop; then the loop serves everybody else first."""

# ---- resources
MEMORY_LOOK_SECONDS: Final = 2.0
"""Least time between two measurements of the workers' memory, where there is a budget."""
MEMORY_LOOK_SHARE: Final = 20
"""And at least so many times what the last one took: the kernel walks through the page tables of each worker."""

# ---- model control
CONTROL_INLINE_BYTES_MAX: Final = 16 * 1024
"""Bytes of a load call that the event loop reads itself; larger ones, which carry files, go to a thread: looking for
them takes up to 3,600 instructions a byte, 0.1 s for 64 KB of `["`."""
CONTROL_DECODE_BYTES: Final = 1 << 20
"""Bytes of base64 decoded, or searched, in one go, a few ms: a multiple of 4."""
CONTROL_CUT_BYTES: Final = 16 * 1024
"""Bytes of a file in a load call above which the parser does not see it: parsers of JSON and protobuf let nobody else
run.  4096 files below have 64 MB, some 50 ms."""

# ---- slices: "Turns, slices, garbage"
LOOP_SLICE_SECONDS: Final = 0.00015
"""Time of the event loop for a part of an exposition or of statistics: two or three pass between a small request and
its answer."""
LOOP_SLICE_PIECES: Final = 4
"""Entries of such an answer that are made between two looks at the clock; each takes some microseconds."""

# ---- bench
BENCH_RECEIVE_BYTES: Final = 256 * 1024
"""Bytes that one receive of a load takes."""
BENCH_RETRY_SECONDS: Final = 0.01
"""Seconds until a lost connection is opened again; twice as many behind each failure, 32 times at most."""
BENCH_CALLS_PER_CONNECTION: Final = 6
"""gRPC requests under way on one connection: as many as perf_analyzer's, so that both ask alike."""
BENCH_SLICE_SECONDS: Final = 0.1
"""Seconds of one turn of the load, after which stops, windows and statistics are looked at."""
BENCH_SCHEDULE_SECONDS: Final = 2.0
"""Seconds of an open loop's intended times that are made at once."""
