"""The work of a codec process: parse a request into the server's memory, render an answer there.  Layer 3 (codec).

The server alone hands out memory: a job that needs a block asks for it, and gets a place in a file that is mapped here.
Nothing outlives a job but mappings and models, which the server says when to forget.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy
from tisfast.native.memory cimport Arena, Block
from tisfast.native.region cimport Region, Regions, SystemRegion
from tisfast.wire.draft cimport InferBody
from tisfast.wire.generate cimport read_generate, render_generate
from tisfast.wire.grpc.infer cimport PEEK_FOUND, Peek, message_start, read_grpc_infer
from tisfast.wire.grpc.respond cimport STREAMED, UNARY, GrpcBody
from tisfast.wire.infer cimport body_start, read_infer
from tisfast.wire.plain_values cimport address_of, describe_input, rebuild_answer
from tisfast.wire.record cimport Answer, InferInput
from tisfast.wire.respond cimport ResponseBody
from tisfast.wire.signature cimport ModelSignature

import mmap
import os
import traceback

from tisfast.codec.messages import GENERATE, GRPC, INFER
from tisfast.errors import BY_STATUS, BadRequest, Internal, TisError
from tisfast.types import Status
from tisfast.wire.compress import compress, decompress
from tisfast.wire.plain_values import rebuild_model

cdef int NOWHERE = -1
cdef str NO_MEMORY = "Not enough memory"  # orjson's words: it takes that for an error in the text


cdef class ServerArena(Arena):
    """An arena of the server's, mapped here; its blocks are asked for."""
    cdef JobRunner worker

    cdef Block take(self, uint64_t nbytes):
        cdef Block block
        _, offset, got = self.worker.ask("take", nbytes)
        block = self.block(offset, got)
        self.worker.blocks.append(block)
        return block

    cdef Block block(self, uint64_t offset, uint64_t nbytes):
        cdef Block block = Block.__new__(Block)
        if offset > self.nbytes or nbytes > self.nbytes - offset:
            raise Internal(f"a block of {nbytes} bytes at {offset} lies outside a file of {self.nbytes} bytes")
        block.arena = self
        block.offset, block.nbytes = offset, nbytes
        block.data = self.base + offset
        return block

    cdef void give(self, uint64_t handle) noexcept:
        pass  # the server's


cdef class ServerRegion(Region):
    """Memory that the server alone has open, of a device, or cannot be mapped here: it copies."""
    cdef JobRunner worker

    cdef int _copy(self, uint64_t offset, void *host, uint64_t nbytes, bint out) except -1:
        cdef Arena arena = self.worker.arena
        self.worker.ask("copy", self.name, offset, <uint64_t>(<unsigned char *>host - arena.base), nbytes)
        return 0


cdef class ServerRegions(Regions):
    """Clients' memory by name: the server is asked, once for each name of a job."""
    cdef JobRunner worker

    cdef Region find(self, str name):
        cdef ServerRegion region
        found = self.by_name.get(name)
        if found is not None:
            return <Region>found
        (_, key, offset, nbytes, device), fd = self.worker.ask_for("region", name)
        if fd >= 0:
            try:
                found = SystemRegion(name, key, fd, offset, nbytes)
            except BadRequest:  # its owner has made it smaller since: the server says how small
                fd = -1
        if fd < 0:
            region = ServerRegion.__new__(ServerRegion)
            region.worker, region.name, region.key = self.worker, name, key
            region.offset, region.nbytes, region.device = offset, nbytes, device
            found = region
        self.by_name[name] = found
        return <Region>found


