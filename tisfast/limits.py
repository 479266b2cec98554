"""Every bound in one place, with its unit and reason.  Layer 0; flags may lower or raise those that say so."""

from __future__ import annotations

from typing import Final

# ---- HTTP front
HTTP_HEAD_BYTES_MAX: Final = 64 * 1024
"""Bytes of request line and headers.  Triton's HTTP library takes 64 KiB lines; nobody sends more in earnest."""
HTTP_CALL_BYTES_MAX: Final = 64 * 1024
"""Bytes of a body, also expanded, of a call that is neither an inference nor a load: it carries some settings, and is
read on the event loop, up to 1.5 ms of it for a client that has made it to cost."""
LOAD_EXPANDED_BYTES_MAX: Final = 1024 * 1024
"""Bytes that the compressed body, or message, of a load may expand to: a configuration."""
EXPANDED_BYTES_FREE: Final = 1024 * 1024
"""Bytes that a compressed inference may expand to whatever its model's inputs are: names, parameters and spaces."""
EXPANDED_SHARE_MAX: Final = 8
"""And beside it so many times what the model's inputs can have.  A model with a variable input has no such bound."""
EXPANDED_ELEMENT_BYTES: Final = 32
"""At least so many for each element: a number may be spelled out, with spaces and brackets around it."""
HTTP_BODY_BYTES_MAX: Final = 1 << 40
"""Largest Content-Length that is believed at all; the arena's bound is usually met far earlier."""
HTTP_CHUNKS_MAX: Final = 65536
"""Non-empty chunks of one chunked upload."""
HTTP_INTERIM_RESPONSES_MAX: Final = 16
"""Responses below 200 that a client takes before the one that counts: 100 and 103 come once or twice."""
CLIENT_OUTPUTS_MAX: Final = 4096
"""Outputs of one response that a client takes, as INPUTS_MAX."""
CLIENT_ERROR_CHARS_MAX: Final = 4096
"""Characters of a server's error text that a client shows, as GRPC_STATUS_TEXT_BYTES_MAX."""
CLIENT_SECONDS: Final = 300.0
"""Seconds that a call may take of which the caller says nothing: models are slow, and a wait has an end."""
CLIENT_SECONDS_MAX: Final = 7 * 24 * 3600
"""Seconds that a caller may ask for."""
CLIENT_CONNECT_SECONDS_MAX: Final = 10.0
"""Seconds for one connection to be made, TLS included."""
CLIENT_RETRIES_MAX: Final = 1000
"""Times that a client can be told to make a call again; its pauses double."""
CLIENT_CLASSES_MAX: Final = (1 << 31) - 1
"""Classes of an output that a client asks for; what an output has of them, the server knows."""
CLIENT_CONNECTIONS: Final = 64
"""Connections of one client, where it is not told otherwise; a call waits while all are in use."""
CLIENT_CONNECTIONS_MAX: Final = 4096
"""Connections and concurrent requests that a client can be told to have; each connection takes a descriptor."""
CLIENT_CONCURRENCY: Final = 16
"""Requests of `submit` that a client makes at one time, each in a thread."""
CLIENT_SUBMITTED_MAX: Final = 1024
"""Requests of `submit` that wait for a thread; beyond, `submit` blocks."""
CLIENT_REGION_BYTES_MAX: Final = 1 << 30
"""Bytes of shared memory that one client has at one time; requests beyond go through the socket."""
CLIENT_UNREAD_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of a stream's whole answers that an asyncio client holds unread; then the server gets no more window, of which
HTTP2_STREAM_WINDOW_BYTES may still come."""
CLIENT_REGIONS_LEFT_MAX: Final = 512
"""Regions that a client has still to unregister, as its server did not answer; beyond, it makes no further ones."""
CLIENT_RETRY_AFTER_SECONDS_MAX: Final = 3600.0
"""Seconds of a server's Retry-After that a client believes; most calls have less time, and are not made again then."""
CLIENT_WRITERS_MAX: Final = 64
"""Writers of requests that a client keeps for the next ones, as many as it has connections by default."""
CLIENT_HEADS_MAX: Final = 1024
"""Heads of requests that a client remembers, one for each model and version."""
HTTP_CHUNKED_BODY_BYTES_MAX: Final = 1 << 30
"""Bytes of a chunked inference body, which is collected before it is known to fit; send a Content-Length for more."""
HTTP_COLLECT_BYTES_MAX: Final = 4 << 30
"""Bytes of such bodies of all connections together: beyond, 503 for the one that asks for more."""
HTTP_PIPELINE_MAX: Final = 64
"""Requests of one connection that are parsed but not answered; reading stops beyond, which is back-pressure."""
HTTP_CONNECTIONS_MAX: Final = 16384
"""Open client connections; further ones are closed at accept."""
HTTP_HEAD_SECONDS_MAX: Final = 60
"""Seconds a client may take from the first byte of a request head to its last, against slow-loris clients."""
HTTP_BODY_IDLE_SECONDS_MAX: Final = 60
"""Seconds without a byte in the middle of a body, after which the connection is closed and its block freed."""
HTTP_BACKLOG: Final = 1024
"""Listen backlog."""
CLASSES_MAX: Final = 1_000_000
"""Elements of one batch entry of an output that is given as classification."""
LABELS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of one label file: a million labels of a usual length."""
REGIONS_MAX: Final = 4096
"""Shared-memory regions that clients may have registered: each holds a descriptor and a mapping."""
DEVICE_MAX: Final = 1023
"""Largest GPU number that is believed; the driver knows how many there are."""
REGION_NAME_BYTES_MAX: Final = 4096
"""Bytes of a region's name, which every request that uses it carries."""
JSON_DEPTH_MAX: Final = 100
"""Nesting of JSON tensor data."""
JSON_VALUE_BYTES_FREE: Final = 64 * 1024 * 1024
"""Memory that the values of one JSON text may take, whatever its length: 600,000 rows `[1]`, or strings of two
bytes."""
JSON_VALUES_SHARE_MAX: Final = 8
"""And beside it so many times the text's bytes: arrays of numbers, and of strings of seven bytes, take no more."""
HEAD_CACHE_BYTES_MAX: Final = 4096
"""Longest inference head (JSON before binary tensors) whose parse is remembered."""
HEAD_CACHE_ENTRIES_MAX: Final = 256
"""Remembered parses per model version."""
REQUEST_ID_BYTES_MAX: Final = 4096
"""Bytes of a request id that are echoed; longer ids are refused."""
SURPLUS_INPUTS_MAX: Final = 64
"""Inputs of a request beyond those of its model: few enough to name them all in the error."""
OUTPUTS_MAX: Final = 64
"""Outputs of one model: the requested set is one machine word on the worker wire."""
TOLD_ONCE_CHARS_MAX: Final = 1024
"""Characters by which such a warning is told from others."""
TOLD_ONCE_MAX: Final = 512
"""Warnings of one model that are logged once, whichever of its workers says them; what is beyond is not logged."""
DEATHS_REMEMBERED_MAX: Final = 256
"""Requests of one model that were executing when a worker died; beyond, the oldest death is forgotten."""
DEATH_DIGEST_BYTES_MAX: Final = 1024 * 1024
"""Bytes of each of their tensors that are looked at, to know the request when it comes again: 1 ms on the loop."""
TRIAL_END_SECONDS_MAX: Final = 60
"""Seconds that the server of `tisfast check --run` may take to end."""
TENSOR_RANK_MAX: Final = 32
"""Dimensions of one tensor: numpy 1.x stops at 32."""
HTTP_SEND_IDLE_SECONDS_MAX: Final = 60
"""Seconds a client may leave an answer unread before the connection is closed and the answer's block freed."""
HTTP_LINGER_SECONDS_MAX: Final = 5
"""Seconds a connection that breaks off is still read after its last answer, so that a reset does not overtake it."""
HTTP_LINGER_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes dropped meanwhile: what a client sends in LINGER_SECONDS over a fast network."""
JSON_HEAD_BYTES_PLAIN_MAX: Final = 1 << 31
"""Largest Inference-Header-Content-Length that is believed (Triton reads a 32-bit number)."""
GZIP_MEMBERS_MAX: Final = 1024
"""Members of one gzip body: each costs a new decompressor."""
REQUEST_PARAMETERS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of the request parameters of one request, as JSON, with its text sequence id: they are read as a whole."""
ANSWER_PARAMETERS_BYTES_MAX: Final = 1024 * 1024
"""Bytes of the response parameters of one answer, as JSON."""
ANSWER_LAYOUTS_MAX: Final = 256
"""Remembered answer signatures per model version."""
TLS_HANDSHAKE_SECONDS_MAX: Final = 10
"""Seconds a client may take for a TLS handshake: two round trips, so only one that does nothing takes longer."""
TLS_SHUTDOWN_SECONDS_MAX: Final = 60
"""Seconds a closing TLS connection has for its last two slices and the client's farewell: as long as a client may leave
an answer unread."""
HTTP_STREAM_WAITING_MAX: Final = 16384
"""Answers of one stream that its client has not taken; beyond, its request is cancelled and the connection closed.
Large answers meet the bound of the worker's output arena first, and there the model waits."""
EXAMPLE_ELEMENTS_MAX: Final = 1024
"""Elements of one tensor in the example of a model's OpenAPI document: the loop makes it, and readers need no more."""

