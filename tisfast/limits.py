"""Every bound in one place, with its unit and reason.  Layer 0; flags may lower or raise those that say so."""

from __future__ import annotations

from typing import Final

# ---- HTTP front
HTTP_HEAD_BYTES_MAX: Final = 64 * 1024
"""Bytes of request line and headers.  Triton's HTTP library takes 64 KiB lines; nobody sends more in earnest."""
HTTP_INPUT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Default of --http-max-input-size (row 1.28): JSON text, expanded JSON tensors, raw bodies, decompressed bodies."""
HTTP_BODY_BYTES_MAX: Final = 1 << 40
"""Largest Content-Length that is believed at all; the arena's bound is usually met far earlier."""
HTTP_CHUNKS_MAX: Final = 65536
"""Non-empty chunks of one chunked upload (row 1.29)."""
HTTP_CHUNKED_BODY_BYTES_MAX: Final = 1 << 30
"""Bytes of a chunked inference body, which is collected before it is known to fit; send a Content-Length for more."""
HTTP_COLLECT_BYTES_MAX: Final = 4 << 30
"""The same of all connections together: beyond, 503 for the one that asks for more."""
HTTP_PIPELINE_MAX: Final = 64
"""Requests of one connection that are parsed but not answered; reading stops beyond, which is back-pressure."""
HTTP_CONNECTIONS_MAX: Final = 16384
"""Open client connections; further ones are closed at accept."""
HTTP_HEAD_SECONDS_MAX: Final = 60
"""Seconds a client may take from the first byte of a request head to its last, against slow-loris clients."""
HTTP_BODY_IDLE_SECONDS_MAX: Final = 60
"""Seconds without a byte in the middle of a body, after which the connection is closed and its block freed."""
HTTP_BACKLOG: Final = 1024
"""Listen backlog (row 1.34)."""
CLASSES_MAX: Final = 1_000_000
"""Elements of one batch entry of an output that is given as classification (row 3.04)."""
LABELS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of one label file: a million labels of a usual length."""
REGIONS_MAX: Final = 4096
"""Shared-memory regions that clients may have registered: each holds a descriptor and a mapping."""
DEVICE_MAX: Final = 1023
"""Largest GPU number that is believed; the driver knows how many there are."""
REGION_NAME_BYTES_MAX: Final = 4096
"""Bytes of a region's name, which every request that uses it carries."""
JSON_DEPTH_MAX: Final = 100
"""Nesting of JSON tensor data (row 1.15)."""
RECEIVE_BUFFER_BYTES: Final = 64 * 1024
"""The one buffer in which heads are received; what it holds of a body is copied once."""
RECEIVE_START_BYTES: Final = 4 * 1024
"""The part of that buffer which is used for a client that sends large bodies: a head, and little of the body, which is
received in its place from there on."""
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
TLS_SLICE_BYTES: Final = 128 * 1024
"""Bytes that are encrypted in one go; a client must take as many within HTTP_SEND_IDLE_SECONDS_MAX to count as
reading."""
HTTP_STREAM_WAITING_MAX: Final = 16384
"""Answers of one stream that its client has not taken; beyond, its request is cancelled and the connection closed.
Large answers meet the bound of the worker's output arena first, and there the model waits."""
EXAMPLE_ELEMENTS_MAX: Final = 1024
"""Elements of one tensor in the example of a model's OpenAPI document: the loop makes it, and nobody reads more."""

