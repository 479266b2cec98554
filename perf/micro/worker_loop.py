"""The worker's own cost per request: take, decode, a small execute, encode, publish, with no server beside it.

Needs numpy and the standard library only, so that it runs under any interpreter a worker may have:
`PYTHON perf/micro/worker_loop.py` beside `python -m perf.micro.run`.
"""

from __future__ import annotations

import cProfile
import ctypes
import os
import socket
import struct
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "workers"))

import triton_python_backend_utils as pb_utils  # noqa: E402
from tisfast_worker import native, nursery  # noqa: E402
from tisfast_worker.backend import RequestBackend  # noqa: E402
from tisfast_worker.data_plane import DataPlane  # noqa: E402
from tisfast_worker.loop_steps import make_loop  # noqa: E402
from tisfast_worker.model import Model  # noqa: E402

BURST, ROUNDS = 40, 2000
EVICT = 8 << 20  # bytes that are copied before a cold request: more than a core's own caches hold
FP32 = 11


class AddSub:
    """The oracle's add_sub, word for word in what it asks of pb_utils."""

    def execute(self, requests):
        out = []
        for r in requests:
            a = pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy()
            b = pb_utils.get_input_tensor_by_name(r, "INPUT1").as_numpy()
            tensors = [pb_utils.Tensor("OUTPUT0", a + b), pb_utils.Tensor("OUTPUT1", a - b)]
            out.append(pb_utils.InferenceResponse(output_tensors=tensors))
        return out


def identity(requests):
    return [
        pb_utils.InferenceResponse(
            [pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy())]
        )
        for r in requests
    ]


def copy(requests):
    return [
        pb_utils.InferenceResponse(
            [pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy() + 1)]
        )
        for r in requests
    ]


class Driver:
    """The server's side of one channel, as cheap as Python can be; its cost is not measured."""

    def __init__(self, execute, shape, foreign=False) -> None:
        self.library = native.Library(nursery.LIBRARY)
        raw = ctypes.PyDLL(nursery.LIBRARY)
        raw.tf_channel_bytes.restype = ctypes.c_uint64
        # Blocks of 1 MB for a burst of 600 KB each.
        sizes = (raw.tf_channel_bytes(), 4096, 0, 4096, 8 << 20, 2 * BURST << 20)
        fds = []
        for size in sizes:
            fds.append(os.open("/dev/null", os.O_WRONLY) if size == 0 else _memory_file(size))
        maps = [native.Mapping(fd, "file") if size else None for fd, size in zip(fds, sizes)]  # noqa: B905
        raw.tf_channel_init.argtypes = [ctypes.c_size_t]
        raw.tf_channel_init(maps[0].base)
        struct.pack_into("<II", maps[1].memory, 0, 0x54495346, native.TF_ABI_VERSION)
        self.shares, worker_shares = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.plane = DataPlane(self.library, [*fds, worker_shares.detach()], 0)
        spec = [[f"INPUT{i}", FP32, [-1], None] for i in range(2)]
        outputs = [[f"OUTPUT{i}", FP32, [-1], None] for i in range(2)]
        model = {
            "name": "m",
            "version": 1,
            "instance": "m_0_0",
            "repository": "",
            "version_dir": "",
            "file": "model.py",
        }
        model.update(
            kind="CPU", device_id=0, config="{}", decoupled=False, max_batch_size=0, inputs=spec, outputs=outputs
        )
        loaded = Model(model)
        backend = RequestBackend(loaded)
        backend.execute = lambda requests, _: execute(requests)
        self.loop = make_loop(loaded, backend, self.plane, lambda *failure: sys.exit(str(failure)))
        if foreign:
            self._show()
        self.told = int(foreign)
        self.record = self._record(maps[4].memory, shape, foreign)
        self.plane.channel.request_stop()  # run() returns whenever submit is empty

    def _show(self):
        """A file as share 1; both inputs lie in it."""
        self.file = _memory_file(8 << 20)
        os.pwrite(self.file, bytes(8 << 20), 0)
        message = struct.pack("<BBHIQQ", 1, 0, 1, 0, 0, 8 << 20)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", self.file))]
        self.shares.sendmsg([message], rights)

    def _record(self, memory, count, foreign):
        signature = b"".join(struct.pack("<HBBIq", i, FP32, 1, 0, count) for i in range(2))
        share = foreign << 48
        refs = struct.pack("<4Q", share + 4096, 4 * count, share + (1 << 20), 4 * count)
        record = struct.pack("<IHHQQQIIII", len(signature), 2, 16 * foreign, 3, 0, 0, 0, 0, 0, 1) + signature + refs
        memory[512 : 512 + len(record)] = record
        return 512, len(record)

    def burst(self, batch, count=BURST) -> int:
        """Nanoseconds for `count` requests in batches of `batch`."""
        channel, library = self.plane.channel, self.library
        for i in range(count):
            slot = library.tf_ring_reserve(channel.base, channel.submit, i) - channel.base
            left = batch - 1 - i % batch
            at, nbytes = self.record
            native.SUBMIT_SLOT.pack_into(channel.memory, slot, 1, 0, left, nbytes, i, at, 0, self.told, 0, 0)
        library.tf_ring_publish(channel.submit, count)
        start = time.perf_counter_ns()
        self.loop.run()
        spent = time.perf_counter_ns() - start
        mask, first = channel.complete_slots
        done = library.tf_ring_pending(channel.complete)
        head = struct.unpack_from("<Q", channel.memory, 320 + 64)[0]
        for i in range(done):
            fields = native.COMPLETE_SLOT.unpack_from(channel.memory, first + ((head + i) & mask) * 64)
            assert fields[0] == native.TF_ANSWER, fields
            slot = library.tf_ring_reserve(channel.base, channel.give, i) - channel.base
            struct.pack_into("<Q", channel.memory, slot, fields[5])
        library.tf_ring_publish(channel.give, done)
        library.tf_ring_take(channel.complete, done)
        assert done == count
        return spent