cdef class JobRunner:
    """server: has receive() and send(), see main.ServerConnection.  memory_bytes: what may be taken, for errors."""
    cdef object server
    cdef object memory_bytes
    cdef dict models                # id: ModelSignature
    cdef dict files                 # id: ServerArena, or mmap of what is only read
    cdef Arena arena                # of the job: where its blocks are
    cdef list blocks                # of the job, in the order in which the server handed them out

    def __init__(self, server, memory_bytes):
        self.server = server
        self.memory_bytes = memory_bytes
        self.models = {}
        self.files = {}

    def handle(self, message, fd) -> None:
        """One message that is no answer to a question."""
        kind, *rest = message
        if kind == "model":
            self.models[rest[0]] = rebuild_model(rest[1])
        elif kind == "file":
            number, nbytes, writable = rest
            self.files[number] = self._mapped(fd, nbytes, writable)
        elif kind == "forget":
            (self.models if rest[0] == "model" else self.files).pop(rest[1], None)
        elif kind == "parse":
            self._do(self._parse, fd, rest)
        elif kind == "render":
            self._do(self._render, fd, rest)
        else:
            raise ValueError(f"the server sent {kind!r}")

    cdef object _mapped(self, int fd, uint64_t nbytes, bint writable):
        cdef ServerArena arena
        if writable:
            arena = ServerArena("", nbytes, 0, fd)
            arena.worker = self
            return arena
        try:
            return mmap.mmap(fd, nbytes, mmap.MAP_SHARED, mmap.PROT_READ)
        finally:
            os.close(fd)

    # ---- questions within a job

    def ask_for(self, *question) -> tuple:
        """The server's answer, and the descriptor that came with it (-1: none).  Raises TisError when it refuses."""
        self.server.send(*question)
        while True:
            message, fd = self.server.receive()
            if message[0] in ("model", "file", "forget"):
                self.handle(message, fd)
            elif message[0] == "refused":
                raise BY_STATUS[Status(message[1])](message[2])
            else:
                return message, fd

    def ask(self, *question):
        """Ask the server, for an answer without a descriptor."""
        return self.ask_for(*question)[0]

    # ---- jobs

    def _do(self, job, fd, rest) -> None:
        self.blocks = []
        data = None
        try:
            if fd >= 0:
                data = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
            self.server.send("done", job(data, *rest))
        except TisError as error:
            if NO_MEMORY in error.message:
                self._send_memory_error()
            else:
                self.server.send("failed", int(error.status), error.message, error.facts.get("id", ""))
        except MemoryError:
            self._send_memory_error()
        except Exception as error:
            self.server.send("broken", type(error).__name__, traceback.format_exc())
        finally:
            if fd >= 0:
                os.close(fd)
            self.blocks = self.arena = None

    def _send_memory_error(self) -> None:
        self.server.send(
            "failed", int(Status.UNAVAILABLE), f"the request needs more memory than the {self.memory_bytes} bytes that "
            "reading or writing of one may take; send tensors in binary form", "")

    def _parse(self, spilled, form, model_id, arena_id, source, options):
        """source: a block (offset, bytes) of the arena, the body itself, or None: in the file that came along."""
        cdef ServerArena arena
        cdef ServerRegions regions = ServerRegions()
        cdef InferInput request
        cdef InferBody body
        regions.worker = self
        data = spilled if source is None else source
        if options["coding"]:
            data = decompress(options["coding"], data, options["inflated_max"])
        if form == GRPC and model_id < 0:
            return self._parse_collected(data, options, regions)
        self.arena = arena = self.files[arena_id]
        model = self.models[model_id]
        if form == INFER:
            request = self._read_infer(model, arena, data, options, regions)
        elif form == GENERATE:
            request = read_generate(model, arena, bytes(data), options["max_input_bytes"])
        else:
            body = received(model, arena, options, regions)
            body.block, body.start, body.nbytes = self._body(arena, data), options["start"], options["nbytes"]
            request = read_grpc_infer(body)
        return describe_input(request, self.blocks)

    cdef tuple _parse_collected(self, data, dict options, Regions regions):
        """A whole gRPC message, which says itself which model it is for."""
        cdef uint64_t nbytes = len(data)
        cdef Peek peek = Peek()
        cdef ModelSignature model
        cdef InferBody body
        try:
            if peek.read(address_of(data), nbytes, nbytes) != PEEK_FOUND:
                raise Internal("a whole message names no model")
            _, model_id, arena_id = self.ask("resolve", peek.name, peek.version)
            self.arena, model = self.files[arena_id], self.models[model_id]
            body = received(model, self.arena, options, regions)
            body.start, body.nbytes = message_start(model.record_room, peek.raw_at), nbytes
            body.block = self.arena.take(body.start + nbytes)
            memcpy(body.block.data + body.start, address_of(data), nbytes)
            return describe_input(read_grpc_infer(body), self.blocks)
        except TisError as error:  # in a stream the id tells which request was refused
            error.facts.setdefault("id", peek.id)
            raise

    cdef InferInput _read_infer(self, ModelSignature model, ServerArena arena, data, dict options, Regions regions):
        cdef InferBody body = received(model, arena, options, regions)
        if type(data) is tuple:
            body.block, body.start, body.nbytes = self._body(arena, data), options["start"], options["nbytes"]
        else:
            body.start, body.nbytes = body_start(model.record_room, body.head_bytes), len(data)
            body.block = arena.take(body.start + body.nbytes)
            memcpy(body.block.data + body.start, address_of(data), body.nbytes)
        return read_infer(body)

    cdef Block _body(self, ServerArena arena, tuple place):
        cdef Block body = arena.block(place[0], place[1])
        self.blocks.append(body)
        return body

    def _render(self, _, form, model_id, text_id, description, file_ids, options):
        cdef Answer answer
        self.arena = self.files[text_id]
        bases = [self.files[file_id] for file_id in file_ids]
        answer = rebuild_answer(self.models[model_id], description, [based(file) for file in bases])
        return render(self, form, answer, options)