# ---- gRPC front
GRPC_CONNECTIONS_MAX: Final = 16384
"""Open client connections of the gRPC port; further ones are closed at accept."""
GRPC_STREAMS_MAX: Final = 1024
"""Calls of one connection at one time (SETTINGS_MAX_CONCURRENT_STREAMS); clients queue what is beyond."""
GRPC_METADATA_BYTES_MAX: Final = 16 * 1024
"""Header fields of one call as HTTP/2 counts them (RFC 9113, 6.5.2); gRPC's libraries refuse more, too."""
GRPC_MESSAGE_BYTES_MAX: Final = 2**31 - 1
"""Bytes of one message, either way (row 13.11)."""
GRPC_COLLECTED_MESSAGE_BYTES_MAX: Final = 1 << 30
"""Bytes of one message that does not go into an arena as it comes: other methods than inference, compressed messages
before and after they are expanded, and inferences whose model is not named first."""
GRPC_COLLECTED_BYTES_MAX: Final = 4 << 30
"""The same of all connections together: beyond, UNAVAILABLE for the call that asks for more."""
GRPC_STREAM_REQUESTS_MAX: Final = 1024
"""Requests of one ModelStreamInfer call that are not answered; beyond, its flow-control window is not refilled."""
GRPC_STREAM_WAITING_MAX: Final = 16384
"""Requests and answers of one ModelStreamInfer call that wait, with what was on its way when its window closed; beyond,
RESOURCE_EXHAUSTED.  As HTTP_STREAM_WAITING_MAX."""
GRPC_STATUS_TEXT_BYTES_MAX: Final = 4096
"""Bytes of a grpc-message: clients refuse trailers beyond 8 KiB, and nghttp2 drops frames beyond 64 KiB."""
REQUEST_PARAMETERS_MAX: Final = 1024
"""Parameters of one gRPC request, input or output: each is an object of hundreds of bytes made from a few."""
GRPC_PEEK_BYTES_MAX: Final = 64 * 1024
"""Bytes in which a model's name is looked for; where it comes later the message is collected whole."""
GRPC_STALL_SECONDS_MAX: Final = 60
"""Seconds a call may stay in the middle of a message, either way, without a byte moving; then it is reset."""
GRPC_SMALL_MESSAGE_BYTES: Final = 16 * 1024
"""Answers up to here are copied when they are rendered, which frees their block at once."""
GRPC_WRITE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes gathered for one write: more than a socket's buffer takes."""
CONNECTIONS_LOOK_SECONDS: Final = 0.2
"""Seconds between two looks, while the server ends, at connections that have nothing to say any more.  Clients of gRPC
have as long to answer our first GOAWAY."""
GRPC_DRAIN_SECONDS: Final = 1
"""Seconds for a client to say that it read our first GOAWAY, before the second names the last call that counts."""
HTTP2_STREAM_WINDOW_BYTES: Final = 8 * 1024 * 1024
"""Flow-control window of one call: what may be on its way while we read.  Bytes go to arenas as they come, so this
bounds what lies between a client and us, not memory."""
HTTP2_CONNECTION_WINDOW_BYTES: Final = 64 * 1024 * 1024
"""The same of a connection."""
HTTP2_FRAME_BYTES_MAX: Final = 1024 * 1024
"""Largest frame that is taken (SETTINGS_MAX_FRAME_SIZE): fewer, larger frames cost less, and none is held in memory."""
HTTP2_SETTINGS_MAX: Final = 32
"""Entries of one SETTINGS frame; HTTP/2 knows nine."""
HTTP2_UNSENT_ACKS_MAX: Final = 1000
"""Acknowledgements (SETTINGS, PING) that wait because the client does not read (CVE-2019-9512, -9515)."""
HTTP2_RESETS_BURST: Final = 1000
"""Calls that a client may take back at once, and that it may make us reset (rapid reset, CVE-2023-44487)."""
HTTP2_RESETS_PER_SECOND: Final = 100
"""The same as a rate: clients with short deadlines take calls back all the time."""
HTTP2_CONTINUATIONS_MAX: Final = 8
"""CONTINUATION frames of one header block (CVE-2024-27316)."""
HTTP2_IDLE_FRAMES_MAX: Final = 10_000
"""SETTINGS, PRIORITY, GOAWAY and empty DATA frames, and those of unknown types, in one second: they cost their sender
nothing (CVE-2019-9516 to -9518)."""
GRPC_RECEIVE_BUFFER_BYTES: Final = 256 * 1024
"""The one buffer in which frames are received, before tensors are copied to their arena: what fits a core's cache."""
GRPC_DIRECT_BYTES_MIN: Final = 16 * 1024
"""Bytes of a DATA frame that are still to come for which a tensor's own memory is the better place to receive them in:
copying so much costs what the detour does."""
GRPC_RECEIVE_START_BYTES: Final = 64 * 1024
"""The part of that buffer which is used for a client that sends large tensors: the head of a message, and little of the
tensor, which is received in its place from there on."""
GRPC_PING_IDLE_SECONDS: Final = 7200
"""Seconds between pings that are tolerated of a client without calls (unless permitted): gRPC's own figure."""
GRPC_COPIED_OUTPUT_BYTES_MAX: Final = 1024
"""Outputs of at most so many bytes are copied behind their head: cheaper than a piece of their own to gather."""
HEALTH_WATCH_SECONDS: Final = 1
"""Seconds between two looks at the readiness that health watchers are told of."""
GRPC_TEXT_BYTES_KEPT: Final = 64 * 1024
"""Bytes of a response's text buffer that are kept for the next response."""

