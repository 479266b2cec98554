"""Polling: what the repositories have changed is applied, at its pace and without anybody waiting for anybody."""

import asyncio
import logging

import pytest

from tisfast import limits
from tisfast.config.settings import RepositorySettings
from tisfast.errors import Unavailable
from tisfast.models.polling import Polling, PollIntervals
from tisfast.repo.changes import Looker

PACE = PollIntervals(poll=15.0, settle=2.0)
WATCH = PollIntervals(limits.RELOAD_LOOK_SECONDS, limits.RELOAD_SETTLE_SECONDS, tries_again=False)


class Applied:
    """A lifecycle that remembers; `held` names end when `free` is set."""

    def __init__(self):
        self.names = []
        self.held = set()
        self.free = asyncio.Event()
        self.raises = None
        self.breaks = set()
        self.groups = lambda names: [[name] for name in names]

    async def together(self, names):
        return self.groups(sorted(names))

    async def apply(self, names):
        self.names += names
        if self.raises is not None:
            raise self.raises
        if self.held & set(names):
            await self.free.wait()
        return {name: Unavailable("it fails") for name in names if name in self.breaks}

    @property
    def failing(self):
        return self.breaks & set(self.names)


class Time:
    """The polling's clock: it goes on by what each step asks for."""

    def __init__(self, polling_of):
        self.now = 0.0
        self.polling = polling_of(lambda: self.now)

    async def step(self):
        seconds = await self.polling.step()
        self.now += seconds
        return seconds


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def write(repository, name, text="x"):
    path = repository / name / "1" / "model.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def polled(repository, talk, pace=PACE, **more):
    """Run `talk(time, applied)` with a polling that has begun."""

    async def run():
        applied = Applied()
        time = Time(lambda clock: Polling(applied, Looker([repository]), pace, clock, **more))
        await time.polling.begin()
        try:
            await talk(time, applied)
        finally:
            await time.polling.close()

    asyncio.run(run())


def test_looks_are_a_poll_apart_and_a_settle_while_something_moves(repository):
    write(repository, "a")

    async def talk(time, applied):
        time.now = 15.0
        assert await time.step() == 15.0
        write(repository, "a", "other")
        assert await time.step() == 2.0
        assert await time.step() == 13.0
        await time.polling.applied()
        assert applied.names == ["a"]
        assert await time.step() == 15.0

    polled(repository, talk)


def test_a_save_is_seen_within_half_a_second(repository):
    write(repository, "a")

    async def talk(time, applied):
        await time.step()
        began = time.now
        write(repository, "a", "other")
        while not applied.names:
            await time.step()
            await time.polling.applied()
        assert time.now - began <= 0.5

    polled(repository, talk, WATCH)


@pytest.mark.parametrize(
    ("given", "pace"),
    [
        ({"control_mode": "poll"}, PollIntervals(15.0, limits.POLL_SETTLE_SECONDS_MAX)),
        ({"control_mode": "poll", "poll_seconds": 0.5}, PollIntervals(0.5, 0.5)),
        ({"control_mode": "poll", "poll_seconds": 0}, None),
        ({"control_mode": "none"}, None),
        ({"control_mode": "explicit"}, None),
        ({"watch": True}, WATCH),
        ({"watch": True, "control_mode": "poll"}, WATCH),
    ],
)
def test_the_pace_is_that_of_the_settings(given, pace):
    assert PollIntervals.of(RepositorySettings(("models",), **given)) == pace


def test_a_model_that_takes_long_holds_up_no_other(repository):
    async def talk(time, applied):
        applied.held = {"slow"}
        write(repository, "slow")
        await time.step()
        await time.step()
        write(repository, "quick")
        time.now = 100.0
        await time.step()
        await time.step()
        while len(applied.names) < 2:
            await asyncio.sleep(0)
        assert applied.names == ["slow", "quick"]

    polled(repository, talk)


def test_what_changes_while_it_is_applied_is_applied_again_afterwards(repository):
    async def talk(time, applied):
        applied.held = {"a"}
        write(repository, "a")
        await time.step()
        await time.step()
        write(repository, "a", "other")
        time.now = 100.0
        for _ in range(3):
            await time.step()
        assert applied.names == ["a"]
        applied.free.set()
        await time.polling.applied()
        await time.step()
        await time.polling.applied()
        assert applied.names == ["a", "a"]

    polled(repository, talk)


