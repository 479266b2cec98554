"""Kill a worker again and again under load: every request is answered, the worker is back in time, nothing grows.

    python -m perf.macro.kills                 # 1000 kills
    python -m perf.macro.kills --kills 20

Answers under load may be 200 or a 503 that names the model; anything else, or silence, is a failure.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from perf.compare import complaining
from perf.macro.growth import Held, held, report
from perf.oracle.server import Server

MODEL: Final = "whoami"
MODELS: Final = Path(__file__).resolve().parent / "models"
TARGET: Final = f"/v2/models/{MODEL}/infer"
BODY: Final = json.dumps({"inputs": [{"name": "ANY", "datatype": "FP32", "shape": [1], "data": [1]}]})
BACK_SECONDS_MAX: Final = 2.0
GIVE_UP_SECONDS: Final = 60.0
"""A scenario of a thousand kills must end even when the worker does not come back."""
ANSWER_SECONDS_MAX: Final = 40.0
POLL_SECONDS: Final = 0.002
CONNECTIONS: Final = 4
WARM_KILLS: Final = 3
CALM_SECONDS: Final = 12.0


class NotBack(RuntimeError):
    """The model did not serve again."""


class Load(threading.Thread):
    """One connection that sends requests without pause and counts what comes back."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.answers: Counter[int] = Counter()
        self.wrong: list[str] = []
        self._port, self._end = port, threading.Event()

    def run(self) -> None:
        """Until `finish`."""
        connection = http.client.HTTPConnection("localhost", self._port, timeout=ANSWER_SECONDS_MAX)
        while not self._end.is_set():
            try:
                connection.request("POST", TARGET, BODY)
                answer = connection.getresponse()
                self._count(answer.status, answer.read())
            except (OSError, http.client.HTTPException) as e:
                self.wrong.append(f"no answer: {e!r}")
                connection.close()
        connection.close()

    def _count(self, status: int, text: bytes) -> None:
        self.answers[status] += 1
        if status != http.HTTPStatus.OK and not (status == http.HTTPStatus.SERVICE_UNAVAILABLE and MODEL in str(text)):
            self.wrong.append(f"{status} {text[:200]!r}")

    def finish(self) -> None:
        """Stop after the request in flight."""
        self._end.set()
        self.join(ANSWER_SECONDS_MAX)


class Kill(NamedTuple):
    """One death: seconds until another process answered, and whether the model was seen as not ready in between."""

    back_seconds: float
    unready_seen: bool


def worker(server: Server) -> int | None:
    """The process that serves the model now; None while there is none."""
    connection = http.client.HTTPConnection("localhost", server.http, timeout=ANSWER_SECONDS_MAX)
    try:
        connection.request("POST", TARGET, BODY)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    return int(json.loads(text)["outputs"][0]["data"][0]) if answer.status == http.HTTPStatus.OK else None


class Watch(threading.Thread):
    """Asks for readiness all the time, apart from the requests: those may wait for the restart."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.unready_seen = False
        self._server, self._end = server, threading.Event()

    def run(self) -> None:
        """Until `finish`."""
        while not self._end.is_set():
            if self._server.get(f"/v2/models/{MODEL}/ready") != http.HTTPStatus.OK:
                self.unready_seen = True
            self._end.wait(POLL_SECONDS)

    def finish(self) -> bool:
        """Whether the model was seen as not ready."""
        self._end.set()
        self.join(ANSWER_SECONDS_MAX)
        return self.unready_seen


def kill_once(server: Server) -> Kill:
    """SIGKILL the worker, and wait until another process has answered; the clock is read after that answer."""
    pid = worker(server)
    if pid is None:
        raise NotBack(f"{MODEL} does not serve\n{server.log()}")
    watch = Watch(server)
    watch.start()
    try:
        os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        while worker(server) in {None, pid}:
            if time.monotonic() - began > GIVE_UP_SECONDS:
                raise NotBack(f"{MODEL} was not back {GIVE_UP_SECONDS} s after the death of {pid}\n{server.log()}")
            time.sleep(POLL_SECONDS)
        return Kill(time.monotonic() - began, watch.unready_seen)
    finally:
        watch.finish()


def _kills(options: argparse.Namespace) -> int:
    with Server(options.server, [MODELS]) as server:
        try:
            _under_load(server, WARM_KILLS)
            warm = _at_rest(server)
            kills, loads = _under_load(server, options.kills)
        except NotBack as e:
            print(f"FAILED: {e}", file=sys.stderr)
            return 1
        return _verdict(kills, loads) | report(warm, _at_rest(server))


def _at_rest(server: Server) -> Held:
    """What is held without a client: both moments must be alike, or open connections hide what grew."""
    time.sleep(CALM_SECONDS)
    return held(server)


def _under_load(server: Server, count: int) -> tuple[list[Kill], list[Load]]:
    loads = [Load(server.http) for _ in range(CONNECTIONS)]
    for load in loads:
        load.start()
    try:
        return _kill_all(server, count), loads
    finally:
        for load in loads:
            load.finish()


def _kill_all(server: Server, count: int) -> list[Kill]:
    kills: list[Kill] = []
    for n in range(1, count + 1):
        kills.append(kill_once(server))
        if n % 50 == 0:
            print(f"{n} kills, slowest {max(k.back_seconds for k in kills):.2f} s, {held(server)}", flush=True)
    return kills


def _verdict(kills: list[Kill], loads: list[Load]) -> int:
    answers = sum((load.answers for load in loads), Counter[int]())
    wrong = [text for load in loads for text in load.wrong]
    times = sorted(k.back_seconds for k in kills)
    slow = sum(t > BACK_SECONDS_MAX for t in times)
    seen = sum(k.unready_seen for k in kills)
    print(f"answers by status: {dict(answers)}; requests without a proper answer: {len(wrong)}")
    print(f"back after {times[len(times) // 2]:.3f} s in the middle, {times[-1]:.3f} s at most; {slow} too slow")
    print(f"{seen} of {len(kills)} deaths were seen as not ready")
    for text in wrong[:5]:
        print(f"WRONG: {text}")
    return 1 if wrong or slow else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--server", choices=("tisfast", "triton"), default="tisfast")
    return parser.parse_args()


if __name__ == "__main__":
    _chosen = _options()
    sys.exit(complaining(lambda: _kills(_chosen)))