# ---- engine
DEFAULT_QUEUE_REQUESTS_MAX: Final = 65536
"""Requests queued for one model version when its config sets no max_queue_size; beyond: 503, never growth."""
PREFETCH_NS: Final = 1_000_000
"""Work that may wait in an instance's ring behind the running execution, in ns of its measured execution time."""
PREFETCH_REQUESTS_MAX: Final = 64
"""The same in requests."""
BATCH_REJOIN_EXECUTION_NS_MIN: Final = 500_000
"""Executions shorter than this are not worth waiting for each other's clients."""
BATCH_REJOIN_NS_MAX: Final = 1_000_000
"""How long a batch that is not full waits at most, when an instance becomes idle, for clients that were just
answered."""
BATCH_REJOIN_VAIN_MAX: Final = 8
"""So many such waits in a row that brought less than half of them end the trying."""
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
EXECUTION_SECONDS_MAX: Final = 600
"""Default of --execution-timeout-secs: an execution running longer has hung; its worker is killed and restarted."""

# ---- response cache
CACHE_BYTES_MIN: Final = 4096
"""Least --cache-config local,size: below, no answer would fit with what is kept about it."""
CACHE_BYTES_MAX: Final = 1 << 39
"""Most of it: what an arena can address."""
CACHE_ENTRY_BYTES: Final = 512
"""What a kept answer is taken to need beside its bytes (key, table entry, lease): it counts towards the size, too."""
CACHE_TRIM_SHARE: Final = 8
"""Where answers' sizes change, evicted ones leave pages behind: they are given back at most once each time the size's
eighth has been written."""
REDIS_WAIT_MS_MAX: Final = 100
"""Default of --cache-config redis,socket_timeout: ms that a lookup may delay a request."""
REDIS_WAIT_MS_LIMIT: Final = 60_000
"""Most that it, connect_timeout and wait_timeout may be set to."""
REDIS_CONNECT_MS_MAX: Final = 1000
"""Default of redis,connect_timeout: ms that making a connection may take; requests do not wait for it longer than for
an answer."""
REDIS_CONNECTIONS_MAX: Final = 8
"""Default of redis,pool_size: connections, and so commands at one time; further ones wait for one."""
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
"""Bytes of a sequence id that is a text (row 9.12)."""
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
"""The same of one instance, so that one model with an unbounded label leaves room for the others."""
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
ARENA_CAP_FACTOR: Final = 2
"""Address space over use: slack for power-of-two blocks."""
ARENA_TRIM_SECONDS: Final = 10
"""Seconds without a request after which free pages go back to the system."""
OUTPUT_WAIT_SECONDS_MAX: Final = 30
"""Seconds a worker waits for room in its output arena before that request fails."""