def test_what_changes_together_is_applied_together(repository):
    """An ensemble and its parts."""
    calls = []

    async def talk(time, applied):
        async def apply(names):
            calls.append(names)
            return {}

        applied.apply = apply
        applied.groups = lambda names: [["a", "b"], ["c"]]
        for name in ("b", "a", "c"):
            write(repository, name)
        await time.step()
        await time.step()
        await time.polling.applied()
        assert calls == [["a", "b"], ["c"]]

    polled(repository, talk)


def said(caplog, text):
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


def test_the_log_says_what_has_changed(repository, caplog):
    write(repository, "a")

    async def talk(time, applied):
        write(repository, "a", "other")
        time.now = 15.0
        write(repository, "b")
        applied.breaks = {"b"}
        await time.step()
        await time.step()
        await time.polling.applied()

    with caplog.at_level(logging.INFO):
        polled(repository, talk)
    assert said(caplog, "model 'a' has changed: 1/model.py changed")
    assert said(caplog, "model 'a' is up to date after 0.00 s")
    assert not said(caplog, "model 'b' is up to date")


def test_a_lost_repository_is_said_once_and_so_is_its_return(repository, caplog):
    write(repository, "a")

    async def talk(time, applied):
        repository.rename(repository.parent / "away")
        for _ in range(3):
            time.now += 15
            await time.step()
        (repository.parent / "away").rename(repository)
        for _ in range(3):
            time.now += 15
            await time.step()
        assert applied.names == []

    with caplog.at_level(logging.INFO):
        polled(repository, talk)
    assert len(said(caplog, f"failed to poll model repository '{repository}'")) == 1
    assert len(said(caplog, f"model repository '{repository}' is there again")) == 1


def test_repositories_that_cannot_be_brought_up_to_date_are_looked_at_as_they_are(repository, caplog):
    async def before():
        raise Unavailable("no network")

    async def talk(time, applied):
        write(repository, "a")
        for _ in range(4):
            time.now += 15
            await time.step()
        await time.polling.applied()
        assert applied.names == ["a"]

    polled(repository, talk, before=before)
    assert len(said(caplog, "no network")) == 1


def test_models_that_cannot_be_brought_up_to_date_are_said_once_for_each_reason(repository, caplog):
    reasons = iter(["gone", "gone", "gone", "forbidden", "forbidden"])

    async def before():
        return {"a": Unavailable(next(reasons))}

    async def talk(time, applied):
        for _ in range(4):
            time.now += 15
            await time.step()

    polled(repository, talk, before=before)
    assert len(said(caplog, "model 'a' cannot be brought up to date, and stays as it is: gone")) == 1
    assert len(said(caplog, "model 'a' cannot be brought up to date, and stays as it is: forbidden")) == 1


def test_a_bug_ends_no_polling(repository, caplog):
    async def talk(time, applied):
        applied.raises = ValueError("a bug")
        write(repository, "a")
        await time.step()
        await time.step()
        await time.polling.applied()
        applied.raises = None
        time.now = 100.0
        write(repository, "b")
        await time.step()
        await time.step()
        await time.polling.applied()
        assert sorted(applied.names) == ["a", "a", "b"]  # what could not be tried is not forgotten

    polled(repository, talk)
    assert len(said(caplog, "changes of a could not be applied")) == 1


async def looks(time, count):
    """As many looks at everything, each of which is applied."""
    for _ in range(count):
        time.now += 15
        await time.step()
        await time.polling.applied()


