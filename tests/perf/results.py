"""Results as a run gives them, without running anything."""

from __future__ import annotations

import math

from perf.agreement import AGREEMENTS, Agreed, Said
from perf.bars import Bar
from perf.clients import Load
from perf.compare import Pair
from perf.figures import Figures
from perf.machine import Losses
from perf.open_loop import Tail
from perf.pytriton_rows import STOP, Beside
from perf.scaling import SCALING, Scaled
from perf.table import Measured, Results
from perf.unlike import UNLIKE, Found, Run


def measured(load: Load, a: Figures, b: Figures) -> Pair:
    """One round."""
    return Pair(load, a, b, [a], [b])


SMALL = Bar("add_sub", Load("perf_analyzer", "add_sub", 4, "grpc"), 0.35, 3.0)
TAILED = SMALL._replace(p99_over_p50_most=1.2)
PREPARED = Bar("add_sub, prepared call", Load("h2load", "add_sub", 32, "grpc"), None, 4.0)
TRITON = Figures(1000.0, 200.0, 400.0)
FAST = Figures(3500.0, 60.0, 200.0)
UNEVEN = Found(UNLIKE[1], [Run(Tail(20.0, 100.0, 120.0))], [Run(Tail(21.0, 105.0, 150.0))])
START = Measured("start to ready", "s", 2.0, 0.5, 0.4)
DEAR = Agreed(AGREEMENTS[0], [Said(40_000.0, 90.0, 80_000.0)], [Said(17_000.0, 210.0, 40_000.0)], [])
ALIKE = Agreed(AGREEMENTS[1], [Said(434.0, 2268.0, 70_000.0)], [Said(413.0, 2378.0, 9500.0)], [])
GROWN = Scaled(SCALING[0], 3.0, 3.9)


def results() -> Results:
    """A row met, a row with a bad tail, one without latencies, one number, growth, both clients, and a failure."""
    loads = [(bar, measured(bar.load, TRITON, FAST)) for bar in (SMALL, TAILED)]
    rates = [Figures(rate, math.nan, math.nan) for rate in (100.0, 390.0)]
    metrics = [(PREPARED, measured(PREPARED.load, *rates))]
    failures = ["bin4, side B: wrk gave no figures"]
    losses, stopped = Losses(12.0, 0.034, 5100.0), Beside(STOP, 30.0, 0.6)
    return Results(0.01, losses, loads, metrics, [START], [UNEVEN], [GROWN], [], [stopped], [DEAR, ALIKE], failures)