# ---- tensors by reference
REFERENCE_BYTES_MIN: Final = 64 * 1024
"""Smallest tensor that goes to a worker as a place in another file: a smaller one is copied beside its request's
record.  At least a page, so that no two blocks of an arena lie in one page of it."""
FOREIGN_INPUTS_MAX: Final = 64
"""Inputs of one request that lie in other memory than its model's arena; further ones are copied."""
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
SPIN_US: Final = 200
"""How long a side that was busy yields the core before it sleeps (docs/architecture.md, Sleep and wake): longer than a
client thinks between two requests.  A side whose spins end in sleep eight times in a row stops spinning."""
BODY_NEAR_BYTES: Final = 1024 * 1024
"""When no more than this is missing of a request's body, the loop spins as if it had a request, for SPIN_US from each
piece on: asleep, it would be woken for each piece, which costs the client's core as much as its own."""
BODY_WAKE_BYTES: Final = 1024 * 1024
"""Of a larger body that comes over HTTP, the kernel collects so much before it wakes the loop (front/receiver.pyx)."""
CORES_SMALL_BYTES: Final = 16_384
"""Requests of no more than this are counted for front/cores.pyx: with larger ones copying decides, not waking."""
CORES_LOOK_REQUESTS: Final = 13
"""It looks at each 13th: a prime, so that clients of so many connections are not asked on the same one each time."""
CORES_LOOK_US_MAX: Final = 2600
"""Looks further apart than this, fewer than 5,000 requests a second, tell nothing."""
CORES_PAUSE_MS: Final = 1000
"""After so long without a look it may be somebody else who comes: what was of no use is tried again."""
CORES_LOOKS_AWAY: Final = 8
"""Looks in a row that find the client away from its place, until server and worker change theirs: 100 requests."""
CORES_LOOKS_JUDGED: Final = 76
"""Looks in a row that tell whether it was worth it to change places: 1,000 requests."""
CORES_LOOKS_SURE: Final = 228
"""Looks in a row after which another place is the better one: 3,000 requests."""
CORES_LOOKS_MEAN: Final = 912
"""Looks that the moving mean of what a place takes goes back."""
CORES_SPAN_MEANS_MAX: Final = 8
"""A look counts in it as no more than so many times the mean: beyond that the host has taken a core."""
CORES_GAIN_MIN: Final = 0.05
"""So much less time a request must take for a place to be the better one, or more for it to be left at once."""
CORES_LOSS_MAX: Final = 1.2
"""With so much more time a place is left after CORES_LOOKS_AWAY already: 1 % of requests in bad places are a p99."""
CORES_RETURN_MS_FIRST: Final = 10
"""A way home from a place known to be worse, which the scheduler undid at once, is gone again after this time, up to
CORES_HOLD_MS_FIRST: changing places takes some 0.1 ms."""
CORES_HOLD_MS_FIRST: Final = 250
CORES_HOLD_MS_MAX: Final = 32_000
CORES_HOLD_GROWTH: Final = 4
"""What was of no use is tried again after this time, so many times as long each time."""
NURSERY_START_SECONDS_MAX: Final = 60
"""Seconds an environment's interpreter may take to say it is up."""
LOAD_SECONDS_MAX: Final = 600
"""Seconds for import and initialize of one instance."""
STOP_SECONDS_MAX: Final = 30
"""Default of --exit-timeout-secs."""
DRAIN_DELAY_SECONDS_MAX: Final = 86_400
"""Largest --drain-delay-secs: a day; more is a slip of the keyboard."""
BLOCKING_THREADS_MAX: Final = 32
"""Threads for blocking work beside the event loop; as in Python's own pool, no more than 4 beyond the cores."""
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
"""The same end for a worker that had become ready: its model loads, so clients wait for it rather than for a repair."""
NURSERY_MESSAGE_BYTES_MAX: Final = 64 * 1024
"""Bytes of one packet between server and nursery: a fork request with its variables is the longest."""
NURSERY_SENDS_MAX: Final = 4096
"""Fork requests that wait for room in a nursery's socket."""
NURSERY_STDERR_BYTES_MAX: Final = 8 * 1024
"""Last bytes of a nursery's stderr that are kept to say why it could not start."""
EXIT_STATUS_SECONDS_MAX: Final = 1
"""Seconds between a worker's death (pidfd) and its exit status (nursery); then it is told without cause."""
READY_CHECK_SECONDS_MAX: Final = 5
"""Seconds for a model's own `is_ready` (row 16.06); past it, the model is not ready."""
HELLO_SECONDS_MAX: Final = 30
"""Seconds from a worker's fork to its hello: milliseconds of work, unless the machine is swamped."""
KILL_SECONDS_MAX: Final = 5
"""Seconds a killed process may take to be gone before the server stops waiting for it."""
WORKER_STOP_SECONDS_MAX: Final = 10
"""Seconds for `finalize` of an instance whose model failed to load beside it; --exit-timeout-secs rules at exit."""
WORKER_OUTPUT_TURN_LINES_MAX: Final = 32
"""Lines of one worker's output that one turn of the loop logs one by one (some 20 us each); more share a record."""
WORKER_OUTPUT_TURN_BYTES_MAX: Final = 32 * 1024
"""Bytes of one worker's output read in one turn, which takes 1 ms where they are lines of one character."""
WORKER_OUTPUT_PAUSE_SECONDS: Final = 0.005
"""Pause after a turn that met one of these two bounds: 6 MB a second, and who prints more waits for itself."""
CONTROL_TURN_MESSAGES_MAX: Final = 64
"""Control messages handled in one turn of the loop; then the loop serves everybody else first."""
CONTROL_QUEUE_MESSAGES_MAX: Final = 1024
"""Control messages queued by ZeroMQ for each worker and direction; a worker that logs faster waits."""
CONTROL_PATH_BYTES_MAX: Final = 107
"""Length of a Unix socket's path (sockaddr_un less its final zero)."""
CONTROL_ORPHAN_SECONDS: Final = 60
"""Age at which a control directory that nobody locks may be swept: a younger one may just be in the making."""
WATCHDOG_SECONDS_MAX: Final = 1.0
"""Seconds between two looks at the workers' running executions: how late a hang may be seen."""
WORKER_OUTPUT_AFTER_DEATH_BYTES_MAX: Final = 1024 * 1024
"""Bytes read of a dead worker's output: more than a pipe holds comes from processes that it left behind."""