def test_what_failed_is_tried_again_less_and_less_often(repository, caplog):
    """As Triton does, which tries at each poll."""

    async def talk(time, applied):
        write(repository, "a")
        applied.breaks = {"a"}
        await time.step()
        await time.step()
        await time.polling.applied()
        attempts = []
        for _ in range(100):
            before = len(applied.names)
            await looks(time, 1)
            attempts.append(len(applied.names) - before)
        assert [number for number, count in enumerate(attempts) if count] == [0, 2, 6, 14, 30, 62]
        await looks(time, 200)
        most = limits.POLL_RETRY_SECONDS_MAX / PACE.poll
        assert len(applied.names) == 1 + 6 + (300 - 62 - 1) // most
        applied.breaks = set()
        count = len(applied.names)
        await looks(time, 100)
        assert len(applied.names) == count

    polled(repository, talk)
    assert said(caplog, "") == []  # at the level of warnings: who loads has told


def test_a_change_makes_its_attempts_begin_anew(repository):
    async def talk(time, applied):
        write(repository, "a")
        applied.breaks = {"a"}
        await looks(time, 2)
        await looks(time, 4)
        assert len(applied.names) == 3
        write(repository, "a", "other")
        await looks(time, 2)
        assert len(applied.names) == 4
        await looks(time, 1)
        assert len(applied.names) == 5

    polled(repository, talk)


def test_nothing_is_tried_again_while_it_is_written_or_its_repository_is_away(repository):
    async def talk(time, applied):
        write(repository, "a")
        applied.breaks = {"a"}
        time.now += 15
        await time.step()
        await time.step()
        await time.polling.applied()
        for number in range(5):
            write(repository, "a", "x" * number)
            await looks(time, 1)
        repository.rename(repository.parent / "away")
        await looks(time, 5)
        assert applied.names == ["a"]

    polled(repository, talk)


def test_a_developers_server_waits_for_the_next_save(repository):
    async def run():
        applied, now = Applied(), 0.0
        polling = Polling(applied, Looker([repository]), WATCH, lambda: now)
        await polling.begin()
        write(repository, "a")
        applied.breaks = {"a"}
        for _ in range(9):
            now += 1
            await polling.step()
            await polling.applied()
        assert applied.names == ["a"]

    asyncio.run(run())


def test_it_goes_by_itself_until_it_is_closed(repository):
    """On the real clock, at a pace of its own."""

    async def run():
        applied, seen = Applied(), asyncio.Event()

        async def apply(names):
            applied.names += names
            seen.set()
            return {}

        applied.apply = apply
        loop = asyncio.get_running_loop()
        polling = Polling(applied, Looker([repository]), PollIntervals(0.01, 0.01), loop.time)
        await polling.begin()
        polling.start()
        write(repository, "a")
        await asyncio.wait_for(seen.wait(), 60)
        await polling.close()
        assert applied.names == ["a"]

    asyncio.run(run())


def test_who_keeps_the_index_is_told_what_there_is(repository):
    told = []

    async def talk(time, applied):
        write(repository, "b")
        for _ in range(3):
            time.now += 15
            await time.step()
        (repository / "a").rename(repository.parent / "a")
        for _ in range(3):
            time.now += 15
            await time.step()
        assert told[0] == {"a", "b"}
        assert told[-1] == {"b"}

    write(repository, "a")
    polled(repository, talk, tell=told.append)


def test_a_store_that_takes_long_holds_up_nobody_else(repository):
    """Local models, and those that are there already, are applied while it is waited for; and nobody asks it twice."""
    write(repository, "a")
    asked = []

    async def run():
        free = asyncio.Event()

        async def before():
            asked.append(1)
            await free.wait()
            return {}

        applied, now = Applied(), [0.0]
        polling = Polling(applied, Looker([repository]), PollIntervals(0.01, 0.01), lambda: now[0], before)
        await polling.begin()
        write(repository, "a", "other")
        for _ in range(3):
            now[0] += 1.0
            await polling.step()
        await polling.applied()
        assert applied.names == ["a"] and len(asked) == 1
        free.set()
        await asyncio.sleep(0)
        for _ in range(2):
            now[0] += 1.0
            await polling.step()
        assert len(asked) == 2
        await polling.close()

    asyncio.run(run())


def test_the_end_does_not_wait_for_a_store(repository):
    ended = []

    async def run():
        async def before():
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(1)

        polling = Polling(Applied(), Looker([repository]), PollIntervals(0.01, 0.01), lambda: 0.0, before)
        await polling.begin()
        await polling.close()

    asyncio.run(run())
    assert ended == [1]
