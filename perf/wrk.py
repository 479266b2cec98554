"""wrk: an HTTP client that costs a fraction of what perf_analyzer does."""

from __future__ import annotations

import json
import math
import re
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from perf.figures import Figures, RunFailed, run_client
from perf.oracle import launch

SECONDS_MORE_MAX: Final = 60

_LUA: Final = """
local file = io.open(%(body)r, "rb"); local body = file:read("*a"); file:close()
wrk.method = "POST"; wrk.path = %(path)r; wrk.body = body
%(head)s
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("FIGURES %%d %%d %%d", summary.requests, summary.duration,
    e.status + e.connect + e.read + e.write + e.timeout))
  for i = 1, #latency do io.write(string.format(" %%d:%%d", latency(i))) end
  io.write("\\n")
end
"""


class Body(NamedTuple):
    """A request: its path, its bytes, and the length of the JSON part (None when there is nothing else)."""

    path: str
    data: bytes
    json_bytes: int | None


def wrk(address: str, case: str, concurrency: int, seconds: float) -> Figures:
    """One thread, over keep-alive connections; percentiles are those of the requests that were made (see `made`)."""
    return wrk_with(address, wrk_body(case), concurrency, seconds)


def wrk_with(address: str, body: Body, concurrency: int, seconds: float) -> Figures:
    """The same with any request."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "body").write_bytes(body.data)
        head = f'wrk.headers["Inference-Header-Content-Length"] = "{body.json_bytes}"' if body.json_bytes else ""
        script = Path(folder, "post.lua")
        script.write_text(_LUA % {"body": f"{folder}/body", "path": body.path, "head": head})
        flags = ["-t1", f"-c{concurrency}", f"-d{max(1, round(seconds))}s", "--latency", "-s", str(script)]
        output = run_client([launch.wrk(), *flags, f"http://{address}"], seconds + SECONDS_MORE_MAX)
    return figures(output, concurrency)


def figures(output: str, concurrency: int) -> Figures:
    """Of what the script printed.  Raises RunFailed when it printed none, or an answer was bad."""
    found = re.search(r"^FIGURES (\d+) (\d+) (\d+)((?: \d+:\d+)*)$", output, re.MULTILINE)
    if not found:
        raise RunFailed(f"wrk gave no figures: {output[-2000:]}")
    count, duration_us, bad = map(int, found.groups()[:3])
    if bad or not count:
        raise RunFailed(f"wrk: {bad} bad answers of {count}")
    shown = dict((int(us), int(times)) for us, times in (pair.split(":") for pair in found[4].split()))
    latencies = made(shown, duration_us // max(count // concurrency, 1))
    return Figures(count / duration_us * 1e6, percentile(latencies, 0.50), percentile(latencies, 0.99))


def made(shown: Mapping[int, int], interval_us: int) -> dict[int, int]:
    """How often each latency (us) was measured, from what wrk shows: that, and requests that nobody made.

    wrk supposes that a request would have begun every `interval_us`, the mean latency, also while one waited: for each
    latency L from twice that on it also counts L less one interval, less two, and so on, while more than one is left
    (`stats_correct` of its stats.c, against coordinated omission).  With one connection at full speed each millisecond
    in which the machine stands still becomes twenty slow requests.  perf_analyzer counts what it made, and so do we.
    """
    added: dict[int, int] = {}
    found: dict[int, int] = {}
    for us in range(max(shown), min(shown) - 1, -1):  # what was added to a latency comes from greater ones
        times = shown.get(us, 0) - added.get(us, 0)
        if times < 0:
            raise RunFailed(f"wrk shows {shown.get(us, 0)} latencies of {us} us and must have added {added[us]}")
        if times:
            found[us] = times
        if times and us >= 2 * interval_us:
            for less in range(us - interval_us, interval_us, -interval_us):
                added[less] = added.get(less, 0) + times
    return dict(sorted(found.items()))


def percentile(latencies: Mapping[int, int], share: float) -> float:
    """The least latency that so great a share of them does not exceed.  latencies: how often each, in their order."""
    left = share * sum(latencies.values())
    for us, times in latencies.items():
        left -= times
        if left <= 0:
            return us
    return math.nan


def wrk_body(case: str) -> Body:
    """The request of a case; without a model: add_sub for 4 floats, identity_fp32 for any other number.

    longN is JSON whose numbers have six digits behind the point, as measured values have.
    """
    found = re.fullmatch(r"(?:(\w+)/)?(bin|json|long)(\d+(?:x\d+)*)", case)
    if not found:
        known = "binN, jsonN or longN, N the number of floats, or MODEL/bin1xN"
        raise RunFailed(f"unknown case {case!r} for wrk; it is {known}")
    shape = [int(size) for size in found[3].split("x")]
    usual = "add_sub" if shape == [4] else "identity_fp32"
    model, names = found[1] or usual, ("INPUT0", "INPUT1") if (found[1] or usual) == "add_sub" else ("INPUT0",)
    count = math.prod(shape)
    values = [_long(i) if found[2] == "long" else float(i % 7) for i in range(count)]
    path = f"/v2/models/{model}/infer"
    inputs = [{"name": name, "shape": shape, "datatype": "FP32"} for name in names]
    if found[2] != "bin":
        return Body(path, json.dumps({"inputs": [{**each, "data": values} for each in inputs]}).encode(), None)
    inputs = [{**each, "parameters": {"binary_data_size": 4 * count}} for each in inputs]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return Body(path, head + struct.pack(f"<{count}f", *values) * len(names), len(head))


def _long(i: int) -> float:
    """0.100000 to 0.999999."""
    return (100_001 + i * 7919 % 899_997) / 1e6