# ---- gRPC front
GRPC_CONNECTIONS_MAX: Final = 16384
"""Open client connections of the gRPC port; further ones are closed at accept."""
GRPC_STREAMS_MAX: Final = 1024
"""Calls of one connection at one time (SETTINGS_MAX_CONCURRENT_STREAMS); clients queue what is beyond."""
GRPC_METADATA_BYTES_MAX: Final = 16 * 1024
"""Header fields of one call as HTTP/2 counts them (RFC 9113, 6.5.2); gRPC's libraries refuse more, too."""
GRPC_MESSAGE_BYTES_MAX: Final = 2**31 - 1
"""Bytes of one message, either way."""
GRPC_COLLECTED_MESSAGE_BYTES_MAX: Final = 1 << 30
"""Bytes of one message that does not go into an arena as it comes: loads, compressed inferences before they are
expanded, and inferences whose model is not named first."""
GRPC_CALL_BYTES_MAX: Final = 64 * 1024
"""Bytes of a message of such a call, which is denser than JSON."""
GRPC_EXPANDED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes that a compressed inference expands to at most, as HTTP_INPUT_BYTES_MAX; without a model's name in the first
GRPC_PEEK_BYTES_MAX of them no more than EXPANDED_BYTES_FREE."""
GRPC_COLLECTED_BYTES_MAX: Final = 4 << 30
"""Bytes of such messages of all connections together: beyond, UNAVAILABLE for the call that asks for more."""
GRPC_PROMISED_BYTES_MAX: Final = 4 << 30
"""Bytes that messages of one connection which have begun may lack together: clients send a few at one time."""
GRPC_PROMISE_LOOKED_BYTES: Final = 1024 * 1024
"""Messages up to here are not looked at for it: the calls of one connection can lack a gigabyte so."""
GRPC_STREAM_REQUESTS_MAX: Final = 1024
"""Requests of one ModelStreamInfer call that are not answered; beyond, what it sends is held."""
GRPC_STREAM_WAITING_MAX: Final = 16384
"""Answers of one ModelStreamInfer call that wait, of decoupled models; beyond, RESOURCE_EXHAUSTED.  As
HTTP_STREAM_WAITING_MAX."""
GRPC_UNSENT_BYTES_MAX: Final = 32 * 1024
"""Answers of one call that lie outside of arenas (refusals, reflection) and that its client does not read; beyond, what
it sends is held: a refusal of a message of five bytes takes 500."""
GRPC_CONNECTION_UNSENT_BYTES_MAX: Final = 512 * 1024
"""Unsent bytes of all calls of a connection; beyond, each may have one answer there."""
GRPC_STATUS_TEXT_BYTES_MAX: Final = 4096
"""Bytes of a grpc-message: clients refuse trailers beyond 8 KiB, and nghttp2 drops frames beyond 64 KiB."""
REQUEST_PARAMETERS_MAX: Final = 1024
"""Parameters of one gRPC request, input or output: each is an object of hundreds of bytes made from a few."""
GRPC_PEEK_BYTES_MAX: Final = 64 * 1024
"""Bytes in which a model's name is looked for; where it comes later the message is collected whole."""
GRPC_STALL_SECONDS_MAX: Final = 60
"""Seconds a call may stay in the middle of a message, either way, without a byte moving; then it is reset."""
GRPC_ANSWER_DELAY_SECONDS_MAX: Final = 60
"""Seconds that TRITONSERVER_SERVER_DELAY_GRPC_RESPONSE_SEC, a test's, may hold answers back."""
CONNECTIONS_LOOK_SECONDS: Final = 0.2
"""Seconds between two looks, while the server ends, at connections that have nothing to say any more.  Clients of gRPC
have as long to answer our first GOAWAY."""
GRPC_DRAIN_SECONDS: Final = 1
"""Seconds for a client to say that it read our first GOAWAY, before the second names the last call that counts."""
HTTP2_STREAM_WINDOW_BYTES: Final = 8 * 1024 * 1024
"""Flow-control window of one call: what may be on its way while we read.  Bytes go to arenas as they come, so this
bounds what lies between a client and us, not memory."""
HTTP2_CALL_ID_MAX: Final = 2**31 - 1
"""Number of a client's last call on one connection: HTTP/2 has 31 bits for it, and every second one is a client's."""
HTTP2_CONNECTION_WINDOW_BYTES: Final = 64 * 1024 * 1024
"""The window of a connection, in bytes."""
HTTP2_FRAME_BYTES_MAX: Final = 1024 * 1024
"""Largest frame that is taken (SETTINGS_MAX_FRAME_SIZE): fewer, larger frames cost less, and none is held in memory."""
HTTP2_SETTINGS_MAX: Final = 32
"""Entries of one SETTINGS frame; HTTP/2 knows nine."""
HTTP2_UNSENT_ACKS_MAX: Final = 1000
"""Acknowledgements (SETTINGS, PING) that wait because the client does not read (CVE-2019-9512, -9515)."""
HTTP2_RESETS_BURST: Final = 1000
"""Calls that a client may take back at once, and that it may make us reset (rapid reset, CVE-2023-44487)."""
HTTP2_RESETS_PER_SECOND: Final = 100
"""Such resets in one second: clients with short deadlines take calls back all the time."""
HTTP2_CONTINUATIONS_MAX: Final = 8
"""CONTINUATION frames of one header block (CVE-2024-27316)."""
HTTP2_IDLE_FRAMES_MAX: Final = 10_000
"""Frames of one second that move nothing: SETTINGS, PRIORITY, PING, GOAWAY, WINDOW_UPDATE, those of unknown types,
RST_STREAM of calls that never began, padded and small DATA (CVE-2019-9511 to -9518).  Each message that is not refused,
and each frame of an answer, excuses four of them: so honest clients are far from it.

All of one second cost 24 ms.  Half as many would send honest clients away: messages are excused when they are handled,
64 in a turn, and GRPC_RECEIVE_BUFFER_BYTES hold 7,000 of the smallest inferences, 28 bytes, where each has a frame of
its own, as in grpc-go.  (With 5,000 a burst of 6,000 was sent away; with 10,000 one of 12,000 is.)  Longer messages are
not counted."""
HTTP2_SMALL_DATA_BYTES: Final = 64
"""Bytes below which a DATA frame counts among them: honest ones end a message or a call, and so are excused."""
HTTP2_FIELDS_BYTES_MAX: Final = 64 * 1024
"""Header fields of one block, expanded: up to here a call with more than GRPC_METADATA_BYTES_MAX is told so, beyond it
is reset, and the rest of its fields is not looked at (a byte of HPACK can stand for 4 KB)."""
HTTP2_LARGE_HEADS_MAX: Final = 16
"""Heads of one second, in one connection, with more than GRPC_METADATA_BYTES_MAX; more close the connection."""
HTTP2_HEAD_BLOCK_BYTES_MAX: Final = 64 * 1024
"""Bytes of one header block as it comes, with its CONTINUATION frames."""
GRPC_PING_IDLE_SECONDS: Final = 7200
"""Seconds between pings that are tolerated of a client without calls (unless permitted): gRPC's own figure."""
HEALTH_WATCH_SECONDS: Final = 1
"""Seconds between two looks at the readiness that health watchers are told of."""