cdef InferBody received(ModelSignature model, Arena arena, dict options, Regions regions):
    """A body of this model's; where it lies is for the caller to say."""
    cdef InferBody body = InferBody.__new__(InferBody)
    body.model, body.arena, body.regions = model, arena, regions
    body.head_bytes, body.max_input_bytes = options.get("head_bytes", -1), options["max_input_bytes"]
    body.forwarded = options["forwarded"]
    return body


cdef object based(file):
    """A buffer over a mapped file."""
    cdef ServerArena arena
    if isinstance(file, ServerArena):
        arena = <ServerArena>file
        return arena.block(0, arena.nbytes)
    return file


# ---- rendering: (bytes of the JSON, has tensors behind it, parts), each part (output or NOWHERE, offset in the block, bytes)

cdef tuple render(JobRunner worker, str form, Answer answer, dict options):
    cdef ResponseBody body
    cdef GrpcBody message
    cdef list pieces = []
    cdef int64_t text_bytes
    cdef int i
    if form == GRPC:
        message = GrpcBody()
        message.render(answer, STREAMED if options["streamed"] else UNARY, options["final"])
        text_bytes = 0
        for i in range(message.count):
            pieces.append((<uint64_t>message.pieces[i].data, message.pieces[i].nbytes))
        owner = message
    else:
        body = ResponseBody()
        if form == GENERATE:
            render_generate(body.text, answer)
        else:
            body.render(answer)
        text_bytes = body.text.used
        pieces.append((<uint64_t>body.text.data, text_bytes))
        for i in range(body.count):
            pieces.append((<uint64_t>body.segments[i].data, body.segments[i].nbytes))
        owner = body
    if options["coding"]:
        return text_bytes, len(pieces) > 1, coded(worker, options["coding"], pieces)
    parts = placed(worker, answer, pieces)
    del owner  # it held the text
    return text_bytes, len(pieces) > 1, parts


cdef list coded(JobRunner worker, str coding, list pieces):
    """All of it compressed, in one block."""
    cdef bytes body = compress(coding, *[(<unsigned char *><uint64_t>at)[:<Py_ssize_t>n] for at, n in pieces])
    cdef Block block = worker.arena.take(<uint64_t>len(body))
    memcpy(block.data, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
    return [(NOWHERE, 0, len(body))]


cdef list placed(JobRunner worker, Answer answer, list pieces):
    """Outputs stay where they are; everything else goes into one block, piece after piece."""
    cdef list parts = []
    cdef uint64_t at, n, room = 0
    cdef Block block
    cdef int output
    for at, n in pieces:
        output = output_at(answer, <unsigned char *>at, n)
        parts.append((output, room if output == NOWHERE else 0, n))
        if output == NOWHERE:
            room += n
    block = worker.arena.take(room)
    for (at, n), (output, offset, _) in zip(pieces, parts):
        if output == NOWHERE:
            memcpy(block.data + <uint64_t>offset, <unsigned char *>at, n)
    return parts


cdef int output_at(Answer answer, const unsigned char *data, uint64_t nbytes) noexcept:
    cdef int i
    for i in range(answer.count):
        if answer.outputs[i].data == data and answer.outputs[i].nbytes == nbytes:
            return i
    return NOWHERE
