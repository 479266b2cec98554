"""What one call of another model costs the server, from its record to the reply: without rings and workers."""

from __future__ import annotations

import time

from tests.engine.call_helpers import FROM_CALL, World, record
from tisfast.engine.testing_calls import call

CALLS, ROUNDS = 500, 20


def main() -> None:
    """A model asks another one, which answers at once."""
    world = World(caller=1, other=1)
    world.ask("caller")
    caller, other = world.models["caller"].instances[0], world.models["other"].instances[0].link
    raw = record("other", [("I", (4,), (FROM_CALL, 0, 0, 16))])
    least = float("inf")
    for turn in range(ROUNDS):
        began = time.perf_counter_ns()
        for number in range(CALLS):
            call(caller.calls, turn * CALLS + number, caller.output, raw)
            other.execute()
        least = min(least, (time.perf_counter_ns() - began) / CALLS)
    assert len(caller.port.sent) == CALLS * ROUNDS
    print(f"calls_engine {least:.1f}")


if __name__ == "__main__":
    main()