# ---- codec processes
CODEC_PROCESSES_LIMIT: Final = 256
"""Most that it may be set to."""
CODEC_JOB_SECONDS_MAX: Final = 30
"""Seconds one job may take, its process's start included; then the process is killed and the request refused."""
CODEC_CANCELLED_SECONDS_MAX: Final = 2
"""Seconds that a job may still take when its client has gone."""
CODEC_MEMORY_BYTES_BASE: Final = 512 << 20
"""Private memory that one codec process may take, beside 32 times --http-max-input-size: a number of JSON becomes a
Python object of 32 bytes, and may be written with two."""
CODEC_MEMORY_FACTOR: Final = 32
CODEC_WAITING_JOBS_MAX: Final = 4096
"""Requests that wait for a codec process; beyond: 503.  Answers are as many as requests were taken."""
CODEC_WAITING_BYTES_MAX: Final = 4 << 30
"""Bytes of requests that wait for a codec process, as they came."""
CODEC_MESSAGE_BYTES_MAX: Final = 256 << 20
"""Bytes of one message to or from a codec process: a model's labels are the longest, an error may quote a request."""

# ---- engine
DEFAULT_QUEUE_REQUESTS_MAX: Final = 65536
"""Requests queued for one model version when its config sets no max_queue_size; beyond: 503, never growth."""
SUBMIT_SLOTS: Final = 256
"""Requests of one batch, and of all that one instance has not taken yet: csrc's TF_SUBMIT_SLOTS, the ring's size."""
OUTSTANDING_REQUESTS_MAX: Final = 4096
"""Requests of a decoupled model that one instance may have taken and not ended; beyond, they wait in the queue."""
ENSEMBLE_STEPS_MAX: Final = 1024
"""Steps of one ensemble; beyond, its graph is surely made by mistake, and it is walked when it is loaded."""
ENSEMBLE_WAITING_MAX: Final = 65536
"""Requests to steps of one ensemble that wait for max_inflight_requests; beyond: 503, as for a model's queue."""
ENSEMBLE_SELECTIONS_MAX: Final = 64
"""Remembered sets of requested outputs of one ensemble, each with the steps that it needs."""
RESPONSE_STATS_MAX: Final = 1024
"""Positions in a stream whose responses are counted each by itself (`response_stats`); later ones are not listed."""

NAMES_TOLD_MAX: Final = 20
"""Models that one sentence names; the index has all of them."""

# ---- access log
ACCESS_LINES_WAITING_MAX: Final = 65536
"""Requests whose lines are not written yet; of more it is said how many are missing."""
ACCESS_CLOSE_SECONDS_MAX: Final = 2.0
"""Time that the end of the server waits for the last lines."""

# ---- response cache
CACHE_BYTES_MIN: Final = 200
"""Least --cache-config local,size, as in Triton, which needs that much for itself."""
CACHE_BYTES_MAX: Final = 1 << 39
"""Most of it: what an arena can address."""
CACHE_ENTRY_BYTES: Final = 512
"""Bytes that a kept answer counts beside its own (key, table entry, lease): it counts towards the size, too."""
REDIS_WAIT_MS_LIMIT: Final = 60_000
"""Most that it, connect_timeout and wait_timeout may be set to."""
REDIS_POOL_LIMIT: Final = 1024
"""Most that it may be set to."""
REDIS_LOOKUPS_MAX: Final = 1024
"""Lookups that wait for Redis at one time; requests beyond are executed without one."""
REDIS_INSERTS_BYTES_MAX: Final = 256 << 20
"""Bytes of answers on their way to Redis; answers beyond are not kept."""
REDIS_VALUE_BYTES_MAX: Final = 256 << 20
"""Bytes of one answer in Redis, which itself allows 512 MB."""
REDIS_STORE_SECONDS_MAX: Final = 10
"""Seconds that sending one answer to Redis may take; nobody waits for it."""
REDIS_CLOSE_SECONDS_MAX: Final = 3
"""Seconds at exit for what is still on its way to Redis to be given up, and again for the connections."""
REDIS_PROBE_SECONDS_FIRST: Final = 0.5
"""Seconds after which a Redis that failed is tried again; doubles for each failure in a row."""
REDIS_PROBE_SECONDS_MAX: Final = 10
"""Upper end of the doubling."""
MODEL_CONFIG_BYTES_MAX: Final = 16 << 20
"""Bytes of one config.pbtxt: the largest that people have are some 100 KB, of ensembles of hundreds of steps."""
MODEL_FILE_BYTES_MAX: Final = 64 << 20
"""Bytes of a model.py that is looked at before a worker imports it."""
FINGERPRINT_FILE_BYTES_MAX: Final = 4 << 20
"""Larger files of a model version count by size and time of change, smaller ones by content, where keys must be the
same on all machines that share a Redis."""
FINGERPRINT_FILES_MAX: Final = 10_000
"""Files of a model version that are looked at for that."""
CANDIDATE_SEQUENCES_MAX: Final = 65536
"""Sequences that one instance serves at one time (max_candidate_sequences): each has a slot on both sides."""
LOST_SEQUENCES_MAX: Final = 65536
"""Sequences of one model that died with their instance and whose clients have not been told or not come back."""
SEQUENCE_STATES_MAX: Final = 64
"""Implicit states of one model, as OUTPUTS_MAX."""
STATE_BYTES_MAX: Final = 1 << 30
"""Bytes of one initial state."""
CORRELATION_ID_BYTES_MAX: Final = 128
"""Bytes of a sequence id that is a text."""
# ---- calls of other models
BLS_CALLS_MAX: Final = 1024
"""Calls of one instance that are not answered for the last time; further ones are refused.  What the reply ring
holds."""
BLS_REPLIES_UNSENT_MAX: Final = 16384
"""Responses for one instance that found no room in its reply ring; a decoupled model that sends more to an instance
that does not take them is cancelled.  As HTTP_STREAM_WAITING_MAX."""
BLS_ERROR_TEXT_BYTES_MAX: Final = 64 * 1024
"""Bytes of one error text to a calling model; longer ones are cut."""
CALL_RECORD_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of one call without its tensors: twice the parameters that a client's request may have."""
CALL_PLANS_MAX: Final = 512
"""Remembered call signatures of one instance."""

