"""Looks for inputs that cost much: `python -m tests.wire.cost_search [SECONDS]`, so long for each kind and cost.

Climbs: of what cost most so far one is taken and changed a little.  What it prints is for WORST in test_costs.py.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

from tests.wire.cost_kinds import KINDS, cost, made, taken
from tests.wire.cost_steps import Counter, run_counted

NBYTES = 6_000  # few, as valgrind is slow: what is not linear shows here, too
KEPT = 8


def changed(rng, case, pieces):
    """One of start, unit and end gets a piece, or loses one, or all is new."""
    if rng.random() < 0.3:
        return tuple(tuple(rng.choices(pieces, k=rng.randint(least, 3))) for least in (0, 1, 0))
    parts = [list(part) for part in case]
    place = rng.choice([0, 1, 1, 1, 2])
    at = rng.randint(0, len(parts[place]))
    parts[place][at : at + rng.randint(0, 1)] = rng.choices(pieces, k=rng.randint(0, 2))
    return tuple(map(tuple, parts if parts[1] else case))


def climbed(name, measure, seconds, rng):
    """The inputs that cost most for each of their bytes, with different units: [(cost, (start, unit, end))]."""
    pieces = KINDS[name].pieces
    best = {}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        case = ((), (pieces[0],), ()) if not best else rng.choice(list(best.values()))[1]
        case = changed(rng, case, pieces)
        data = made(*map(b"".join, case), nbytes=NBYTES)
        try:
            each = measure(name, data) / len(data)
        except Exception as error:  # neither taken nor refused: worth more than what costs much
            print(f"{type(error).__name__} {error}: ({name!r}, *{case!r}),", flush=True)
            continue
        key = frozenset(case[1])
        if each > best.get(key, (0,))[0]:
            best[key] = each, case
            best = dict(sorted(best.items(), key=lambda item: -item[1][0])[:KEPT])
    return list(best.values())


def main(folder: str = "", seconds: str = "20") -> None:
    """folder: that of the counter; "": this process has none, and starts one that has."""
    if not folder.startswith("/"):
        with tempfile.TemporaryDirectory() as place:
            run_counted("tests.wire.cost_search", Path(place), folder or seconds)
        return
    counter, rng = Counter(Path(folder)), random.Random(int(time.time()))
    measures = {
        "steps": lambda name, data: counter.steps(taken, name, data),
        "bytes": cost,
    }
    for name in sys.argv[3:] or KINDS:
        for label, measure in measures.items():
            for each, case in climbed(name, measure, float(seconds), rng):
                start, unit, end = map(b"".join, case)
                print(f"{label} {each:9.1f} ({name!r}, {start!r}, {unit!r}, {end!r}),", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])
