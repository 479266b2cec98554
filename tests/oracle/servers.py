"""The real Triton and tisfast, on good models and on broken ones."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from perf.oracle.server import Kind, Server, StartFailed
from tests.oracle import grpc_exchange
from tests.oracle.cases import regions
from tests.oracle.cases.grpc_calls import Call
from tests.oracle.cases.grpc_regions import CLEAN, STATUS
from tests.oracle.cases.table import Case
from tests.oracle.exchange import Answer, converse

HERE: Final = Path(__file__).parent
EXAMPLES: Final = HERE.parents[1] / "examples/models"
DEATH_SECONDS: Final = 2.0  # between the last word of a crashing server and its end
ASKED: Final[dict[Kind, int]] = {"triton": 2, "tisfast": 1}
"""How many times a server is asked what it dies of: the real Triton dies now and then of what it answers else."""
FORGET_SECONDS: Final = 60.0  # from the answer to a request until Triton lets go of the regions that it used


class Servers:
    """The servers of one kind: one on good models, one on broken ones.  A server that dies is started again."""

    def __init__(self, kind: Kind, *flags: str) -> None:
        """flags: beside those that every server here gets."""
        self.kind = kind
        self._more = flags
        self._running: dict[str, Server] = {}
        self._failures: dict[str, StartFailed] = {}

    def get(self, place: str = "models") -> Server:
        """The server for a place, started when needed."""
        name = "broken" if place == "broken" else "models"
        if name in self._failures:  # it will not start for the next case either
            raise self._failures[name]
        if name not in self._running:
            try:
                self._running[name] = self._start(name)
            except StartFailed as e:
                self._failures[name] = e
                raise
        return self._running[name]

    def _start(self, name: str) -> Server:
        if name == "broken":
            flags = ["--exit-on-error=false"]
            return Server(self.kind, [HERE / "broken_models"], flags, "/v2/health/live").__enter__()
        flags = ["--allow-client-shm=true"] if self.kind == "tisfast" else []  # 2.51 has no such gate
        return Server(self.kind, [EXAMPLES, HERE / "models"], [*flags, *self._more]).__enter__()

    def ask(self, case: Case) -> list[Answer]:
        """Have the conversation of a case; every answer is `crashed` when the server died of it (ASKED)."""
        for _ in range(ASKED[self.kind]):
            server = self.get(case.place)
            answers = converse(
                server.metrics if case.place == "metrics" else server.http, case.requests, case.pipelined
            )
            if all(answer.status for answer in answers) or not server.dies_within(DEATH_SECONDS):
                if case in regions.CASES:
                    self.forget_regions()
                return answers
            self.stop()
        return [Answer(0, {}, b"crashed") for _ in case.requests]

    def call(self, call: Call) -> grpc_exchange.Answer:
        """Make a gRPC call; the answer's code is `crashed` when the server died of it (ASKED)."""
        for _ in range(ASKED[self.kind]):
            server = self.get()
            answer = grpc_exchange.ask(server.grpc, call)
            if answer.code != "UNAVAILABLE" or not server.dies_within(DEATH_SECONDS):
                return answer
            self.stop()
        return grpc_exchange.Answer("crashed", "", ())

    def forget_regions(self) -> None:
        """Until nothing is registered: Triton keeps a region while a request uses it, which ends behind its answer."""
        deadline = time.monotonic() + FORGET_SECONDS
        while self.call(CLEAN).code != "crashed" and (left := self.call(STATUS)).messages != ({},):
            assert time.monotonic() < deadline, f"{self.kind} still has regions: {left}"

    def stop(self) -> None:
        """End both."""
        while self._running:
            self._running.popitem()[1].stop()


@contextlib.contextmanager
def pair(*flags: str) -> Iterator[tuple[Servers, Servers]]:
    """Both servers with flags of a test module's own."""
    servers = (Servers("triton", *flags), Servers("tisfast", *flags))
    yield servers
    for each in servers:
        each.stop()