# ---- metrics, traces
HISTOGRAM_BOUNDS_MAX: Final = 64
"""Buckets that a model's configuration may choose for one histogram: each is a series for every model version."""
SUMMARY_QUANTILES_MAX: Final = 32
"""Quantiles of --metrics-config summary_quantiles: each is a series for every model version and summary."""
CUSTOM_METRIC_CELLS: Final = 65536
"""Numbers of all models' own metrics: csrc's TF_CELLS; each is a line of every scrape."""
CUSTOM_METRIC_CELLS_PER_WORKER_MAX: Final = 8192
"""Numbers of one instance, so that one model with an unbounded label leaves room for the others."""
CUSTOM_FAMILIES_MAX: Final = 4096
"""MetricFamily objects of all instances at one time."""
CUSTOM_LABELS_MAX: Final = 32
"""Labels of one custom metric."""
CUSTOM_BUCKETS_MAX: Final = 128
"""Buckets of one custom histogram: each is a line of every scrape."""
CUSTOM_TEXT_CHARS_MAX: Final = 1024
"""Characters of a custom metric's name, description, label name or label value."""
TRACES_QUEUED_MAX: Final = 16384
"""Traces that wait for the thread that writes them; further ones are dropped and counted."""
TRACES_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of tensors in traces that wait to be written or are being written; further traces are dropped and counted."""
TRACE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of tensors that one trace copies; the data of those that do not fit end with "..."."""
TRACE_FILES_MAX: Final = 10_000
"""Files that one server makes by log_frequency, which clients may set to 1; the last one takes all that follows."""
TRACES_WRITTEN_MAX: Final = 1024
"""Traces that are formatted and written in one go."""
TRACE_MARKS_MAX: Final = 1024
"""Times, and tensors, that one trace notes: a decoupled model's stream has no end of its own."""
TRACE_TENSOR_BYTES_MAX: Final = 1024 * 1024
"""Bytes of one tensor that a trace of level TENSORS copies; the data of a longer one ends with "..."."""
TRACE_HEADER_BYTES_MAX: Final = 1024
"""Bytes of a traceparent or tracestate header that are read (W3C allows 512 of tracestate)."""
TRACE_MODELS_MAX: Final = 4096
"""Models with trace settings of their own."""
TRACE_FLUSH_SECONDS_MAX: Final = 5
"""Seconds at exit for traces that still wait to be written or sent."""
OTLP_SECONDS_MAX: Final = 10
"""Seconds that one export to an OpenTelemetry receiver may take (OTEL_EXPORTER_OTLP_TIMEOUT's default)."""
OTLP_ATTEMPTS_MAX: Final = 4
"""Attempts for one batch of spans while the receiver says that it is busy; then the batch is dropped."""
OTLP_DELAY_SECONDS_FIRST: Final = 1.0
"""Delay before the second attempt; doubles for each further one."""
OTLP_ANSWER_BYTES_MAX: Final = 64 * 1024
"""Bytes read of a receiver's answer."""

# ---- batches as one array
BATCH_ROWS_MAX: Final = 256
"""Rows of one run of neighbouring blocks: a batch has no more requests (SUBMIT_SLOTS)."""
BATCH_RUNS_MAX: Final = 16
"""Runs of one input arena: requests of so many sizes lie side by side."""
STRATEGY_BYTES_MAX: Final = 64 * 1024
"""Bytes of a custom batching strategy's file."""
STRATEGY_NODES_MAX: Final = 1000
"""Operations in it: it has no loops, so this bounds the time of a call to tens of microseconds."""
BATCH_RUN_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of one run; larger tensors get fewer rows."""

# ---- arenas
ARENA_RAM_SHARE: Final = 0.5
"""Largest share of the machine's memory that one arena may use at one time."""
ARENA_CAP_FACTOR: Final = 4
"""Address space over use: blocks are powers of two, so those in use may take twice their bytes, and the holes between
them as much.  It costs no memory."""
ARENA_CAP_BYTES_MAX: Final = 1 << 40
"""Address space of one arena: what the allocator can number, halved."""
PROMISE_SECONDS_MAX: Final = 60
"""Seconds that a body may take altogether, by what has come of it, to keep its place in an arena that is full; slower
ones give way, the slowest first."""
LAST_WORDS_SECONDS_MAX: Final = 2
"""Seconds that a worker which failed its warm-up has to end by itself, so that its log records are not lost."""
GIVE_WAY_MAX: Final = 256
"""Bodies that give way to one request: each is answered, which takes some 20 us of the event loop."""
OUTPUT_WAIT_SECONDS_MAX: Final = 30
"""Seconds a worker waits for room in its output arena before that request fails."""

# ---- tensors by reference
FOREIGN_INPUTS_MAX: Final = 64
"""Inputs of one request that lie in other memory than its model's arena; further ones are copied."""
SHARE_IDS_MAX: Final = 0xFFFE
"""Numbers by which one worker knows such files: 16 bits on the wire, and the last one is lent memory's.  A model that
keeps GPU memory of clients keeps its numbers; when none is left, requests with files that are new to it fail."""
SHARES_PER_WORKER_MAX: Final = 256
"""Files (arenas, clients' regions) that one worker is told of at one time: each is a descriptor there.  Beyond, the one
told of first is forgotten, and told again when it is used again."""

# ---- models that come and go
LEAVING_SECONDS_MAX: Final = 600
"""Seconds that the requests of a copy that was replaced or unloaded have to be answered; then they are refused.  As
long as an execution may take (EXECUTION_SECONDS_MAX)."""
LEAVING_LOOK_SECONDS: Final = 0.02
"""Seconds between two looks whether they are."""
PLAN_ROUNDS_MAX: Final = 16
"""Looks at what a change touches, each of which may find further ensembles around it: as deep as those are nested."""
MODEL_ORDERS_MAX: Final = 64
"""Loads and unloads asked for by models (load_model, unload_model) that are not done."""

