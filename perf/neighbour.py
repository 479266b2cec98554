"""A busy client, beside which another one is measured: one process, ended by its parent.

    python -m perf.neighbour KIND localhost:HTTP localhost:METRICS MODEL_FOLDER COUNTER RATE

KIND: json, gzip, binary, scraper, reload or connections.  MODEL_FOLDER: of the model that is reloaded.  COUNTER: an
eventfd, to which it adds 1 for each answer.  RATE: answers a second, at most; 0: it never rests.  It prints a line when
it has been answered once, and ends with a status other than 0 when an answer is bad.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from perf.wrk import wrk_body

SECONDS_MAX: Final = 600
"""It ends by itself where its parent could not end it."""
ANSWER_SECONDS_MAX: Final = 60
JSON_CASE: Final = "long550000"
"""5.5 MB."""
BINARY_CASE: Final = "bin4194304"


def _asked(
    connection: http.client.HTTPConnection,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> None:
    connection.request("GET" if body is None else "POST", path, body, headers or {})
    answer = connection.getresponse()
    data = answer.read()
    if answer.status != http.client.OK:
        raise RuntimeError(f"{path} was answered {answer.status}: {data[:500]!r}")


def _sender(address: str, kind: str) -> Callable[[], None]:
    """Large tensors over one connection."""
    body = wrk_body(BINARY_CASE if kind == "binary" else JSON_CASE)
    data, headers = body.data, {}
    if body.json_bytes is not None:
        headers["Inference-Header-Content-Length"] = str(body.json_bytes)
    if kind == "gzip":
        data, headers["Content-Encoding"] = gzip.compress(data), "gzip"
    connection = http.client.HTTPConnection(address, timeout=ANSWER_SECONDS_MAX)
    return lambda: _asked(connection, body.path, data, headers)


def _newcomer(address: str) -> None:
    with contextlib.closing(http.client.HTTPConnection(address, timeout=ANSWER_SECONDS_MAX)) as connection:
        _asked(connection, "/v2/health/live")


def _reload(connection: http.client.HTTPConnection, folder: Path) -> None:
    """Its file is a new one each time: Triton loads nothing anew that did not change."""
    os.utime(folder / "1/model.py")
    _asked(connection, f"/v2/repository/models/{folder.name}/load", b"")


def step(kind: str, address: str, metrics: str, folder: Path) -> Callable[[], None]:
    """What a neighbour of this kind does again and again."""
    match kind:
        case "scraper":
            scraped = http.client.HTTPConnection(metrics, timeout=ANSWER_SECONDS_MAX)
            return lambda: _asked(scraped, "/metrics")
        case "reload":
            control = http.client.HTTPConnection(address, timeout=ANSWER_SECONDS_MAX)
            return lambda: _reload(control, folder)
        case "connections":
            return lambda: _newcomer(address)
    return _sender(address, kind)


def main(kind: str, address: str, metrics: str, folder: str, counter: str, rate: str) -> None:
    """Work until somebody ends this process."""
    work = step(kind, address, metrics, Path(folder))
    each = 1 / float(rate) if float(rate) else 0.0
    work()
    print("working", flush=True)
    due = time.monotonic()
    end = due + SECONDS_MAX
    while due < end:
        work()
        os.eventfd_write(int(counter), 1)
        # Behind its time it does not hurry: the rate is an upper limit.
        due = max(due + each, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main(*sys.argv[1:])
