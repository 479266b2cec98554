"""The engine's own cost per request: submit, schedule, complete, with links that do nothing."""

from __future__ import annotations

import time

from tisfast.config.scheduler import QueuePolicy, SchedulerSettings
from tisfast.engine.runtime import ModelRuntime
from tisfast.engine.testing import FakeClock, FakeLink, FakeReply, make_input, submit
from tisfast.native.memory import Arena
from tisfast.wire.signature import ModelSignature

N = 100_000


def run(name: str, settings: SchedulerSettings, burst: int) -> None:
    clock = FakeClock()
    inputs, outputs = [("I", 11, (4,), False, False)], [("O", 11, (4,))]
    signature = ModelSignature("m", "1", settings.max_batch_size, False, inputs, outputs)
    runtime = ModelRuntime(signature, Arena("micro", 1 << 20, 1 << 20), settings, clock, {})
    link = FakeLink("m_0_0", runtime, clock)
    runtime.add_link(link)
    runtime.set_state(True, "")
    reply, request = FakeReply([]), make_input(signature)
    start = time.perf_counter_ns()
    for _ in range(N // burst):
        for _ in range(burst):
            submit(runtime, request, reply)
        while link.dispatched:
            link.execute()
        reply.calls.clear()
    print(f"{name} {(time.perf_counter_ns() - start) / N:.1f}")


def main() -> None:
    default = SchedulerSettings(max_batch_size=0, dynamic=False)
    dynamic = SchedulerSettings(max_batch_size=32, dynamic=True)
    run("engine_default_burst_1", default, 1)
    run("engine_default_burst_32", default, 32)
    run("engine_dynamic_burst_32", dynamic, 32)
    timed = QueuePolicy(default_timeout_us=10**9, allow_timeout_override=True)
    levels = SchedulerSettings(32, dynamic=True, priority_levels=3, default_priority_level=2, queue_policy=timed)
    run("engine_levels_timeouts_burst_32", levels, 32)


if __name__ == "__main__":
    main()
