"""What the always-on histograms cost per request: seven additions, cold and warm caches being the caller's affair."""

from __future__ import annotations

import time

from tisfast.engine.histogram import Timings

N = 2_000_000


def main() -> None:
    timings = Timings((100.0, 500.0, 2000.0, 5000.0))
    start = time.perf_counter_ns()
    timings.time_of(N)
    print(f"histogram_per_request {(time.perf_counter_ns() - start) / N:.1f}")


if __name__ == "__main__":
    main()
