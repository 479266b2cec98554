"""A server in miniature for tests of the worker runtime: spawns a nursery, forks instances, and writes their rings.

It follows workers/WIRE.md and csrc's headers on its own, with no code shared with the runtime under test.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgpack
import zmq

from tisfast.native.channel import abi_version

ROOT = Path(__file__).resolve().parents[2]
WORKERS = ROOT / "workers"
WAIT_SECONDS = 60
FP32, BYTES, BF16 = 11, 13, 14
EXECUTED = 6
MAGIC, ABI = 0x54495346, abi_version()
LIBRARY = WORKERS / "libtisfast_shm.so"


def library() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(LIBRARY))
    lib.tf_channel_bytes.restype = ctypes.c_uint64
    for name in ("tf_ring_reserve", "tf_ring_peek"):
        function = getattr(lib, name)
        function.restype, function.argtypes = ctypes.c_size_t, [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint32]
    for name in ("tf_ring_publish", "tf_ring_take"):
        getattr(lib, name).argtypes = [ctypes.c_size_t, ctypes.c_uint32]
    for name in ("tf_channel_init", "tf_worker_wake", "tf_worker_nudge"):
        getattr(lib, name).argtypes = [ctypes.c_size_t]
    lib.tf_ring_pending.restype, lib.tf_ring_pending.argtypes = ctypes.c_uint64, [ctypes.c_size_t]
    return lib


class Shared:
    """A memory file, mapped."""

    def __init__(self, nbytes: int) -> None:
        self.fd = os.memfd_create("test")
        os.ftruncate(self.fd, nbytes)
        self.memory = mmap.mmap(self.fd, nbytes)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def __del__(self) -> None:
        os.close(self.fd)


@dataclass
class Answer:
    kind: int
    flags: int
    status: int
    request: int
    block: int
    times: tuple[int, ...]
    batch: int
    text: str = ""
    outputs: list[tuple[int, int, tuple[int, ...], int, bytes]] = field(
        default_factory=list
    )  # index, dtype, shape, arena
    parameters: bytes = b""


class Plane:
    """Channel, bell and arenas of one instance, from the server's side."""

    def __init__(self, input_bytes: int = 8 << 20, output_bytes: int = 8 << 20) -> None:
        self.lib = library()
        self.channel = Shared(self.lib.tf_channel_bytes())
        self.lib.tf_channel_init(self.channel.base)
        self.bell, self.cells = Shared(4096), Shared(65536 * 8)
        struct.pack_into("<II", self.bell.memory, 0, MAGIC, ABI)
        self.eventfd = os.eventfd(0, os.EFD_NONBLOCK) if hasattr(os, "eventfd") else os.open("/dev/null", os.O_WRONLY)
        self.rung = select.poll()
        self.rung.register(self.eventfd, select.POLLIN)
        self.inputs, self.outputs = Shared(input_bytes), Shared(output_bytes)
        self.submit, self.complete, self.give = (self.channel.base + at for at in (128, 320, 512))
        self.shares, self.worker_shares = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.told, self.files = 0, {}
        self.decoupled = True
        self.over: list[Answer] = []  # executions with early answers of a model that is not decoupled
        self.tickets = 0
        self.at = 512

    def __del__(self) -> None:
        os.close(self.eventfd)
        self.shares.close()
        self.worker_shares.close()

    def show(self, share: int, file: Shared, *, begin: int = 0, nbytes: int = 0, guarded: bool = False) -> None:
        """Tell the worker of a file, read-only as the server does it."""
        fd = os.open(f"/proc/self/fd/{file.fd}", os.O_RDONLY)
        message = struct.pack("<BBHIQQ", 1, guarded, share, 0, begin, nbytes or len(file.memory))
        socket.send_fds(self.shares, [message], [fd])
        os.close(fd)
        self.told += 1
        self.files[share] = file

    def nudge(self) -> None:
        self.lib.tf_worker_nudge(self.channel.base)

    def forget(self, share: int) -> None:
        self.shares.send(struct.pack("<BBHIQQ", 2, 0, share, 0, 0, 0))
        self.told += 1

    @property
    def fds(self) -> list[int]:
        return [self.channel.fd, self.bell.fd, self.eventfd, self.cells.fd, self.inputs.fd, self.outputs.fd,
                self.worker_shares.fileno()]  # fmt: skip

    def room(self, nbytes: int) -> int:
        """The offset of fresh input memory."""
        at, self.at = self.at, self.at + nbytes + -nbytes % 64
        return at

    def place(self, data: bytes) -> tuple[int, int]:
        at = self.room(len(data))
        self.inputs.memory[at : at + len(data)] = data
        return at, len(data)

    def push(self, records: list[bytes], seats: list[tuple[int, bool]] | None = None) -> list[int]:
        """Submit one batch of records; their tickets.  seats: sequence slot of each, and whether it is a null one."""
        tickets = []
        for i, record in enumerate(records):
            at, nbytes = self.place(record)
            slot = self.lib.tf_ring_reserve(self.channel.base, self.submit, i)
            struct.pack_into(
                "<BBHIQQqIII",
                self.channel.memory,
                slot - self.channel.base,
                1,
                int(seats[i][1]) if seats else 0,
                len(records) - 1 - i,
                nbytes,
                self.tickets,
                at,
                0,
                self.told,
                seats[i][0] if seats else 0,
                0,  # offered
            )
            tickets.append(self.tickets)
            self.tickets += 1
        self.lib.tf_ring_publish(self.submit, len(records))
        self.lib.tf_worker_wake(self.channel.base)
        return tickets

    def next(self, seconds: float = WAIT_SECONDS) -> Answer:
        """The next slot of the complete ring.  The bell is rung, as announced; the loop here only polls."""
        answer = self._next(time.monotonic() + seconds)
        while answer.kind == EXECUTED and not self.decoupled:
            self.over.append(answer)
            answer = self._next(time.monotonic() + seconds)
        return answer

    def _next(self, deadline: float) -> Answer:
        while True:
            slot = self.lib.tf_ring_peek(self.channel.base, self.complete, 0)
            if slot:
                break
            struct.pack_into("<I", self.bell.memory, 64, struct.unpack_from("<I", self.bell.memory, 64)[0] + 1)
            if self.lib.tf_ring_pending(self.complete):
                continue
            left = deadline - time.monotonic()
            if left <= 0 or not self.rung.poll(left * 1000):
                raise TimeoutError("no answer")
            os.read(self.eventfd, 8)
        fields = struct.unpack_from("<BBHIQQqqqqII", self.channel.memory, slot - self.channel.base)
        self.lib.tf_ring_take(self.complete, 1)
        kind, flags, status, nbytes, request, block = fields[:6]
        answer = Answer(kind, flags, status, request, block, fields[6:10], fields[10])
        at = (block & ((1 << 40) - 1)) * 512
        if kind == 3 and block:
            answer.text = self.outputs.memory[at : at + nbytes].decode()
        if kind == 2:
            read_answer(self, answer, at, nbytes)
        return answer

    def give_back(self, block: int) -> None:
        slot = self.lib.tf_ring_reserve(self.channel.base, self.give, 0)
        struct.pack_into("<Q", self.channel.memory, slot - self.channel.base, block)
        self.lib.tf_ring_publish(self.give, 1)


