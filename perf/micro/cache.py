"""The response cache's own cost: a key, a hit and a miss, small and of an image's size; no sockets, no workers."""

from __future__ import annotations

import struct
import time

from tisfast.config.scheduler_settings import SchedulerSettings
from tisfast.engine.response_cache import LocalStore, ModelCache
from tisfast.engine.runtime import ModelRuntime
from tisfast.engine.testing import FakeClock, FakeLink, FakeSink, key_of, place_input, submit
from tisfast.native.memory import Arena
from tisfast.wire import record
from tisfast.wire.record import Answer, InferInput
from tisfast.wire.signature import ModelSignature

FP32 = 11
SIZES = (("16_B", 4, 20_000), ("600_KB", 150_528, 500))
OUT = Arena("out", 1 << 24, 1 << 23)


def answered(request: InferInput) -> Answer:
    """An answer of as many floats as the request has, as a worker writes it (workers/WIRE.md)."""
    count = struct.unpack_from("<q", request.record, 56)[0]
    head = struct.pack("<IHHII", 16, 1, 0, 0, 0) + struct.pack("<HBBIq", 0, FP32, 1, 0, count)
    block = OUT.take_block(64 + 4 * count)
    memoryview(block)[:56] = head + struct.pack("<3Q", 1, 64, 4 * count)
    return record.read(request, block, 56)


def main() -> None:
    """Print one line for each operation."""
    signature = ModelSignature("m", "1", 0, False, [("I", FP32, (-1,), False, False)], [("O", FP32, (-1,))])
    for name, count, rounds in SIZES:
        clock = FakeClock()
        runtime = ModelRuntime(signature, Arena("micro", 1 << 24, 1 << 23), SchedulerSettings(), clock, {})
        runtime.cache = ModelCache(LocalStore(1 << 24), b"salt", 7)
        link = FakeLink("m_0", runtime, clock)
        runtime.add_link(link)
        runtime.set_state(True, "")
        request = place_input(runtime, "", [(0, FP32, (count,), bytes(4 * count))])
        _print(f"cache_key_{name}", rounds, lambda request=request, cache=runtime.cache: key_of(cache, request))
        reply = FakeSink([])
        submit(runtime, request, reply)
        link.execute(answer=answered)
        _print(f"cache_hit_{name}", rounds, lambda runtime=runtime, request=request, reply=reply: submit(
            runtime, request, reply))  # fmt: skip
        assert not link.dispatched
        others = [place_input(runtime, "", [(0, FP32, (count,), struct.pack("<i", i) * count)]) for i in range(1, 10)]
        start = time.perf_counter_ns()
        for other in others:
            submit(runtime, other, reply)
            link.execute(answer=answered)
        print(f"cache_miss_{name} {(time.perf_counter_ns() - start) / len(others):.1f}")


def _print(name: str, rounds: int, work) -> None:
    start = time.perf_counter_ns()
    for _ in range(rounds):
        work()
    print(f"{name} {(time.perf_counter_ns() - start) / rounds:.1f}")


if __name__ == "__main__":
    main()
