"""What of arenas, rings and gathered writes has no face in Python, for tests in Python.  Layer 1 (native).

Each function is the call of its name and nothing else.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from tisfast.native.channel cimport Bell, Channel, tf_complete_slot, tf_reply_slot
from tisfast.native.gather_write cimport Outgoing
from tisfast.native.http2_frames cimport FrameGate, Piece
from tisfast.native.memory cimport Arena, Block, BufferView, MemoryFile, Promise
from tisfast.native.memory cimport promise as memory_promise


# ---- memory

def copy_out(MemoryFile file, uint64_t offset, uint64_t nbytes) -> bytes:
    """Bytes of the file."""
    found = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>nbytes)
    file.copy_out(offset, PyBytes_AS_STRING(found), nbytes)
    return found


def holds(MemoryFile file, uint64_t offset, uint64_t nbytes) -> bool:
    """Whether these bytes of the file are mapped."""
    return file.holds(offset, nbytes)


def show(Arena arena) -> None:
    """Mark it as one that a worker has seen."""
    arena.shown = True


def cost(Arena arena, uint64_t nbytes) -> int:
    """Bytes that a block of so many adds to `used_bytes`."""
    return arena.cost(nbytes)


def give(Arena arena, uint64_t handle) -> None:
    """Give a block back by its handle."""
    arena.give(handle)


def lease(Arena arena, uint64_t handle, uint64_t nbytes) -> Block:
    """A block that is out already."""
    return arena.lease(handle, nbytes)


def promise(Arena arena, owner, uint64_t nbytes, uint64_t come, int64_t ago_ns) -> Promise:
    """A promise that was made so long ago."""
    cdef Promise made = memory_promise(arena, owner, nbytes, come)
    made.began_ns -= ago_ns
    return made


def withdraw(Promise made) -> None:
    """All has come."""
    made.withdraw()


def promises(Arena arena) -> int:
    """How many there are."""
    return len(arena.promises or ())


def aim(BufferView view, owner, Py_ssize_t begin, Py_ssize_t nbytes, bint writable) -> None:
    """Show bytes of the owner's buffer."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(owner, &buffer, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
    try:
        view.aim(owner, <unsigned char *>buffer.buf + begin, nbytes, writable)
    finally:
        PyBuffer_Release(&buffer)


# ---- rings

def submit(Channel channel, uint64_t meta_offset, uint32_t meta_bytes, *, uint16_t batch_left=0, int64_t now=0,
           uint32_t sequence_slot=0, uint8_t flags=0) -> int:
    """The ticket, or -1."""
    return channel.submit(meta_offset, meta_bytes, batch_left, now, sequence_slot, flags)


def publish(Channel channel) -> None:
    """All that was written."""
    channel.publish()


def next_answer(Channel channel) -> dict | None:
    """The slot's fields, or None."""
    cdef tf_complete_slot slot
    return <object>slot if channel.next_answer(&slot) else None


def taken(Channel channel) -> int:
    """Tickets below were taken."""
    return channel.taken()


def recall(Channel channel, uint64_t last) -> bool:
    """Whether the batch is the server's again."""
    return channel.recall(last)


def room(Channel channel) -> int:
    """Free submit slots."""
    return channel.room()


def give_block(Channel channel, uint64_t block) -> None:
    """Give an output block back to the worker."""
    channel.give(block)


def reply(Channel channel, *, uint8_t kind, uint64_t call, uint64_t meta_offset=0, uint32_t meta_bytes=0) -> bool:
    """Whether there was room for it."""
    cdef tf_reply_slot slot
    memset(&slot, 0, sizeof(slot))
    slot.kind, slot.call, slot.meta_offset, slot.meta_bytes = kind, call, meta_offset, meta_bytes
    return channel.reply(&slot)


def nudge(Channel channel) -> None:
    """An idle worker looks up."""
    channel.nudge()


def tell(Channel channel, uint32_t told) -> None:
    """So many messages went over the share socket."""
    channel.told = told


def announce_sleep(Bell bell) -> None:
    """The loop is about to sleep."""
    bell.announce_sleep()


def awake(Bell bell) -> None:
    """The loop is awake."""
    bell.awake()


def clear(Bell bell) -> bool:
    """Whether it had been rung."""
    return bell.clear()


# ---- gathered writes

def put(Outgoing out, bytes data) -> None:
    """Copy bytes into it."""
    out.put(PyBytes_AS_STRING(data), len(data))


def add(Outgoing out, bytes data) -> None:
    """Borrow bytes, and keep their owner."""
    out.add(PyBytes_AS_STRING(data), len(data))
    out.keep(data)


def pieces(Outgoing out) -> list:
    """The bytes of each piece."""
    return [PyBytes_FromStringAndSize(<char *>out.pieces[i].iov_base, out.pieces[i].iov_len) for i in range(out.count)]


def owners(Outgoing out) -> list:
    """Who is kept."""
    return list(out.owners)


def nbytes(Outgoing out) -> int:
    """Of all pieces."""
    return out.nbytes


def full(Outgoing out) -> bool:
    """Whether it is to be written before more comes."""
    return out.full()


def clear_pieces(Outgoing out) -> None:
    """All was written."""
    out.clear()


# ---- heads of HTTP/2 frames

def new_gate() -> FrameGate:
    """The gate of a new connection."""
    return FrameGate.__new__(FrameGate)


def passed(FrameGate gate, bytes data) -> bytes:
    """What of these bytes goes to the library, up to a refusal."""
    cdef Piece piece
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(data)
    cdef size_t n = len(data), done = 0
    found = []
    while done < n and gate.refusal is None:
        done += gate.next(at + done, n - done, &piece)
        if piece.nbytes:
            found.append(piece.data[:piece.nbytes])
    return b"".join(found)


def refusal(FrameGate gate) -> bytes | None:
    """Why the client is sent away."""
    return gate.refusal


def moved(FrameGate gate) -> None:
    """A message has come."""
    gate.moved()


def second(FrameGate gate) -> None:
    """Another second has passed."""
    gate.second()


def count_large_head(FrameGate gate) -> None:
    """A head with too long fields."""
    gate.count_large_head()
