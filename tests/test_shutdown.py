import asyncio

import pytest

from tisfast.shutdown import Countdown, drain, first


class Front:
    held = "HTTP service connections"

    def __init__(self, connections: int = 0, *, idle: int = 0):
        self.connections = connections + idle
        self._idle = idle
        self.draining = False
        self.refuses = ""
        self.closed = asyncio.Event()

    def finish_sequences(self, message: str) -> None:
        assert not self.draining
        self.refuses = message

    def begin_drain(self) -> None:
        self.draining = True
        self.lose(self._idle)

    def lose(self, connections: int) -> None:
        self.connections -= connections
        if not self.connections:
            self.closed.set()


class Models:
    def __init__(self, requests: int = 0, *, open_sequences: int = 0):
        self.requests = requests
        self.open_sequences = open_sequences
        self.live = 1
        self.stopped_within: float | None = None

    def sequences(self):
        return self.open_sequences

    def inflight(self):
        return [("m version 1", self.requests)] if self.requests else []

    async def stop(self, seconds: float) -> None:
        self.stopped_within = seconds


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def countdown(seconds: float) -> Countdown:
    import time

    return Countdown(seconds, time.monotonic)


def test_an_idle_server_ends_at_once():
    front, models, left = Front(idle=5), Models(), countdown(3600)
    assert run(drain([front], models, left))
    assert front.draining and models.stopped_within is not None and left.left > 3000


def test_sequences_in_progress_keep_their_connections():
    front, models = Front(1), Models(open_sequences=1)

    async def scenario() -> bool:
        task = asyncio.ensure_future(drain([front], models, countdown(30)))
        await asyncio.sleep(0)
        assert front.refuses.startswith("Server is stopping") and not front.draining
        models.open_sequences = 0
        while not front.draining:
            await asyncio.sleep(0)
        front.lose(1)
        return await task

    assert run(scenario())


def test_sequences_that_do_not_end_are_not_waited_for_beyond_the_countdown():
    front, models = Front(), Models(open_sequences=1)
    assert not run(drain([front], models, countdown(0.1)))
    assert front.draining


def test_open_requests_are_waited_for():
    front, models = Front(1), Models(1)

    async def scenario() -> bool:
        task = asyncio.ensure_future(drain([front], models, countdown(30)))
        await asyncio.sleep(0)
        assert not task.done()
        front.lose(1)
        models.requests = 0
        return await task

    assert run(scenario())


@pytest.mark.parametrize(("front", "models"), [(Front(1), Models()), (Front(), Models(1))])
def test_the_countdown_is_shared_and_final(front, models):
    left = countdown(0.1)
    assert not run(drain([front], models, left))
    assert models.stopped_within == 0 and left.left == 0


class Finalizing(Models):
    """Their end takes all the time that it has."""

    async def stop(self, seconds: float) -> None:
        await super().stop(seconds)
        await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=seconds)


@pytest.mark.parametrize(
    ("front", "models", "said"),
    [
        (Front(), Models(), []),
        (Front(1), Models(), ["before the models' end"]),
        (Front(), Models(1), ["before the models' end"]),
        (Front(), Finalizing(), ["behind it"]),
        (Front(), Finalizing(1), ["before the models' end"]),
    ],
)
def test_what_is_late_is_said_once(front, models, said):
    told = []

    def say_late() -> None:
        told.append("before the models' end" if models.stopped_within is None else "behind it")

    assert run(drain([front], models, countdown(0.1 if said else 3600), say_late)) == (not said)
    assert told == said


def test_what_is_waited_for_is_said_once_a_second(caplog):
    caplog.set_level("INFO", "tisfast")
    run(drain([Front(2)], Models(), countdown(0.2)))
    assert [line for line in caplog.messages if "HTTP service connections" in line] == [
        "Timeout 0: Found 2 HTTP service connections",
        "Timeout 0: Found 2 HTTP service connections",
    ]


def test_first_gives_up_when_it_is_told_to_stop():
    async def scenario() -> tuple[bool, bool]:
        stop = asyncio.Event()
        done = await first(asyncio.sleep(0), stop)
        asyncio.get_running_loop().call_soon(stop.set)
        return done, await first(asyncio.Event().wait(), stop)

    assert run(scenario()) == (True, False)
