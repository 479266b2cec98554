"""Every bound of the worker side in one place, with its unit and reason.  The server's are in tisfast/limits.py."""

CONTROL_MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of one control message; the server's bound of the same name."""
CONTROL_RECORDS_MAX = 4096
"""Log and trace records waiting for the control socket; beyond, they are counted and dropped, never awaited."""
CONTROL_TEXT_CHARS_MAX = 65536
"""Characters of one log message or traceback; longer ones are cut and marked."""
CONTROL_RECEIVE_BYTES = 65536
"""Bytes asked of the control socket at one time."""
CONNECT_SECONDS_MAX = 30
"""Seconds for the control handshake; past it the server has gone or does not speak ZMTP."""
STOPPED_FLUSH_SECONDS_MAX = 5
"""Seconds that the last control messages may take to leave before the process ends."""
LAST_STEPS_SECONDS_MAX = 10
"""Seconds that an instance which can serve no more has for what it has still to say; then the kernel ends it."""
LAST_ERROR_CHARS_MAX = 300
"""Characters of what has ended the thread that hears the server, in its last line."""
CHILDREN_END_SECONDS_MAX = 1
"""Seconds that processes of such an instance's model have to end by themselves; then they are killed."""
MSGPACK_DEPTH_MAX = 16
"""Nesting of a control message; ours have two levels."""
NURSERY_MESSAGE_BYTES_MAX = 65536
"""Bytes of one packet between server and nursery; a fork order carries an environment.  The server's bound, too."""
NURSERY_DESCRIPTORS_MAX = 16
"""Descriptors that may ride on one packet; a fork order has eight."""
PLANS_MAX = 512
"""Remembered request signatures, and answer layouts, of one model; beyond, all are forgotten and learnt again."""
PASS_VIEW_BYTES_MIN = 65536
"""Smallest view of an input that is passed by reference: finding its address costs more than copying less."""
JOIN_BYTES_MAX = 16384
"""Largest answer tensor copied through a bytes object: below, one join beats a numpy copy (0.1 against 0.6 us)."""
MADE_FILES_BYTES_MAX = 16 << 30
"""Bytes of files that frameworks made of models' files; beyond, those go that were not used for longest."""
DIGEST_CHUNK_BYTES = 1 << 20
SHARE_WEIGHTS_BYTES_MIN = 16 << 20
"""Smallest model whose weights are kept in a file that all instances map: of smaller ones there are many, and each
instance costs more than they do."""
TABLE_ROWS_MAX = 8192
"""Rows of a batch where a model of rows of a table says no `max_batch_size`: clients send tables, and a row costs
microseconds.  What operators say with `default-max-batch-size` counts where it is more."""
TREELITE_ROWS_MAX = 31
"""Rows up to which treelite predicts also where the package is there that wrote the model: of 100 trees it takes 40 us
for one row where XGBoost takes 170, and 7 us for each more where XGBoost takes one."""
ROWS_PER_THREAD_MIN = 256
"""Rows below which a forest has one thread: to wake another one takes longer than they do."""
PROBE_ROWS = 64
"""Rows by which two libraries are compared that are to predict alike."""
SNIFF_BYTES = 64
"""First bytes of a model's file by which its kind is told."""
SOURCE_BYTES_MAX = 64 << 20
"""Bytes of a source file in a compiled package that is looked through; longer ones are passed over."""
SHARE_TENSOR_BYTES_MIN = 4096
"""Smallest tensor of such a model that lies in the file: a page."""
RESERVE_BYTES_MIN = 98304
"""Smallest answer whose outputs are computed into its block: below, binding them costs more than a copy."""
PIN_BYTES_MIN = 65536
"""Smallest tensor that is pinned for the GPU by itself: of smaller ones the driver makes copies that do not wait."""
PIN_STEP_BYTES = 65536
"""Pinned pieces begin and end at multiples of this: no page of any system is larger."""
PIN_PASSES_MAX = 4
"""Times that the tensors of a batch are looked at until none reaches over the end of a pinned piece; beyond, all pieces
of the arena are given up.  Two are usual where something is new."""
GPU_PIECE_BYTES_MIN = 65536
"""Smallest piece of an input in host memory that is copied to the GPU by itself: below, a copy of all of them together
on the host costs less than calls of the driver's."""
WINDOWS_IDLE_MAX = 64
"""Windows on other memory that wait to be used again; beyond, all of them are unmapped.  A new one costs some 30 us."""
OUTPUT_WAIT_SECONDS_MAX = 30
"""Seconds to wait for room in the output arena or the complete ring; the server's bound of the same name."""
OUTPUT_WAIT_STEP_SECONDS_MAX = 0.002
"""Longest pause between two looks at the give ring while waiting for room; the first is a 50th of it."""
OUTPUT_BLOCKS_MAX = 4095
"""Output blocks out at one time: TF_OUTPUT_BLOCKS_MAX of csrc/tf_ring.h, what the give ring can bring back."""
OUTPUTS_MAX = 64
"""Outputs of one model: the requested set is one machine word; the server's bound of the same name."""
TENSOR_RANK_MAX = 32
"""Dimensions of one tensor; the server's bound of the same name."""
DIFFERENCE_NAME_CHARS_MAX = 256
"""Characters by which such an output is told from others."""
DIFFERENCES_TOLD_MAX = 128
"""Outputs of one instance that are told of, once each, as they are not what the configuration says: all that a model
can have, and as many names that it does not have."""
MMAP_THRESHOLD_BYTES = 32 * 1024 * 1024
"""Arrays up to this size come from the heap and stay warm; glibc refuses more (HEAP_MAX_SIZE / 2)."""
BLAS_SPIN_TICKS_LOG2 = 20
"""Clock ticks, as a power of two, that a thread of OpenBLAS spins for its next work before it sleeps: some 0.4 ms.  Its
own 26 is some 30 ms of a core after each call and, as threads begin with it, at the start of each instance."""
TRIM_THRESHOLD_BYTES = 256 * 1024 * 1024
"""Free heap kept by an instance before memory goes back to the system: a fresh page costs far more than a warm one."""
ERROR_TEXT_BYTES_MAX = 65536
"""Bytes of one error text to a client; longer ones are cut."""
COLLECT_BLOCKS_MIN = 16
"""Small output blocks out before those given back are collected: a dozen stays in the cache, the calls are shared."""
REST_SECONDS = 10
"""Seconds without a request after which the output arena's free pages go back; the server's ARENA_TRIM_SECONDS."""
STREAM_BLOCKS_MAX = 1024
"""Responses of one stream that its client has not read: a quarter of what an instance may have out, so that a client
that does not read slows its own stream first.  In bytes: as much as is left for the others (stream_backlog.py).  What
is sent then waits OUTPUT_WAIT_SECONDS_MAX, and the stream ends."""
ANSWER_SECONDS_MAX = 30
"""Seconds that the server may take to answer over the control socket: it is a matter of less than a millisecond."""
LENDING_SECONDS = 10
"""How long an instance that was lent no GPU memory goes without, before it asks again."""
LENT_REFUSED_SECONDS = 600
"""How long an instance that could not open what it was lent asks for none; the server's bound of the same name."""
TAKES_GPU_SECONDS = 10
"""How long it is believed that a called model takes its inputs on the GPU, or does not; then the server is asked."""
LOAD_ANSWER_SECONDS_MAX = 3600
"""Time for loading and unloading models: the server bounds each load, and its retries, itself."""
LOAD_BYTES_MAX = CONTROL_MESSAGE_BYTES_MAX - 1024 * 1024
"""Bytes of a configuration and files that a model gives to load_model: they go in one control message."""
CALL_NAME_BYTES_MAX = 4096
"""Bytes of one name in a call of another model; a length has 16 bits on the wire, and no name comes near."""
GUEST_LOOK_SECONDS = 0.05
"""Seconds between two looks of a guest whether the server that it waits for is there."""
LEAVE_SECONDS_MAX = 600
"""Seconds that the requests of a model have to be answered when its guest takes it away: the server's bound for those
of a copy that was unloaded, LEAVING_SECONDS_MAX."""
CLOSE_SECONDS_MAX = 10
"""Seconds that a guest waits so when it ends: its user has asked it to."""
