"""The folder of prepared environments: whole or not at all, held while in use, whoever dies when."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tisfast.environments.build_errors import NoRoom, no_room, size_text
from tisfast.environments.cache import CacheEntry, EnvironmentCache
from tisfast.environments.environment_kind import stamp_of


def named(kind: str, number: int) -> str:
    """An environment's key, as they are made."""
    return f"{kind}-{number:032x}"


KEY, SECOND, HALF, REQUIRED = (
    named("archive", 1), named("archive", 2), named("archive", 4), named("requirements", 3),
)  # fmt: skip


@pytest.fixture
def cache(tmp_path):
    return EnvironmentCache(tmp_path / "cache")


def make(cache: EnvironmentCache, key: str = KEY) -> CacheEntry:
    home = cache.begin(key)
    (home / "bin").mkdir()
    (home / "bin/python").symlink_to(sys.executable)
    entry = CacheEntry(key, "archive", "/a.tar", "3.11.7", 5, 1, 0.5, (("A", "1"),))
    cache.keep(entry)
    return entry


def test_an_entry_is_found_when_it_is_whole(cache):
    assert cache.find(KEY) is None and list(cache.entries()) == []
    cache.begin(KEY)
    assert cache.find(KEY) is None
    entry = make(cache)
    assert cache.find(KEY) == entry and cache.interpreter(KEY) == cache.home(KEY) / "bin/python"
    assert [(key, found) for key, found, _ in cache.entries()] == [(KEY, entry)]


def test_what_an_attempt_left_is_gone_at_the_next(cache):
    (cache.begin(KEY) / "half").write_text("")
    assert list(cache.begin(KEY).iterdir()) == []


def test_an_environment_without_its_interpreter_is_not_whole(cache):
    make(cache)
    (cache.home(KEY) / "bin/python").unlink()
    (cache.home(KEY) / "bin/python").symlink_to("/nowhere/python")
    assert cache.find(KEY) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"key": 1, "variables": 3}', "{"])
def test_a_damaged_record_makes_it_not_whole(cache, text):
    make(cache)
    (cache.folder / KEY / "ready.json").write_text(text)
    assert cache.find(KEY) is None


def test_locks(cache):
    shared, another = cache.lock(KEY, exclusive=False), cache.lock(KEY, exclusive=False)
    assert shared is not None and another is not None
    assert cache.lock(KEY, exclusive=True) is None
    shared.release()
    shared.release()
    assert cache.lock(KEY, exclusive=True) is None
    another.release()
    alone = cache.lock(KEY, exclusive=True)
    assert alone is not None and cache.lock(KEY, exclusive=False) is None
    alone.release()


def test_a_lock_that_is_dropped_is_given_back(cache):
    lock = cache.lock(KEY, exclusive=False)
    assert lock is not None and cache.lock(KEY, exclusive=True) is None
    del lock
    assert cache.lock(KEY, exclusive=True) is not None


def test_a_lock_s_file_that_is_pruned_meanwhile_is_taken_anew(cache):
    """Else two would hold "the" lock, of two files."""
    first = cache.lock(KEY, exclusive=False)
    (cache.folder / ".locks" / KEY).unlink()
    second = cache.lock(KEY, exclusive=True)
    assert first is not None and second is not None and cache.lock(KEY, exclusive=False) is None


def test_a_process_that_dies_holds_nothing(cache):
    code = (
        "import sys; from pathlib import Path; from tisfast.environments.cache import EnvironmentCache\n"
        "cache = EnvironmentCache(Path(sys.argv[1]))\n"
        "lock = cache.lock(sys.argv[2], exclusive=True); cache.begin(sys.argv[2])\n"
        "print('locked', flush=True); sys.stdin.read()"
    )
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", code, str(cache.folder), KEY], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, cwd=root)  # fmt: skip
    with process:
        assert process.stdout.readline() == b"locked\n"
        assert cache.lock(KEY, exclusive=True) is None
        process.kill()
    assert cache.lock(KEY, exclusive=True) is not None and cache.find(KEY) is None


