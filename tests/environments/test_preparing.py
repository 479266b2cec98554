"""Environments of a running server: prepared once, beside the loop, and by nobody when nobody waits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path

import psutil
import pytest

from tests.loops import fresh_loop
from tests.waiting import Gate, has_ended, until
from tisfast.config.environments import EnvironmentSettings
from tisfast.environments.build_errors import EnvironmentFailed
from tisfast.environments.cache import EnvironmentCache
from tisfast.environments.environment import Environment
from tisfast.environments.environment_kind import recognise
from tisfast.environments.preparing import Environments
from tisfast.errors import ConfigError

SECONDS_MAX = 60
# The environment's interpreter waits until the test lets it go on; what it is called with first is conda-unpack.
WAIT = "open({began!r}, 'w').close()\n{wait}\n"


@pytest.fixture
def run():
    with fresh_loop() as loop:
        yield lambda coroutine: loop.run_until_complete(asyncio.wait_for(coroutine, SECONDS_MAX))


@pytest.fixture
def cache(tmp_path):
    return EnvironmentCache(tmp_path / "cache")


@pytest.fixture
def environments(cache, run):
    made = Environments(EnvironmentSettings(str(cache.folder)))
    yield made
    run(made.close())


@pytest.fixture
def slow(pack, tmp_path):
    """An archive whose conda-unpack waits for `go`; it makes `began`."""
    began, go = tmp_path / "began", Gate(tmp_path / "go")
    path = pack({"bin/conda-unpack": WAIT.format(began=str(began), wait=go.wait)}, name="slow.tar.gz")
    return recognise(path, ""), began, go


def locked(cache: EnvironmentCache, key: str) -> bool:
    lock = cache.lock(key, exclusive=True)
    if lock is not None:
        lock.release()
    return lock is None


def written_to(fifo: Path) -> int | None:
    """Opened to be written to; None while nobody reads it."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def key_of(path: str) -> str:
    return Path(path).parents[2].name


def test_it_is_prepared_and_held(environments, cache, run, pack):
    environment = recognise(pack(), "")
    lease = run(environments.prepare(environment, "m"))
    path = lease.interpreter.path
    assert path == str(cache.home(key_of(path)) / "bin/python") and os.access(path, os.X_OK)
    assert lease.interpreter.environment == environment
    assert dict(lease.interpreter.variables)["PATH"].startswith(str(cache.home(key_of(path)) / "bin") + ":")
    assert locked(cache, key_of(path))
    lease.release()
    lease.release()
    assert not locked(cache, key_of(path))


def test_many_models_wait_for_one_preparation(environments, run, slow, caplog):
    environment, began, go = slow
    caplog.set_level("INFO")

    async def all_of_them():
        tasks = [asyncio.ensure_future(environments.prepare(environment, f"m{i}")) for i in range(5)]
        await until(began.exists)
        assert not any(task.done() for task in tasks)
        go.open()
        return await asyncio.gather(*tasks)

    leases = run(all_of_them())
    assert len({lease.interpreter.path for lease in leases}) == 1
    text = [record.getMessage() for record in caplog.records]
    assert len([line for line in text if "reading" in line]) == 1
    assert len([line for line in text if "waits for packed environment" in line]) == 4
    assert any(line.startswith("packed environment") and "is ready after" in line for line in text)


def test_the_loop_goes_on_meanwhile_and_other_environments_too(environments, run, slow, pack):
    environment, began, go = slow

    async def beside():
        task = asyncio.ensure_future(environments.prepare(environment, "slow"))
        await until(began.exists)
        await environments.prepare(recognise(pack(), ""), "quick")
        assert not task.done()
        go.open()
        await task

    run(beside())


def test_when_nobody_waits_any_more_the_work_ends_with_all_it_started(environments, cache, run, slow):
    environment, began, _ = slow

    async def give_up():
        before = set(psutil.Process().children(recursive=True))  # of other tests

        def started():
            return set(psutil.Process().children(recursive=True)) - before

        one, other = (asyncio.ensure_future(environments.prepare(environment, name)) for name in "ab")
        await until(began.exists)
        one.cancel()
        await asyncio.wait({one})
        below = started()
        assert len(below) >= 2
        other.cancel()
        await asyncio.wait({other})
        again = asyncio.ensure_future(environments.prepare(environment, "c"))
        await until(lambda: len(started() - below) >= 2)
        assert not again.done()  # what was given up is not what it waits for
        again.cancel()
        await asyncio.wait({again})
        await environments.close()
        await until(lambda: all(has_ended(each) for each in below))

    run(give_up())
    assert [entry for _, entry, _ in cache.entries()] == [None]  # not whole


def test_killed_in_the_middle_it_is_mended_by_the_next(environments, cache, run, slow):
    environment, began, go = slow

    async def killed():
        before = set(psutil.Process().children(recursive=True))  # multiprocessing's resource tracker lives on
        task = asyncio.ensure_future(environments.prepare(environment, "m"))
        await until(began.exists)
        for child in set(psutil.Process().children(recursive=True)) - before:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended with its parent
                child.kill()
        with pytest.raises(EnvironmentFailed, match="ended before it was done"):
            await task

    run(killed())
    assert [entry for _, entry, _ in cache.entries()] == [None]
    go.open()
    assert run(environments.prepare(environment, "m")).interpreter.path