def read_answer(plane: Plane, answer: Answer, at: int, nbytes: int) -> None:
    memory = plane.outputs.memory
    signature_bytes, count, _, parameters_bytes, _ = struct.unpack_from("<IHHII", memory, at)
    refs_at = at + 16 + signature_bytes + -signature_bytes % 8
    position = at + 16
    for i in range(count):
        index, dtype, rank, _ = struct.unpack_from("<HBBI", memory, position)
        shape = struct.unpack_from(f"<{rank}q", memory, position + 8)
        position += 8 + 8 * rank
        arena, offset, size = struct.unpack_from("<QQQ", memory, refs_at + 24 * i)
        assert arena in (0, 1) and (offset % 64 == 0 or arena == 0)
        source = plane.inputs.memory if arena == 0 else memory
        if arena == 1:
            offset += at  # the record is where the block begins
        elif offset >> 48:
            arena, source, offset = offset >> 48 << 48, plane.files[offset >> 48].memory, offset & (1 << 48) - 1
        answer.outputs.append((index, dtype, shape, arena, source[offset : offset + size]))
    end = refs_at + 24 * count
    answer.parameters = memory[end : end + parameters_bytes]
    assert end + parameters_bytes == at + nbytes


def record(
    inputs: list[tuple[int, int, tuple[int, ...], tuple[int, int]]],
    *,
    requested: int = (1 << 64) - 1,
    flags: int = 0,
    timeout: int = 0,
    correlation: int | str = 0,
    id: str = "",
    parameters: str = "",
    batch: int = 1,
) -> bytes:
    """A request record.  inputs: index, dtype, shape, (offset, bytes)."""
    signature = b"".join(struct.pack(f"<HBBI{len(s)}q", i, d, len(s), 0, *s) for i, d, s, _ in inputs)
    text = correlation.encode() if isinstance(correlation, str) else b""
    head = struct.pack(
        "<IHHQQQIIII",
        len(signature),
        len(inputs),
        flags | (4 if text else 0),
        requested,
        timeout,
        0 if text else correlation,
        len(id.encode()),
        len(parameters.encode()),
        len(text),
        batch,
    )
    refs = b"".join(struct.pack("<QQ", *where) for *_, where in inputs)
    return head + signature + bytes(-len(signature) % 8) + refs + id.encode() + parameters.encode() + text