def test_digests_are_remembered_for_the_same_file_only(cache):
    path = Path("/some/archive.tar")
    assert cache.digest(path, (1, 2)) is None
    cache.remember(path, (1, 2), "abc")
    assert cache.digest(path, (1, 2)) == "abc" and cache.digest(path, (1, 3)) is None
    assert cache.digest(Path("/another.tar"), (1, 2)) is None
    next((cache.folder / ".known").iterdir()).write_text("{}")
    assert cache.digest(path, (1, 2)) is None


def test_a_digest_goes_with_a_file_that_is_linked_elsewhere(cache, tmp_path):
    """So come archives from a store: by another path at each start, and with another time of change."""
    kept, first, second = tmp_path / "kept", tmp_path / "1.tar", tmp_path / "2.tar"
    kept.write_text("x")
    first.hardlink_to(kept)
    cache.remember(first, stamp_of(first), "abc")
    first.unlink()
    second.hardlink_to(kept)
    assert cache.digest(second, stamp_of(second)) == "abc"
    other = tmp_path / "3.tar"
    shutil.copy(kept, other)
    assert cache.digest(other, stamp_of(other)) is None


def test_prune_removes_what_is_old_and_unused(cache, tmp_path):
    for key in (KEY, SECOND, REQUIRED):
        make(cache, key)
    cache.begin(HALF)
    for key in (KEY, SECOND):
        os.utime(cache.folder / key / "ready.json", (1, 1))
    archive = tmp_path / "a.tar"
    archive.write_text("")
    cache.remember(archive, (1,), "abc")
    cache.remember(tmp_path / "gone.tar", (1,), "def")
    used = cache.lock(KEY, exclusive=False)
    assert [each[0] for each in cache.prune(60, dry_run=True)] == [KEY, SECOND]
    found = {key: removed for key, _, removed in cache.prune(60)}
    assert found == {KEY: False, SECOND: True}
    assert cache.digest(archive, (1,)) == "abc" and cache.digest(tmp_path / "gone.tar", (1,)) is None
    cache.used(KEY)
    used.release()
    assert list(cache.prune(60)) == []
    assert {key: removed for key, _, removed in cache.prune(0)} == dict.fromkeys((KEY, HALF, REQUIRED), True)
    assert list(cache.entries()) == [] and os.listdir(cache.folder / ".locks") == []


def test_prune_removes_what_failed_and_killed_processes_left(cache):
    failed, used = cache.lock(KEY, exclusive=True), cache.lock(SECOND, exclusive=False)
    failed.release()
    (cache.folder / ".known").mkdir()
    (cache.folder / ".known/abc.json.123").write_text("{")
    list(cache.prune(60))
    assert os.listdir(cache.folder / ".locks") == [SECOND] and os.listdir(cache.folder / ".known") == []
    used.release()


@pytest.mark.parametrize("name", ["my-thesis", "archive-2024", f"requirements-{'0' * 31}", f"{KEY}-old", f"old-{KEY}"])
def test_prune_leaves_what_is_no_environment(cache, name):
    """The folder may hold other things: it is whichever --environment-cache-dir names."""
    make(cache)
    (cache.folder / name).mkdir()
    (cache.folder / name / "thesis.tex").write_text("x")
    assert [key for key, _, _ in cache.entries()] == [KEY]
    assert [key for key, _, _ in cache.prune(0)] == [KEY]
    assert (cache.folder / name / "thesis.tex").read_text() == "x" and not (cache.folder / KEY).exists()


def test_the_cache_is_its_owner_s(cache):
    cache.lock(KEY, exclusive=False)
    assert cache.folder.stat().st_mode & 0o777 == 0o700


def test_a_full_disk_says_which_and_what_to_do(tmp_path):
    why = f"no space is left for environments in {tmp_path}.*free; make room .tisfast env"
    with pytest.raises(NoRoom, match=why), no_room(tmp_path / "not/there"):
        raise OSError(28, "No space left on device")
    with pytest.raises(PermissionError), no_room(tmp_path):
        raise PermissionError(13, "no")


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "2 kB"), (1_500_000, "1.5 MB"), (820_000_000, "820 MB"), (10**13, "10000 GB")],
)
def test_sizes(size, text):
    assert size_text(size) == text