# ---- workers
SPIN_US_MAX: Final = 10_000
"""Largest --spin-us: beyond, it is a core that is never idle."""
NURSERY_START_SECONDS_MAX: Final = 60
"""Seconds an environment's interpreter may take to say it is up."""
LOAD_SECONDS_MAX: Final = 600
"""Seconds for import and initialize of one instance."""
DRAIN_DELAY_SECONDS_MAX: Final = 86_400
"""Largest --drain-delay-secs: a day; more is a slip of the keyboard."""
BLOCKING_THREADS_MAX: Final = 32
"""Threads for blocking work beside the event loop; as in Python's own pool, no more than 4 beyond the cores."""
COPY_THREADS_MAX: Final = 4
"""Threads for what is long to copy or to hash, beside those: loads that wait for disks hold up no request.  More would
only share the memory's bandwidth."""
COPIES_WAITING_MAX: Final = 1024
"""Copies and hashes that wait for one of them; beyond, requests do without the response cache."""
RESTART_DELAY_MS_FIRST: Final = 50
"""Delay before the first restart of a dead worker; doubles for each death in a row."""
RESTART_DELAY_MS_MAX: Final = 30_000
"""Upper end of the doubling."""
RESTART_STEADY_SECONDS: Final = 10
"""Seconds of life after which a worker's earlier deaths are forgotten."""
WORKER_OUTPUT_LINE_BYTES_MAX: Final = 64 * 1024
"""Bytes of one log record of what a model prints: longer lines are cut and marked, more lines make further records."""
CONTROL_MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of one control message (a load carries the model's config)."""
RESTART_DELAY_READY_MS_MAX: Final = 500
"""Upper end of the doubling for a worker that had become ready: its model loads, so clients wait for it rather than for
a repair."""
NURSERY_LOOK_SECONDS: Final = 1
"""Seconds after which a nursery that has not answered is looked at: one that somebody stopped (SIGSTOP) is replaced."""
NURSERY_MESSAGE_BYTES_MAX: Final = 64 * 1024
"""Bytes of one packet between server and nursery: a fork request with its variables is the longest."""
NURSERY_SENDS_MAX: Final = 4096
"""Fork requests that wait for room in a nursery's socket."""
NURSERY_STDERR_BYTES_MAX: Final = 8 * 1024
"""Last bytes of a nursery's stderr that are kept to say why it could not start."""
EXIT_STATUS_SECONDS_MAX: Final = 1
"""Seconds between a worker's death (pidfd) and its exit status (nursery); then it is told without cause."""
READY_CHECK_SECONDS_MAX: Final = 5
"""Seconds for a model's own `is_ready`; past it, the model is not ready."""
HELLO_SECONDS_MAX: Final = 30
"""Seconds from a worker's fork to its hello: milliseconds of work, unless the machine is swamped."""
KILL_SECONDS_MAX: Final = 5
"""Seconds a killed process may take to be gone before the server stops waiting for it."""
LINGERING_WORKERS_MAX: Final = 64
"""Killed processes of instances that have not ended; then no other one is started until one of these has."""
WORKER_STOP_SECONDS_MAX: Final = 10
"""Seconds for `finalize` of an instance whose model failed to load beside it; --exit-timeout-secs rules at exit."""
CONTROL_QUEUE_MESSAGES_MAX: Final = 1024
"""Control messages queued by ZeroMQ for each worker and direction; a worker that logs faster waits."""
CONTROL_PATH_BYTES_MAX: Final = 107
"""Length of a Unix socket's path (sockaddr_un less its final zero)."""
GUESTS_MAX: Final = 64
"""Guests at one time: each has a connection, and a process that somebody wants to look after."""
GUEST_MODELS_MAX: Final = 64
"""Models of one guest."""
GUEST_INSTANCES_MAX: Final = 64
"""Instances of one model of a guest: each is a thread there, with rings and an arena of its own."""
GUEST_HELLO_BYTES_MAX: Final = 4096
"""Bytes of a guest's first message: a name and some numbers.  Later ones are control messages."""
GUEST_HELLO_SECONDS_MAX: Final = 10
"""Seconds from a guest's connection to its hello, which it sends at once."""
GUEST_NAME_CHARS_MAX: Final = 256
"""Characters of what a guest calls itself, which is in log lines and reasons."""
GUEST_TEXT_CHARS_MAX: Final = 4096
"""Characters of a guest's own words in a reason; its log lines have the bounds of all models'."""
GUEST_ORDERS_MAX: Final = 64
"""Models that one guest wants served, or no longer served, at one time."""
GUEST_UNSENT_BYTES_MAX: Final = CONTROL_MESSAGE_BYTES_MAX
"""Bytes of messages that a guest has not read; beyond, it is taken to hang.  The largest is a configuration."""
GUEST_LAST_READS_MAX: Final = 64
"""Reads of 64 KiB of what a guest said before it ended."""
LOCAL_START_SECONDS_MAX: Final = 60
"""Seconds that a program waits for the server that it starts: half a second of work, unless the machine is swamped."""
LOCAL_STOP_SECONDS_MAX: Final = 10
"""Seconds in which such a server answers what it executes, when its program stops it; then it is killed."""
LOCAL_CALL_SECONDS_MAX: Final = 3600
"""Seconds that a program waits for such a server's answer: a load may install an environment."""
LOCAL_STATISTICS_SECONDS_MAX: Final = 5
"""Seconds that it waits for counts, which a server that runs has at hand: a notebook shows them in each table."""
FUNCTION_LEAVE_SECONDS_MAX: Final = 2
"""Seconds that it waits for the last requests of a function that another one replaces; then they go on beside that."""
FUNCTION_BACK_SECONDS_MAX: Final = 5
"""Seconds in which a function comes back when Ctrl-C has ended the load of what was to replace it."""
FUNCTION_SERVERS_MAX: Final = 64
"""Servers of one program's functions that run at one time; each has a process of 40 MB."""
FUNCTION_BATCH_SIZE_MAX: Final = 65536
"""Rows of a batch that a function of a program may take."""
START_ERRORS_TOLD_MAX: Final = 4
"""Errors of a start that failed, as the program which started the server is told; its log has all."""
START_ERROR_CHARS_MAX: Final = 500
"""Characters of each: together they are one write, for which an empty pipe (64 KiB) has room."""
START_LINE_BYTES_MAX: Final = 64 * 1024
"""Bytes that such a program reads of that line."""
CONTROL_DIRECTORY_TRIES_MAX: Final = 16
"""Control directories that a server makes until it has locked one: each may be swept by another server before."""
WATCHDOG_SECONDS_MAX: Final = 1.0
"""Seconds between two looks at the workers' running executions: how late a hang may be seen."""
WORKER_OUTPUT_AFTER_DEATH_BYTES_MAX: Final = 1024 * 1024
"""Bytes read of a dead worker's output: more than a pipe holds comes from processes that it left behind."""

# ---- model configuration
CONFIG_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of one config.pbtxt; real ones are a few KB, and a larger file is surely not a configuration."""
CONFIG_LENIENT_CHARS_MAX: Final = 1024 * 1024
"""Characters of a configuration that is almost JSON, which is spelled anew in up to 140 bytes of memory for each."""
CONFIG_ERRORS_MAX: Final = 100
"""Errors reported for one file: enough to see the pattern, and a binary file must not print a million lines."""
INPUTS_MAX: Final = 4096
"""Inputs of one model: the index is 16 bits on the worker wire, and no model comes near."""
CONFIG_MICROSECONDS_MAX: Final = 2**62 // 1000
"""Largest delay or timeout in a configuration, in microseconds: the engine's clock counts int64 nanoseconds."""
INSTANCES_MAX: Final = 1024
"""Instances of one model over all groups and devices: each is a process."""
REPOSITORY_ENTRIES_MAX: Final = 65536
"""Entries read of one repository or model folder."""
FOLDER_WRITERS_MAX: Final = 64
"""Other programs and threads that put a folder of the same name there while a program puts its own."""
INTERPRETER_CHECK_SECONDS_MAX: Final = 10
"""Seconds `tisfast check` gives a model's own interpreter to parse model.py."""

# ---- resources
CPU_THREADS_MAX: Final = 1024
"""Threads that a model's CPU_THREADS may ask for: more than the largest machines have cores."""
LENT_PARTS: Final = 4
"""Equal parts of a GPU's pool (--cuda-memory-pool-byte-size), one to a worker: 16 MB by default, as images have."""
LENT_UNIT_BYTES: Final = 1 << 21
"""A part is a multiple of this: the driver shares memory with other processes in units of 2 MB."""
CUDA_POOL_BYTES: Final = 1 << 26
"""A GPU's pool by default, which is Triton's."""
CUDA_POOL_BYTES_MAX: Final = 1 << 40
"""A GPU's pool at most: 1 TiB, more than a GPU has."""
PINNED_POOL_BYTES: Final = 1 << 28
"""Host memory that all workers together may pin for CUDA by default (--pinned-memory-pool-byte-size): Triton's pool."""
GPU_LOOK_SECONDS_MAX: Final = 30
"""For the driver to say what it knows of its GPUs when the server starts, and for one of them to tell how much of its
memory is free when a model is placed: without NVIDIA's daemon it takes seconds."""
GPU_LENDING_SECONDS_MAX: Final = 25
"""For a part of a GPU's memory to be there that an instance is lent, which waits 30 s for any answer."""
LENT_REFUSED_SECONDS: Final = 600
"""A model gets its inputs in host memory for so long after an instance could not open memory that the server lends."""
GPU_CALLS_WAITING_MAX: Final = 1024
"""Copies and other calls of the driver that wait for one GPU, of each kind (cuda_lanes.Lanes); beyond, they fail."""
GPU_COPY_SECONDS_MAX: Final = 60
"""For a GPU to make one copy; then the request is refused, as the GPU hangs."""
ANSWERS_UNCOPIED_MAX: Final = 16384
"""Responses of one request that wait for one that threads copy into a client's region; beyond, those that need a copy
are refused.  As HTTP_STREAM_WAITING_MAX."""
GPU_REGION_SECONDS_MAX: Final = 45
"""For a client's region to be opened, or to be closed by the server and all instances; then the client is told so.
Below the 60 s that tritonclient waits."""
GPU_TOLD_SECONDS: Final = 5
"""The log says so when a GPU has not ended a call for so long and somebody waits for it, and what unregistering waits
for when it has waited so long."""
GPU_NAMES_TOLD_MAX: Final = 3
"""Regions and instances that one message names; it counts the others."""
GPU_REFUSALS_MAX: Final = 65536
"""Refusals of drivers to close clients' regions that are kept when somebody was told of them.  The oldest one goes."""
GPU_REFUSALS_TOLD_MAX: Final = 8
"""Of these, the processes and reasons that one error names; it says how many others there are."""
GPU_REGION_END_SECONDS: Final = 0.5
"""Who waits for a client's region to be opened or closed waits so long still when the server ends."""
GPU_LOST_SECONDS_MAX: Final = 30
"""For instances to end that were lent memory of a GPU that the server has lost, which it begins anew only then."""
GPU_COPIES_MAX: Final = 64
"""Copies of GPU memory that one instance cannot open and has not taken yet: one for each thread that reads one."""
GPU_LIMITS_MAX: Final = 1024
"""--model-load-gpu-limit flags: one for each GPU."""
MEMORY_BUDGET_BYTES_MIN: Final = 1 << 20
"""Least --model-memory-budget: a smaller number is surely one without its unit."""
MEMORY_PROCESSES_MAX: Final = 1024
"""Processes of one worker (those that its model has started) that are measured with it."""
SLEEP_SECONDS_MAX: Final = 30
"""Seconds for `finalize` of a model that is put to sleep; then it is killed."""

# ---- looks at repositories
SNAPSHOT_ENTRIES_MAX: Final = 100_000
"""Files and folders of one model that are looked at for changes: 0.6 s of a thread; more are a data set by mistake."""
SNAPSHOT_DEPTH_MAX: Final = 32
"""Folders below a model's that are looked into: deeper, a link leads back where nobody sees it."""
SNAPSHOT_DIFFERENCES_SAID: Final = 5
"""Changed files that one line of the log names; it counts the others."""
POLL_SETTLE_SECONDS_MAX: Final = 2.0
"""Seconds between two equal looks before a changed model is loaded: longer than a copying program pauses."""
POLL_RETRY_SECONDS_MAX: Final = 600
"""Most seconds between two attempts to load what failed and has not changed; each wait is twice the last one."""
RELOAD_LOOK_SECONDS: Final = 0.3
"""Seconds between two looks at everything with --reload: a developer's save is served within a second."""
BYTECODE_SECONDS: Final = 3
"""Age in seconds of the newest code of a model up to which its bytecode is not kept: Python compares whole seconds."""
RELOAD_SETTLE_SECONDS: Final = 0.1
"""And between two equal ones: an editor writes a file in one go."""

# ---- rate limiter
RATE_LIMIT_COUNT_MAX: Final = 2**31 - 1
"""Units of one resource, and device numbers, on the command line: Triton reads them as 32-bit numbers."""
RATE_LIMIT_PRIORITY_MAX: Final = 1_000_000
"""Priority of an instance group: added to a 64-bit score with each execution, which so lasts 10^12 of them."""
RATE_LIMIT_RESOURCES_MAX: Final = 64
"""Resources of one instance group: each is looked at before every execution."""

# ---- warm-up
WARM_UP_BYTES_MAX: Final = 1 << 30
"""Bytes of the tensors of one warm-up sample: more than clients send in one request of most models."""
WARM_UP_ERRORS_MAX: Final = 16
"""How often one text is said for the requests of one warm-up sample."""

# ---- model control
POLL_SECONDS_MIN: Final = 0.1
"""Least --repository-poll-secs: a look reads every folder of the repositories."""
POLL_SECONDS_MAX: Final = 7 * 24 * 3600
"""Most of it: who looks less often than once a week means not to look at all (0)."""
OVERRIDE_FILES_MAX: Final = 4096
"""Files of one load call, each a parameter of it."""
OVERRIDE_DEPTH_MAX: Final = 32
"""Folders in the path of one of them."""
CONTROL_BODY_BYTES_MAX: Final = 1 << 30
"""Bytes of the body of one load call, which may carry files; as GRPC_COLLECTED_MESSAGE_BYTES_MAX."""
CONTROL_BYTES_MAX: Final = 4 << 30
"""Bytes of the files of all load calls that are not answered; beyond, 503."""
CONTROL_CALLS_MAX: Final = 256
"""Load and unload calls that are not answered; beyond, 503."""
CONTROL_TOKENS_MAX: Final = 1024
"""Tokens in --model-control-token-file: each is compared with that of every call."""
CONTROL_TOKENS_BYTES_MAX: Final = 1024 * 1024
"""Bytes of that file."""
FLAGS_FILE_BYTES_MAX: Final = 1024 * 1024
"""Characters of a --flags-file."""

# ---- remote repositories
STORAGE_DOWNLOADS_MAX: Final = 256
"""Its upper end: each is a thread, a connection and some MB of buffers."""
STORAGE_FILES_MAX: Final = 100_000
"""Files below one URL, and in one archive."""
STORAGE_ARCHIVE_BYTES_MAX: Final = 1 << 40
"""Bytes of all files of one archive: what a hundred bytes can claim to be must end somewhere."""
STORAGE_PADDING_BYTES_MAX: Final = 1 << 20
"""Bytes after the end of a tar archive: it is padded to records, of 10 KB mostly."""
STORAGE_CHUNK_BYTES: Final = 256 * 1024
"""Bytes read and written at a time: what a download needs of memory, whatever the file's size, and what a connection
that breaks may cost."""
STORAGE_IDLE_SECONDS_MAX: Final = 60
"""Seconds without a byte from a store, after which a request is given up and tried again."""
STORAGE_CONNECT_SECONDS_MAX: Final = 10
"""Seconds for a connection to a store."""
STORAGE_FILE_SECONDS_MAX: Final = 24 * 3600
"""Seconds for one request of a whole file; it is resumed by the next one."""
STORAGE_REQUEST_RETRIES: Final = 2
"""Retries of one request to an object store by its library; the attempts below begin after them."""
STORAGE_ATTEMPTS_MAX: Final = 6
"""Attempts in a row for one file that bring no byte."""
STORAGE_CUTS_MAX: Final = 1000
"""Attempts for one file altogether, each of which brought some bytes: a network that cuts every 10 MB brings 10 GB."""
STORAGE_CORRUPT_MAX: Final = 3
"""Whole downloads of one file whose checksum is wrong, until it is given up."""
STORAGE_LIST_ATTEMPTS_MAX: Final = 3
"""Attempts to ask a store what it has."""
STORAGE_LISTINGS_MAX: Final = 3
"""Times that a store is asked again because files changed while they were downloaded."""
STORAGE_DELAY_SECONDS_FIRST: Final = 0.2
"""Delay before the second attempt; doubles for each further one that brings nothing."""
STORAGE_DELAY_SECONDS_MAX: Final = 10.0
"""Upper end of the doubling."""
STORAGE_ANSWER_BYTES_MAX: Final = 64 << 20
"""Bytes of one JSON answer of a registry: 100 000 files, generously."""
STORAGE_ERROR_TEXT_BYTES: Final = 500
"""Bytes of a store's error text that are shown."""
STORAGE_UNUSED_SECONDS_MAX: Final = 30 * 86400
"""Seconds after which the cache forgets a URL that no server used."""
STORAGE_PARTIAL_SECONDS_MAX: Final = 7 * 86400
"""Seconds for which a download that broke off can be gone on with."""
STORAGE_ORPHAN_SECONDS: Final = 60
"""Age at which an unlocked folder of a run may be swept: a younger one may just be in the making."""
LEASE_ATTEMPTS_MAX: Final = 100
"""Times that a folder which was replaced just before it was leased is looked up again."""
STORAGE_SWEEP_SECONDS_MAX: Final = 120
"""Seconds to wait for a lock of the cache: others keep one while they sweep, remove a tree, or write a manifest."""
STORAGE_SWEEP_LOOK_SECONDS: Final = 0.05
"""Seconds between two looks whether it is free."""
STORAGE_BAR_SECONDS: Final = 0.2
"""Seconds between two looks of the progress bar."""
STORAGE_LOG_SECONDS: Final = 10.0
"""Seconds between two lines of progress in the log."""

# ---- environments
ENVIRONMENT_FILES_MAX: Final = 2_000_000
"""Entries of one packed environment: the largest ones have some 200,000."""
ENVIRONMENT_BYTES_MAX: Final = 128 << 30
"""Bytes that one archive may unpack to: an environment with several CUDA frameworks has some 20 GiB."""
ENVIRONMENT_HEADER_BYTES_MAX: Final = 8 << 20
"""Bytes of one entry's header in a tar file (long names, attributes), which is kept in memory whole."""
ENVIRONMENT_LINK_BYTES_MAX: Final = 4096
"""Bytes of a link's target in a zip file (PATH_MAX)."""
ENVIRONMENT_BUILDS_MAX: Final = 4
"""Environments that are prepared at one time, each in a process: more would only share the disk."""
ENVIRONMENT_BUILD_SECONDS_MAX: Final = 3600
"""Seconds until an environment must be prepared, waiting for another process that prepares the same included."""
ENVIRONMENT_ATTEMPTS_MAX: Final = 3
"""How often an environment that is removed (tisfast env prune) between being prepared and used is prepared again."""
ENVIRONMENT_TURNS_MAX: Final = 100
"""Times that a process which found an environment neither whole nor its own to make looks again: each time another one
was quicker, and has made it or failed."""
ENVIRONMENT_PROGRESS_SECONDS: Final = 2.0
"""Seconds between two lines about the progress of a preparation."""
ENVIRONMENT_OUTPUT_LINES: Final = 40
"""Last lines of a failed program's output that are told."""
ENVIRONMENT_OUTPUT_CHARS_MAX: Final = 500
"""Characters kept of each of them."""
ENVIRONMENT_LINE_BYTES_MAX: Final = 1 << 20
"""Bytes of one line from the process that prepares an environment: the figures above, escaped."""
REQUIREMENTS_FILES_MAX: Final = 64
"""Files that one requirement file may include, itself counted."""
REQUIREMENTS_TEXT_BYTES_MAX: Final = 16 << 20
"""Bytes of one of them, which is read whole: a lock of some thousand packages with all their hashes has 5 MB."""
REQUIREMENTS_PACKAGE_BYTES_MAX: Final = 16 << 30
"""Bytes of a package in the file system that it names: those with CUDA in them have some GB."""
LABELS_REMEMBERED_MAX: Final = 16384
"""Sets of labels whose text is remembered from one scrape to the next: a few for each model version."""

# ---- bench
BENCH_GONE_SECONDS: Final = 3.0
"""Seconds without any connection after which a measurement ends: one that restarts is another server."""
BENCH_CONNECT_SECONDS_MAX: Final = 10.0
"""Seconds until all connections of a level are open."""
BENCH_ERROR_TEXTS_MAX: Final = 100
"""Different texts of errors that are counted apart; texts may hold numbers, and each request another one."""
BENCH_IN_FLIGHT_MAX: Final = 65536
"""Requests under way at one time: gRPC's ids name them with 16 bits."""
BENCH_CONNECTIONS_MAX: Final = 16384
"""Connections of one load; each takes a descriptor here and one of the server's."""
BENCH_OPEN_LOOP_CONNECTIONS: Final = 256
"""Connections at a request rate, where nothing else is said: requests beyond wait, and their waiting counts."""
BENCH_RECORDS_MAX: Final = 4_000_000
"""Requests that one level's records hold for --profile-export-file, of 64 bytes: 256 MB; the latencies count all."""
BENCH_ANSWER_BYTES_MAX: Final = 64 << 20
"""Bytes of one answer of an OpenAI endpoint that is no stream: it is read as a whole."""
BENCH_CONTENTS_BYTES_MAX: Final = 512 << 20
"""Bytes of answers that one level keeps for --profile-export-file with --service-kind openai."""
BENCH_EVENT_OVERHEAD_BYTES: Final = 80
"""What Python needs for an event beside its bytes: it counts, as most events are short."""
BENCH_WINDOWS_MAX: Final = 400
"""Pieces of 0.1 s that one measurement keeps, of about 8 KB; longer ones have longer pieces."""
BENCH_LEVELS_MAX: Final = 1000
"""Levels of one range."""
BENCH_SCHEDULE_SECONDS_MAX: Final = 604_800.0
"""Seconds that a replay, a schedule or a counted load may take by its own times: a week; more is a wrong unit."""
BENCH_INTERVAL_MS_MAX: Final = 86_400_000
"""Of a window, and of the looks at the server's metrics: a day."""
BENCH_TRIALS_MAX: Final = 1_000_000
"""Windows of one level."""
BENCH_REQUESTS_MAX: Final = 10**12
"""Requests that a flag asks for: a million a second for eleven days."""
BENCH_RATE_MAX: Final = 10_000_000.0
"""Requests a second that are asked for: some ten times what one thread sends."""
BENCH_TENSOR_BYTES_MAX: Final = 1 << 34
"""Of one string, and of one output in shared memory: 16 GiB."""
BENCH_DRAIN_SECONDS_MAX: Final = 10.0
"""Seconds in which what is under way at the end of a level may still be answered."""

# ---- tisfast analyze
ANALYZE_VALUES_MAX: Final = 256
"""Values of one setting, and levels of load."""
ANALYZE_MODELS_MAX: Final = 16
"""Models that are varied together, or formats of one."""
ANALYZE_VARIANTS_MAX: Final = 10_000
"""Variants of one search space: more are refused, because they are not measured within a life."""
ANALYZE_LOAD_SECONDS_MAX: Final = 600.0
"""That a variant may take to load."""
ANALYZE_STARTS_MAX: Final = 10
"""Starts of a server of its own, behind the first: a variant may end it."""
ANALYZE_AROUND_MAX: Final = 256
"""Neighbours along several axes that a step of the climb measures: nearer ones first."""
ANALYZE_RATE_MAX: Final = 10_000_000.0
"""Requests a second of a level: more than any client sends."""
ANALYZE_CONFIRM_MAX: Final = 100
"""Times that the best variants are measured again."""
ANALYZE_CONFIRM_WAVES_MAX: Final = 10
"""Times as many turns as the best variants need if they stay the best: those that take their place need theirs."""
ANALYZE_NAMED_MAX: Final = 5
"""Variants of each kind that a sentence of the explanation names."""

# ---- convert
CONVERT_SAMPLES_BYTES_MAX: Final = 1 << 30
"""Bytes of all sample inputs, which are held in memory a few times."""
CONVERT_CASES_MAX: Final = 2000
"""Requests that one format is asked to be compared: each sample alone, and all in batches."""
CONVERT_STEP_SECONDS: Final = 300.0
"""Seconds that a framework may take to write or run one format, where nothing else is said."""
CONVERT_REASON_CHARACTERS_MAX: Final = 500
"""Of a framework's error that the report shows, or of the end of what it has printed."""
CONVERT_LOG_BYTES_READ: Final = 64 * 1024
"""Of what a step or a server has written: the end, in which the reason stands."""
CONVERT_END_SECONDS_MAX: Final = 2.0
"""Seconds that processes which a step has left may take to end themselves."""
CONVERT_CLEAN_SECONDS_MAX: Final = 10.0
"""Seconds in which a signal ends everything; others that come meanwhile are not heard."""
CONVERT_CONCURRENCY_MAX: Final = 1024
"""Requests under way at one time while a format is measured."""
CONVERT_LOADS_MAX: Final = 16
"""Numbers of --concurrency: each is a measurement of each format."""
CONVERT_BATCH_SIZE_MAX: Final = 65_536
"""Rows of one request."""
CONVERT_ANSWERS_BYTES_MAX: Final = 4 << 30
"""Bytes of the source's answers to all requests, which are held in memory."""
CONVERT_SAMPLE_FILES_MAX: Final = 2000
"""Files or dictionaries of samples: of a model without batches each is a request."""
CONVERT_ROOM_BYTES_MIN: Final = 1 << 20
"""Of the temporary folder's disk: with less of it free, it is called full."""
CONVERT_COLUMNS_MAX: Final = 64
"""Places of an output's last axis that have a scale each: each may have its own unit."""
CONVERT_PLACES_MAX: Final = 1024
"""The same of another axis, of outputs with three and more: there are many numbers for each place."""
CONVERT_RANGE_CASES_MAX: Final = 200
"""Samples of one row with which it is looked whether FP16 holds the numbers inside of a graph."""
CONVERT_RANGE_TIME_SHARE: Final = 0.25
"""Of the seconds that are left to a step: when it has taken so many, no further sample is looked at so."""
CONVERT_SCALE_ROWS_MIN: Final = 4
"""Different rows that tell a position's scale: one number near 0 tells nothing."""
CONVERT_SCALE_ROWS_READ: Final = 1000
"""In which such rows are looked for."""
CONVERT_TOLERANCE_MAX: Final = 1e9
"""Of --atol and --rtol: above it nothing is told apart."""
CONVERT_LOAD_SECONDS_MAX: Final = 3600.0
"""Seconds of one load on one format."""
CONVERT_STEP_SECONDS_MAX: Final = 86_400.0
"""Seconds that a framework can be given for one step."""
CONVERT_LATENCY_MS_MIN: Final = 0.001
"""Of --max-latency: nothing answers sooner, and 0 would look like no limit."""
CONVERT_LATENCY_MS_MAX: Final = 3_600_000.0
"""Of --max-latency: an hour."""
CONVERT_THROUGHPUT_MIN: Final = 0.001
"""Requests a second of --min-throughput: all formats hold less, and 0 would look like no limit."""
CONVERT_THROUGHPUT_MAX: Final = 1e9
"""Requests a second of --min-throughput."""