def test_two_servers_prepare_one_environment_once(environments, cache, run, slow, caplog):
    environment, began, go = slow
    caplog.set_level("INFO")
    other = Environments(EnvironmentSettings(str(cache.folder)))

    async def both():
        first = asyncio.ensure_future(environments.prepare(environment, "here"))
        await until(began.exists)
        second = asyncio.ensure_future(other.prepare(environment, "there"))
        await until(lambda: any("waiting for another process" in record.getMessage() for record in caplog.records))
        go.open()
        leases = await asyncio.gather(first, second)
        await other.close()
        return leases

    one, two = run(both())
    assert one.interpreter == two.interpreter
    one.release()
    assert locked(cache, key_of(two.interpreter.path))


def test_a_copy_of_an_archive_that_is_in_use_is_the_same_environment(environments, run, pack, tmp_path):
    path = pack()
    lease = run(environments.prepare(recognise(path, ""), "m"))
    copy = shutil.copy(path, tmp_path / "copy.tar.gz")
    again = run(environments.prepare(recognise(copy, ""), "n"))
    os.utime(path)
    touched = run(environments.prepare(recognise(path, ""), "m"))
    assert lease.interpreter.path == again.interpreter.path == touched.interpreter.path


def test_an_environment_that_is_damaged_while_it_is_used_is_told(environments, cache, run, pack, tmp_path):
    """Nobody waits for the end of who uses it."""
    path = pack()
    lease = run(environments.prepare(recognise(path, ""), "m"))
    (cache.folder / key_of(lease.interpreter.path) / "ready.json").unlink()
    with pytest.raises(EnvironmentFailed, match="lies damaged in .*, and a running server uses it; end that server"):
        run(environments.prepare(recognise(path, ""), "n"))


def test_a_failure_is_told_to_all_who_wait_and_tried_anew(environments, run, pack):
    environment = recognise(pack({"bin/conda-unpack": "raise SystemExit('no luck')"}), "")

    async def both():
        return await asyncio.gather(*(environments.prepare(environment, name) for name in "ab"), return_exceptions=True)

    for _ in range(2):
        errors = run(both())
        assert all(isinstance(error, EnvironmentFailed) and "no luck" in str(error) for error in errors)


def test_it_is_found_again_and_prepared_anew_when_it_was_pruned(environments, cache, run, pack):
    environment = recognise(pack(), "")
    lease = run(environments.prepare(environment, "m"))
    ready = cache.folder / key_of(lease.interpreter.path) / "ready.json"
    made = ready.stat()
    again = run(environments.prepare(environment, "n"))
    assert ready.stat() == made and again.interpreter == lease.interpreter  # nothing was unpacked
    assert [removed for _, _, removed in cache.prune(0)] == [False]
    lease.release()
    again.release()
    assert [removed for _, _, removed in cache.prune(0)] == [True]
    assert run(environments.prepare(environment, "m")).interpreter == lease.interpreter


def test_who_stops_waiting_while_it_is_looked_up_holds_nothing(environments, cache, run, pack, tmp_path):
    """The thread that looks it up ends by itself, and takes the lock for nobody."""
    environment = recognise(pack(), "")
    lease = run(environments.prepare(environment, "m"))
    key = key_of(lease.interpreter.path)
    lease.release()
    ready, kept = cache.folder / key / "ready.json", tmp_path / "ready.json"
    ready.rename(kept)
    os.mkfifo(ready)  # the lock is taken when it is read, which waits for a writer

    async def give_up():
        descriptors = []
        task = asyncio.ensure_future(environments.prepare(environment, "m"))
        await until(lambda: (descriptors.append(written_to(ready)) or descriptors[-1]) is not None)
        task.cancel()
        await asyncio.wait({task})
        assert locked(cache, key)
        with open(descriptors[-1], "wb") as writer:
            kept.replace(ready)
            writer.write(ready.read_bytes())
        await until(lambda: not locked(cache, key))

    run(give_up())
    assert [removed for _, _, removed in cache.prune(0)] == [True]


def test_what_needs_no_preparing_is_used_where_it_is(environments, cache, run, tmp_path):
    import venv

    venv.create(tmp_path / "env", symlinks=True, with_pip=False)
    for path, kind in ((tmp_path / "env", "folder"), (tmp_path / "env/bin/python3", "interpreter")):
        lease = run(environments.prepare(recognise(path, ""), "m"))
        variables = dict(lease.interpreter.variables)
        assert lease.interpreter.environment.kind == kind and variables["VIRTUAL_ENV"] == str(tmp_path / "env")
        assert "LD_LIBRARY_PATH" not in variables
        lease.release()
    assert not cache.folder.exists()
    plain = tmp_path / "python"
    plain.symlink_to("/bin/sh")
    assert run(environments.prepare(recognise(plain, ""), "m")).interpreter.variables == ()


def test_a_cache_that_cannot_be(run, pack, tmp_path):
    environment = recognise(pack(), "")
    with pytest.raises(ConfigError, match="--environment-cache-dir, XDG_CACHE_HOME and HOME are empty; name one"):
        run(Environments(EnvironmentSettings()).prepare(environment, "m"))
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFailed, match="Not a directory"):
        run(Environments(EnvironmentSettings(str(tmp_path / "file" / "cache"))).prepare(environment, "m"))


def test_an_archive_that_went_away_is_told(environments, run, tmp_path):
    environment = Environment("archive", tmp_path / "gone.zip", stamp=(1,))
    with pytest.raises(EnvironmentFailed, match="packed environment .*gone.zip cannot be looked up in .*No such file"):
        run(environments.prepare(environment, "m"))
