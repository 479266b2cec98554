"""The engine's own cost per request of a sequence: submit, schedule, complete, with links that do nothing."""

from __future__ import annotations

import time

from tisfast.config.scheduler_settings import SchedulerSettings
from tisfast.config.sequence_settings import SequenceSettings
from tisfast.engine.runtime import ModelRuntime
from tisfast.engine.testing import FakeClock, FakeLink, FakeSink, make_input, submit
from tisfast.native.memory import Arena
from tisfast.wire.signature import ModelSignature

N = 100_000
SEQUENCES = 32
START, END = 1, 2
LENGTH = 100


def run(name: str, *, oldest: bool) -> None:
    clock = FakeClock()
    sequence = SequenceSettings(slots=SEQUENCES, oldest=oldest, idle_ns=10**9)
    settings = SchedulerSettings(max_batch_size=SEQUENCES, sequence=sequence)
    inputs, outputs = [("I", 11, (4,), False, False)], [("O", 11, (4,))]
    signature = ModelSignature("m", "1", SEQUENCES, False, inputs, outputs)
    runtime = ModelRuntime(signature, Arena("micro", 1 << 20, 1 << 20), settings, clock, {})
    link = FakeLink("m_0_0", runtime, clock)
    runtime.add_link(link)
    runtime.set_state(True, "")
    reply = FakeSink([])
    requests = {
        flags: [make_input(signature, correlation=1 + each, flags=flags) for each in range(SEQUENCES)]
        for flags in (START, 0, END)
    }
    start = time.perf_counter_ns()
    for step in range(N // SEQUENCES):
        place = step % LENGTH
        for request in requests[START if place == 0 else END if place == LENGTH - 1 else 0]:
            submit(runtime, request, reply)
        while link.dispatched:
            link.execute()
        reply.calls.clear()
    print(f"{name} {(time.perf_counter_ns() - start) / N:.1f}")


def main() -> None:
    run("engine_sequence_direct_32", oldest=False)
    run("engine_sequence_oldest_32", oldest=True)


if __name__ == "__main__":
    main()
