"""Whatever is done to repositories: what is applied is what has changed and rests, and each change is applied once.

The repositories are folders of the disk; the clock and the lifecycle are the test's own.
"""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from hypothesis.strategies import booleans, integers, sampled_from, sets

from tisfast.models.polling import Polling, PollIntervals
from tisfast.repo.changes import Looker

NAMES = ("a", "b", "c")
PACE = PollIntervals(poll=15.0, settle=2.0)
STEPS_MAX = 12


def state(folder: Path):
    """What lies in a model folder, told independently of the code under test; None when there is none."""
    if not folder.is_dir():
        return None
    found = {}
    for place, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(place, name)
            stat = path.stat()
            facts = () if path.is_dir() else (stat.st_size, stat.st_mtime_ns, stat.st_ino)
            if not name.endswith("~"):
                found[str(path.relative_to(folder))] = facts
    return found


class Disk:
    """Two repositories, and who is in the middle of writing what."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.repositories = [root / "one", root / "two"]
        self.away: set[Path] = set()
        self.writing: dict[Path, Path] = {}  # model folder -> the file that is being written
        self.ticks = 0
        for repository in self.repositories:
            repository.mkdir()

    def folder(self, name: str, second: bool) -> Path:
        return self.repositories[second] / name

    def reachable(self, folder: Path) -> bool:
        return folder.parent not in self.away

    def put(self, path: Path, text: str) -> None:
        """Write a file with a time that no earlier write had."""
        self.ticks += 1
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, ns=(self.ticks, self.ticks))

    def go_on_writing(self) -> None:
        """Somebody who copies writes something between any two looks."""
        for path in self.writing.values():
            self.put(path, "x" * self.ticks)

    def now(self, name: str):
        """What lies there in truth, wherever that is at the moment."""
        places = [self.hidden(each) if each in self.away else each for each in self.repositories]
        return tuple(state(place / name) for place in places)

    def found(self, name: str, before):
        """What whoever loads it finds there; of a repository that is away, what was found there before."""
        pairs = zip(self.repositories, before, strict=True)
        return tuple(earlier if each in self.away else state(each / name) for each, earlier in pairs)

    def hidden(self, repository: Path) -> Path:
        return self.root / f"{repository.name}.away"


class PollingMachine(RuleBasedStateMachine):
    """The rules are what people and programs do to repositories."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.scratch = tempfile.TemporaryDirectory()
        self.disk = Disk(Path(self.scratch.name))
        self.time = 0.0
        self.applied: dict[str, object] = {}
        self.wrong: list[str] = []  # raised where polling awaits, it would be logged only
        self.failing: set[str] = set()
        self.broken: set[str] = set()
        self.polling = Polling(self, Looker(self.disk.repositories), PACE, lambda: self.time)

    @initialize(names=integers(0, 3))
    def start(self, names):
        for name in NAMES[:names]:
            self.disk.put(self.disk.folder(name, False) / "1" / "model.py", name)
        self.loop.run_until_complete(self.polling.begin())
        self.applied = {name: self.disk.now(name) for name in NAMES}

    async def together(self, names):
        return [names]

    async def apply(self, names):
        """The lifecycle's place."""
        for name in names:
            now = self.disk.found(name, self.applied[name])
            if any(folder.name == name for folder in self.disk.writing):
                self.wrong.append(f"{name} is being written")
            if now == self.applied[name] and name not in self.failing:
                self.wrong.append(f"{name} was applied and has not changed since")
            self.applied[name] = now
        self.failing = (self.failing - set(names)) | (self.broken & set(names))
        return {}

    # ---- what is done

    def _edit(self, folder: Path):
        return self.disk.reachable(folder) and folder not in self.disk.writing

    @rule(name=sampled_from(NAMES), second=booleans(), version=integers(1, 3), file=sampled_from(["model.py", "w"]))
    def save(self, name, second, version, file):
        folder = self.disk.folder(name, second)
        if self._edit(folder):
            self.disk.put(folder / str(version) / file, f"{version}{self.disk.ticks}")

    @rule(name=sampled_from(NAMES), second=booleans())
    def break_or_mend(self, name, second):
        folder = self.disk.folder(name, second)
        if self._edit(folder) and folder.is_dir():
            self.disk.put(folder / "config.pbtxt", "max_bach_size: 4" if self.disk.ticks % 2 else "")

    @rule(name=sampled_from(NAMES), second=booleans())
    def replace_a_file(self, name, second):
        folder = self.disk.folder(name, second)
        if self._edit(folder) and (folder / "1" / "model.py").exists():
            self.disk.put(folder / "new", "other")
            (folder / "new").rename(folder / "1" / "model.py")

    @rule(name=sampled_from(NAMES), second=booleans())
    def leave_an_editors_file(self, name, second):
        folder = self.disk.folder(name, second)
        if self._edit(folder) and folder.is_dir():
            self.disk.put(folder / "config.pbtxt~", "")

    @rule(name=sampled_from(NAMES), second=booleans())
    def delete(self, name, second):
        folder = self.disk.folder(name, second)
        if self._edit(folder):
            shutil.rmtree(folder, ignore_errors=True)

    @rule(name=sampled_from(NAMES), other=sampled_from(NAMES), second=booleans())
    def rename(self, name, other, second):
        old, new = self.disk.folder(name, second), self.disk.folder(other, second)
        if self._edit(old) and new not in self.disk.writing and old.is_dir() and not new.exists():
            old.rename(new)

    @rule(name=sampled_from(NAMES), second=booleans(), version=integers(1, 3))
    def begin_to_copy(self, name, second, version):
        folder = self.disk.folder(name, second)
        if self._edit(folder):
            self.disk.writing[folder] = folder / str(version) / "weights"
            self.disk.go_on_writing()

    @precondition(lambda self: self.disk.writing)
    @rule()
    def end_copying(self):
        self.disk.writing.popitem()

    @precondition(lambda self: not self.disk.writing)
    @rule(second=booleans(), steps=integers(0, 4))
    def unmount(self, second, steps):
        repository = self.disk.repositories[second]
        if repository not in self.disk.away:
            repository.rename(self.disk.hidden(repository))
            self.disk.away.add(repository)
            self.time_passes(steps)

    @precondition(lambda self: self.disk.away)
    @rule()
    def mount(self):
        # A set of paths has another order in each scratch folder, and hypothesis repeats its runs.
        repository = min(self.disk.away)
        self.disk.away.remove(repository)
        self.disk.hidden(repository).rename(repository)

    @rule(names=sets(sampled_from(NAMES)))
    def cannot_be_loaded(self, names):
        self.broken = names

    # ---- what polling does meanwhile

    @rule(steps=integers(1, 3))
    def some_time_passes(self, steps):
        self.time_passes(steps)

    def time_passes(self, steps):
        for _ in range(steps):
            self._step()

    def _step(self):
        self.disk.go_on_writing()
        self.time += self.loop.run_until_complete(self._stepped())

    async def _stepped(self):
        seconds = await self.polling.step()
        await self.polling.applied()
        assert self.wrong == []
        return seconds

    def teardown(self):
        """When nobody writes any more and all can be read, everything is applied after a few looks."""
        try:
            self.disk.writing.clear()
            while self.disk.away:
                self.mount()
            for _ in range(STEPS_MAX):
                self._step()
            assert self.applied == {name: self.disk.now(name) for name in NAMES} or not self.applied
        finally:
            self.loop.run_until_complete(self.polling.close())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            self.scratch.cleanup()


PollingMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
test_polling = PollingMachine.TestCase
