"""Runs a model of ours in the nursery, so that its children find the first steps done.

CPython keeps what it learns while it runs code: specialised instructions, types that ctypes made, caches of imports and
formats.  Learnt in the nursery it is learnt once, and its pages are shared; learnt in each child, each pays for it in
time and memory (docs/resources.md has the figures).  No thread is started, and nothing of it stays open.
"""

import ctypes
import mmap
import os
import socket
import struct
import sys

from tisfast_worker import msgpack
from tisfast_worker.data_plane import DataPlane
from tisfast_worker.loop_steps import make_loop
from tisfast_worker.model import Model
from tisfast_worker.native import SUBMIT_SLOT, TF_ABI_VERSION, TF_EXEC
from tisfast_worker.record import HEAD, TENSOR
from tisfast_worker.zmtp import Dealer

ROUNDS = 16
"""Requests that are served: CPython specialises code after eight runs or so."""
FP32 = 11
MODULE = "rehearsal"
_ARENA_BYTES = 1 << 20
_PAGE = 4096
_RECORD_AT, _DATA_AT = 512, 4096
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_READY = b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER"
_LOAD = {
    "t": "load",
    "role": "serve",
    "model": {
        "name": MODULE, "version": MODULE, "repository": "/", "file": "nursery_warm_up_model.py", "instance": MODULE,
        "version_dir": os.path.dirname(os.path.abspath(__file__)), "kind": "CPU", "device_id": 0,
        "config": '{"name": "rehearsal", "input": [], "output": []}', "decoupled": False, "max_batch_size": 0,
        "inputs": [["A", FP32, [-1], None]], "outputs": [["B", FP32, [-1], None]], "spin_us": 0,
    },
}  # fmt: skip


def rehearse(library, backend_class):
    """Live through a greeting, a load and some requests."""
    _greet()
    with open(os.devnull, "w", 1, "utf-8", "backslashreplace") as output:
        print(MODULE, file=output)
    model = Model(msgpack.decode(msgpack.encode(_LOAD))["model"])
    modules = set(sys.modules)
    stage = _Stage(library)
    try:
        backend = backend_class(model)
        backend.load()
        backend.initialize()
        loop = make_loop(model, backend, stage.plane, None)
        for number in range(ROUNDS if "numpy" in sys.modules else 0):
            stage.send(number)
            loop.source.serve(1, loop.serve)
        backend.free()
        del loop
    finally:
        for name in set(sys.modules) - modules:
            del sys.modules[name]
        stage.close()


def _greet():
    """The handshake with the server's socket, and a message each way."""
    dealer = Dealer()
    dealer.take_outgoing()
    dealer.receive(_GREETING + _READY)
    dealer.send(msgpack.encode({"t": "hello", "id": MODULE, "token": b"", "pid": 1, "abi": TF_ABI_VERSION}))
    dealer.take_outgoing()


class _Stage:
    """The server's side of a data plane, no larger than it must be."""

    def __init__(self, library):
        self._library = ctypes.PyDLL(library.path)
        self._library.tf_channel_bytes.restype = ctypes.c_uint64
        channel_bytes = self._library.tf_channel_bytes()
        files = [_memory(nbytes) for nbytes in (channel_bytes, _PAGE, _PAGE, _ARENA_BYTES, _ARENA_BYTES)]
        os.pwrite(files[1], struct.pack("<II", 0x54495346, TF_ABI_VERSION), 0)
        self._init(files[0], channel_bytes)
        self._null = os.open(os.devnull, os.O_WRONLY)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel, page, cells, inputs, outputs = files
        self.plane = DataPlane(library, (channel, page, self._null, cells, inputs, outputs, theirs.detach()), 0)
        self._ring = library.tf_ring_reserve, library.tf_ring_publish

    def send(self, ticket):
        """One request, always at the same place."""
        plane = self.plane
        signature = TENSOR.pack(0, FP32, 1, 0) + struct.pack("<q", 1)
        head = HEAD.pack(len(signature), 1, 0, (1 << 64) - 1, 0, 0, 0, 0, 0, 1)
        record = head + signature + bytes(-len(signature) % 8) + struct.pack("<QQ", _DATA_AT, 4)
        plane.inputs.memory[_RECORD_AT : _RECORD_AT + len(record)] = record
        reserve, publish = self._ring
        channel = plane.channel
        at = reserve(channel.base, channel.submit, 0) - channel.base
        SUBMIT_SLOT.pack_into(channel.memory, at, TF_EXEC, 0, 0, len(record), ticket, _RECORD_AT, 0, 0, 0, 0)
        publish(channel.submit, 1)

    def close(self):
        """Give back all that a worker keeps to its end."""
        plane = self.plane
        plane.foreign.close()
        plane.outputs.close()
        self._socket.close()
        os.close(self._null)

    def _init(self, fd, nbytes):
        with mmap.mmap(fd, nbytes) as memory:
            place = ctypes.c_char.from_buffer(memory)
            self._library.tf_channel_init.argtypes = [ctypes.c_size_t]
            self._library.tf_channel_init(ctypes.addressof(place))
            del place


def _memory(nbytes):
    fd = os.memfd_create("tisfast-rehearsal")
    os.ftruncate(fd, nbytes)
    return fd