# ---- model configuration
CONFIG_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of one config.pbtxt; real ones are a few KB, and a larger file is surely not a configuration."""
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
INTERPRETER_CHECK_SECONDS_MAX: Final = 10
"""Seconds `tisfast check` gives a model's own interpreter to parse model.py."""

# ---- resources
CPU_THREADS_MAX: Final = 1024
"""Threads that a model's CPU_THREADS may ask for: more than the largest machines have cores."""
GPU_LIMITS_MAX: Final = 1024
"""--model-load-gpu-limit flags: one for each GPU."""
MEMORY_BUDGET_BYTES_MIN: Final = 1 << 20
"""Least --model-memory-budget: a smaller number is surely one without its unit."""
MEMORY_LOOK_SECONDS: Final = 2.0
"""Least time between two measurements of the workers' memory, where there is a budget."""
MEMORY_LOOK_SHARE: Final = 20
"""And at least so many times what the last one took: the kernel walks through the page tables of each worker."""
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
"""The same with --reload, between two looks at everything: a developer's save is served within a second."""
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
CONTROL_INLINE_BYTES_MAX: Final = 64 * 1024
"""Bytes of a load call that the event loop reads itself; larger ones, which carry files, go to a thread."""
CONTROL_DECODE_BYTES: Final = 1 << 20
"""Bytes of base64 decoded, or searched, in one go, a few ms: a multiple of 4."""
CONTROL_CUT_BYTES: Final = 16 * 1024
"""Bytes of a file in a load call above which the parser does not see it: parsers of JSON and protobuf let nobody else
run.  4096 files below have 64 MB, some 50 ms."""
CONTROL_TOKENS_MAX: Final = 1024
"""Tokens in --model-control-token-file: each is compared with that of every call."""
CONTROL_TOKENS_BYTES_MAX: Final = 1024 * 1024
"""Bytes of that file."""

# ---- remote repositories
STORAGE_DOWNLOADS: Final = 8
"""Default of --storage-downloads: files downloaded at one time.  One connection rarely fills a machine's network."""
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
"""Age at which a run's folder that nobody locks may be swept: a younger one may just be in the making."""
LEASE_ATTEMPTS_MAX: Final = 100
"""Times that a folder which was replaced while somebody was about to lease it is looked up again."""
STORAGE_SWEEP_SECONDS_MAX: Final = 120
"""Seconds to wait for a lock of the cache: others keep one while they sweep, remove a tree, or write a manifest."""
STORAGE_SWEEP_LOOK_SECONDS: Final = 0.05
"""Seconds between two looks whether it is free."""
STORAGE_BAR_SECONDS: Final = 0.2
"""Seconds between two looks of the progress bar."""
STORAGE_LOG_SECONDS: Final = 10.0
"""The same of progress in the log."""

# ---- environments
ENVIRONMENT_FILES_MAX: Final = 2_000_000
"""Entries of one packed environment: the largest ones have some 200,000."""
ENVIRONMENT_BYTES_MAX: Final = 128 << 30
"""Bytes that one archive may unpack to: an environment with several CUDA frameworks has some 20 GiB."""
ENVIRONMENT_HEADER_BYTES_MAX: Final = 8 << 20
"""Bytes of one header of a tar file, which is read whole (long names, attributes), and of one read of a content."""
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