class NurseryProcess:
    """A nursery under any interpreter."""

    def __init__(self, python: str, parent: int = 0) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [
            python,
            "-I",
            str(WORKERS / "__main__.py"),
            "nursery",
            str(theirs.fileno()),
            str(parent or os.getpid()),
        ]
        self.process = subprocess.Popen(command, pass_fds=(theirs.fileno(),))
        theirs.close()
        self.socket.settimeout(WAIT_SECONDS)
        self.folder = tempfile.mkdtemp(prefix="tisfast-test-")
        self.exits: list[dict] = []  # that came while something else was waited for
        self.endpoint = f"ipc://{self.folder}/control"

    def receive(self) -> tuple[dict, list[int]]:
        data, fds, _, _ = socket.recv_fds(self.socket, 1 << 17, 4)
        return (msgpack.unpackb(data) if data else {}), fds

    def fork(self, id: str, fds: list[int], env: dict[str, str] | None = None, threads: int = 1) -> None:
        order = {
            "t": "fork",
            "id": id,
            "endpoint": self.endpoint,
            "token": b"secret",
            "env": env or {},
            "threads": threads,
        }
        socket.send_fds(self.socket, [msgpack.packb(order)], fds)

    def end(self) -> None:
        self.socket.close()
        self.process.wait(WAIT_SECONDS)

    def close(self) -> None:
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)  # a nursery that was killed, or never forked, leaves it


class Router:
    """The server's end of the control plane; messages are received by a thread, in order, for whoever asks."""

    def __init__(self, endpoint: str) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.bind(endpoint)
        self.peers: dict[str, bytes] = {}
        self.threads: dict[bytes, int] = {}

    def receive(self, seconds: float = WAIT_SECONDS) -> dict:
        """The next message that is no `thread`: those of each instance are kept in `threads`."""
        while True:
            if not self.socket.poll(int(seconds * 1000)):
                raise TimeoutError("no control message")
            peer, data = self.socket.recv_multipart()
            message = msgpack.unpackb(data)
            if message["t"] != "thread":
                break
            self.threads[peer] = message["thread"]
        if message["t"] == "hello":
            self.peers[message["id"]] = peer
        return message

    def until(self, kind: str) -> dict:
        """The next message of this kind; log records before it are kept in `logs`."""
        while True:
            message = self.receive()
            if message["t"] == kind:
                return message
            assert message["t"] in ("log", "trace"), message

    def send(self, id: str, message: dict) -> None:
        self.socket.send_multipart([self.peers[id], msgpack.packb(message)])

    def close(self) -> None:
        self.socket.close()
        self.context.term()


