"""The engine's own cost per request: submit, schedule, complete, with links that do nothing."""

from __future__ import annotations

import time

from tisfast.config.rate_limits import Demand, RateLimit
from tisfast.config.scheduler_settings import QueuePolicy, SchedulerSettings
from tisfast.engine.batching_strategy import compile_strategy
from tisfast.engine.rate_limiter import RateLimiter
from tisfast.engine.runtime import ModelRuntime
from tisfast.engine.testing import FakeClock, FakeLink, FakeSink, place_input, submit
from tisfast.native.memory import Arena
from tisfast.wire.signature import ModelSignature

N = 100_000


STRATEGY = """
def begin(request):
    return request.nbytes

def include(total, request):
    total += request.nbytes
    return total if total < 100000 else None
"""


def run(name: str, settings: SchedulerSettings, burst: int, *, strategy: str = "", claims: bool = False) -> None:
    clock = FakeClock()
    inputs, outputs = [("I", 11, (4,), False, False)], [("O", 11, (4,))]
    signature = ModelSignature("m", "1", settings.max_batch_size, False, inputs, outputs)
    custom = compile_strategy(strategy, "strategy.py") if strategy else None
    runtime = ModelRuntime(signature, Arena("micro", 1 << 20, 1 << 20), settings, clock, {}, custom)
    link = FakeLink("m_0_0", runtime, clock)
    if claims:
        limiter = RateLimiter(())
        runtime.limit_by(limiter)
        link.claim = limiter.register("m_0_0", RateLimit((Demand("R", 1),)), 0, runtime.resume)
    runtime.add_link(link)
    runtime.set_state(True, "")
    reply, request = FakeSink([]), place_input(runtime, "", [(0, 11, (1, 4), bytes(16))])
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
    run("engine_dynamic_claims_burst_32", dynamic, 32, claims=True)
    run("engine_dynamic_strategy_burst_32", dynamic, 32, strategy=STRATEGY)


if __name__ == "__main__":
    main()