def _memory_file(nbytes) -> int:
    fd = os.memfd_create("micro")
    os.ftruncate(fd, nbytes)
    return fd


def measure(name, execute, count, batch, foreign=False) -> None:
    driver = Driver(execute, count, foreign)
    driver.burst(batch)
    best = min(driver.burst(batch) for _ in range(ROUNDS if count < 1000 else ROUNDS // 10))
    print(f"{name} {best / BURST:.1f}")


def measure_cold(name, execute, count, foreign=False) -> None:
    """One request after its core has copied large tensors for others: the middle, as there is no best to be had."""
    driver = Driver(execute, count, foreign)
    driver.burst(1)
    theirs, others = bytearray(EVICT), bytes(EVICT)
    spent = []
    for _ in range(ROUNDS // 4):
        theirs[:] = others
        spent.append(driver.burst(1, 1))
    print(f"{name} {sorted(spent)[len(spent) // 2]:.1f}")


def main() -> None:
    if "--profile" in sys.argv:
        driver = Driver(AddSub().execute, 4)
        with cProfile.Profile() as profile:
            for _ in range(50):
                driver.burst(1)
        profile.print_stats("tottime")
        return
    measure("worker_add_sub", AddSub().execute, 4, 1)
    measure("worker_add_sub_batch_8", AddSub().execute, 4, 8)
    measure_cold("worker_add_sub_cold", AddSub().execute, 4)
    measure("worker_identity_600KB", identity, 150528, 1)
    measure_cold("worker_identity_600KB_cold", identity, 150528)
    measure("worker_identity_600KB_foreign", identity, 150528, 1, foreign=True)
    measure_cold("worker_identity_600KB_foreign_cold", identity, 150528, foreign=True)
    measure("worker_copy_600KB", copy, 150528, 1)
    measure("worker_copy_600KB_foreign", copy, 150528, 1, foreign=True)


if __name__ == "__main__":
    main()