class Instance:
    """One running instance of a model written in place."""

    def __init__(self, nursery: NurseryProcess, router: Router, folder: Path, source: str, **model: object) -> None:
        self.router, self.nursery = router, nursery
        self.plane = Plane(**{k: model.pop(k) for k in ("input_bytes", "output_bytes") if k in model})
        self.id = f"i{id(self):x}"
        env, threads = model.pop("env", {}), model.pop("threads", 1)
        self.out_read, out_write = os.pipe()
        nursery.fork(self.id, [*self.plane.fds, out_write, out_write], env, threads)
        os.close(out_write)
        message, fds = nursery.receive()
        while message["t"] == "exited":  # an instance before this one
            nursery.exits.append(message)
            message, fds = nursery.receive()
        assert message["t"] == "forked", message
        self.pid, (self.pidfd,) = message["pid"], fds
        self.hello = router.until("hello")
        version = folder / "m" / "1"
        version.mkdir(parents=True, exist_ok=True)
        (version / "model.py").write_text(source)
        self.load = {
            "name": "m",
            "version": "1",
            "repository": str(folder / "m"),
            "version_dir": str(version),
            "file": "model.py",
            "instance": "m_0_0",
            "kind": "CPU",
            "device_id": 0,
            "config": '{"name": "m", "max_batch_size": 0, "input": [], "output": []}',
            "decoupled": False,
            "max_batch_size": 0,
            "inputs": [["A", FP32, [-1], None], ["B", FP32, [-1], None]],
            "outputs": [["X", FP32, [-1], None], ["Y", FP32, [-1], None]],
            "spin_us": 0,
            "log_verbose": 0,
            **model,
        }
        self.plane.decoupled = bool(self.load["decoupled"])

    def __del__(self) -> None:
        for name in ("pidfd", "out_read"):
            if name in self.__dict__:
                os.close(self.__dict__[name])

    def start(self, role: str = "serve") -> dict:
        """Load; the worker's reply."""
        self.router.send(self.id, {"t": "load", "role": role, "model": self.load})
        while True:
            message = self.router.receive()
            if message["t"] in ("failed", "completed"):
                self.stop()  # it waits to be killed, or for this
            if message["t"] in ("ready", "failed", "completed"):
                return message

    def ask(self, *arrays: list[float], **options: object) -> Answer:
        """One request with FP32 inputs, and its answer."""
        self.plane.push([self.record(*arrays, **options)])
        return self.plane.next()

    def record(self, *arrays: list[float], shape: tuple[int, ...] | None = None, **options: object) -> bytes:
        inputs = []
        for i, values in enumerate(arrays):
            where = self.plane.place(struct.pack(f"<{len(values)}f", *values))
            inputs.append((i, FP32, shape or (len(values),), where))
        return record(inputs, **options)

    def stop(self) -> None:
        self.router.send(self.id, {"t": "stop"})

    def exit_status(self) -> int:
        exits = self.nursery.exits
        while not (mine := [each["status"] for each in exits if each["pid"] == self.pid]):
            message, _ = self.nursery.receive()
            assert message["t"] == "exited", message
            exits.append(message)
        return mine[0]

    def printed(self) -> str:
        """What it printed, after it ended."""
        with os.fdopen(os.dup(self.out_read)) as stream:
            return stream.read()


def floats(data: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(data) // 4}f", data))


__all__ = ["Answer", "Instance", "NurseryProcess", "Plane", "Router", "floats", "record", "signal", "threading"]
