"""A lifecycle without processes, disk or time: its models are real up to their workers, the loop's clock is our own.

What is written here is what the lifecycle promises: every look at the world is `check`, whatever is under way; what
must hold when nothing is, is `check_at_rest`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import selectors
from dataclasses import dataclass, replace
from pathlib import Path

from tests.repo.sources import NAMES, source
from tisfast.config.scheduler_settings import SchedulerSettings
from tisfast.engine.registry import Registry
from tisfast.engine.runtime import ModelRuntime
from tisfast.engine.testing import FakeClock
from tisfast.errors import ConfigError, Internal, TisError
from tisfast.models.copies import Copies
from tisfast.models.draining import DrainingCopies
from tisfast.models.lifecycle import Lifecycle
from tisfast.models.loader import gather
from tisfast.models.served_ensemble import load_ensemble
from tisfast.models.served_model import ServedModel
from tisfast.native.memory import Arena
from tisfast.processes.instance import InstanceState
from tisfast.processes.worker import WorkerFailed
from tisfast.repo.load_plan import closure
from tisfast.repo.lookup import no_model
from tisfast.repo.scan_result import ModelFailure
from tisfast.wire.signature import ModelSignature

SECONDS_MAX = 3600.0
"""In which everything that was begun ends."""
STEPS_OF = {name: closure([name], {each: source(each) for each in NAMES}) for name in NAMES}
"""A model and all that it needs."""
LEAVES = tuple(name for name in NAMES if STEPS_OF[name] == {name})
"""Those that are no ensembles."""


class Stuck(AssertionError):
    """Everybody waits, and nobody for the time."""


class Instant:
    """A selector that never waits: the loop's clock jumps."""

    def __init__(self, loop) -> None:
        self._loop, self._real = loop, selectors.DefaultSelector()

    def select(self, timeout=None):
        found = self._real.select(0)
        if not found and timeout is None:
            raise Stuck
        if not found:
            self._loop.now += max(timeout, 0.0)
        return found

    def __getattr__(self, name):
        return getattr(self._real, name)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Threads are turns of the loop, a moment later; `look` is called after each turn."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(Instant(self))
        self.look = lambda: None
        self.bugs: list[dict] = []
        self.set_exception_handler(lambda _loop, context: self.bugs.append(context))

    def time(self):
        return self.now

    def run_in_executor(self, _executor, function, *args):
        done = self.create_future()

        def work():
            if not done.cancelled():
                try:
                    done.set_result(function(*args))
                except Exception as error:
                    done.set_exception(error)

        self.call_later(0.001, work)
        return done

    def _run_once(self):
        super()._run_once()
        self.look()


class Closed:
    """Timer, claims and host of a model version: what is given back is given back once."""

    def __init__(self) -> None:
        self.times = 0

    def end(self):
        self.times += 1

    close = drop = leave = end


class Worker:
    """An instance whose worker is a number."""

    def __init__(self, world: World, name: str, served: ServedModel, planned) -> None:
        self.world, self.name, self.planned, self._changed = world, name, planned, served.changed
        self.state, self.reason, self.restarts, self.pid, self.readiness = InstanceState.STARTING, "", 0, 0, None
        self.outstanding, self.title = 0, f"instance {planned.name}"

    async def load(self):
        self.world.alive.add(self)
        try:
            await asyncio.sleep(self.world.seconds.get(self.name, 0.0))
            what = self.world.breaks.get(self.name)
            if what == "load":
                raise WorkerFailed("no weights")
            if what == "bug":
                raise ValueError("a bug")
        except BaseException:
            self.world.alive.discard(self)
            raise
        self._set(InstanceState.READY)

    def retire(self):
        pass

    async def stop(self, seconds, _message=""):
        self._set(InstanceState.DRAINING)
        await asyncio.sleep(min(seconds, 0.05))
        self.world.alive.discard(self)
        self._set(InstanceState.STOPPED)

    def _set(self, state):
        self.state, self.reason = state, state.value
        self._changed()


@dataclass
class OnDisk:
    """What a folder holds; wrong: its configuration."""

    revision: int = 1
    versions: tuple[int, ...] = (1,)
    two: bool = False
    wrong: bool = False

    def found(self, name: str):
        if self.wrong:
            return ModelFailure(name, Path("/repo"), Path("/repo", name), (ConfigError("wrong"),))
        return source(name, revision=self.revision, versions=self.versions, two=self.two)


@dataclass(eq=False)
class Order:
    """One that was given.

    takes: names that it may take away, with the ensembles above; alone: no other one was under way meanwhile; before:
    what served when it was given.
    """

    what: str
    name: str
    task: asyncio.Task
    takes: frozenset[str]
    alone: bool
    before: dict[str, object]


class World:
    """The lifecycle, all that it works on, and what must be true of it."""

    def __init__(self, retries: int = 0) -> None:
        self.loop = VirtualLoop()
        self.registry = Registry()
        self.registry.set_live(True)
        self.leaving = DrainingCopies(self.loop)
        self.copies = Copies(self.registry, self, self.leaving, retries)
        self.lifecycle = Lifecycle(
            self.loop, self.registry, self.copies, self.find, self.give, lambda: list(self.disk), explicit=True
        )
        self.disk: dict[str, OnDisk] = {name: OnDisk() for name in NAMES}
        self.breaks: dict[str, str] = {}  # by name: "load", "grow", "bug", "join"
        self.seconds: dict[str, float] = {}  # that a load takes
        self.alive: set[Worker] = set()
        self.made: list[ServedModel] = []
        self.parts: list[Closed] = []
        self.private: set[Path] = set()
        self.orders: list[Order] = []
        self.serving: set[str] = set()  # what must be there at any moment
        self._numbers = itertools.count(1)
        self.loop.look = self.check

    # ---- the lifecycle's surroundings

    def find(self, names):
        return {name: self.disk[name].found(name) if name in self.disk else no_model(name) for name in names}

    def give(self, order):
        if self.breaks.get(order.name) == "give":
            return Internal("its files cannot be kept")
        if not order.files:
            return replace(source(order.name, revision=1000 + next(self._numbers)), overridden=True)
        place = Path(f"/private/{next(self._numbers)}")
        self.private.add(place)
        return replace(source(order.name), folder=place / order.name, overridden=True, private=place)

    def discard(self, given):
        if given.private is not None:
            assert given.private in self.private, "its files were discarded before"
            self.private.discard(given.private)

    def join(self, given):
        if self.breaks.get(given.name) == "join":
            raise OSError(24, "Too many open files")
        return load_ensemble(given, self.registry, FakeClock())

    async def load(self, given, versions):
        made = [self._model(given, version) for version in versions]
        try:
            await gather(*(each.load() for served in made for each in served.instances))
        except BaseException:
            await asyncio.gather(*(served.stop(1, "another part failed") for served in made))
            raise
        for served in made:
            served.loaded()
        return made

    def _model(self, given, version):
        fields = [("A", 11, (1,), False, False)], [("B", 11, (1,))]
        signature = ModelSignature(given.name, str(version.number), 0, False, *fields)
        arena = Arena(given.name, 1 << 16, 1 << 16)
        runtime = ModelRuntime(signature, arena, SchedulerSettings(), FakeClock(), given.config.as_dict)
        parts = [Closed() for _ in range(3)]
        served = ServedModel(
            runtime, parts[0], 60.0, parts[1], self._make(given.name), self._grow, host=parts[2], moved=list
        )
        served.instances = [Worker(self, given.name, served, each) for each in given.config.instances]
        self.made.append(served)
        self.parts += parts
        return served

    def _make(self, name):
        @contextlib.asynccontextmanager
        async def make(served, planned):
            yield [Worker(self, name, served, each) for each in planned]

        return make

    async def _grow(self, worker):
        await worker.load()
        if self.breaks.get(worker.name) == "grow":
            raise WorkerFailed("no room")

    # ---- orders

    def order(self, what, name, work, takes=frozenset()):
        for other in self.orders:
            other.alone = False
        alone = not (self.orders or self.lifecycle.busy)
        order = Order(what, name, self.loop.create_task(work), frozenset(takes), alone, self._serve())
        self.orders.append(order)
        self.serving -= {each for each in NAMES if STEPS_OF[each] & order.takes}
        order.task.add_done_callback(lambda task: self._ended(order, task))

    def _ended(self, order, task):
        self.orders.remove(order)
        if task.cancelled():
            return
        error = task.exception()
        assert error is None or isinstance(error, TisError), repr(error)
        if error is not None and order.what == "load" and order.alone and order.name in LEAVES:
            assert self._serve().get(order.name) is order.before.get(order.name), "what served goes on"
        taken = set().union(*(other.takes for other in self.orders), self._never_joined())
        if order.what == "load" and error is None and not STEPS_OF[order.name] & taken:
            self.serving.add(order.name)

    def _serve(self):
        """What answers for each model."""
        return {name: self.registry.resolve(name) for name in NAMES if self.registry.versions(name)}

    def _never_joined(self):
        return {name for name, how in self.breaks.items() if how == "join"}

    def remove(self, name):
        """From the disk: who looks there from now on unloads it."""
        self.disk.pop(name, None)
        for order in self.orders:
            if order.what == "apply":
                order.takes |= {name}
                self.serving -= {each for each in NAMES if name in STEPS_OF[each]}

    def break_or_mend(self, name, how):
        """An ensemble that cannot be joined goes when one of its steps changes."""
        self.breaks[name] = how
        self.serving -= {each for each in NAMES if STEPS_OF[each] & self._never_joined()}

    def run(self, seconds):
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def settle(self):
        """Until every order has ended, and everything that was replaced is gone."""
        self.run(SECONDS_MAX)
        assert not self.orders, f"has not ended: {self.orders}"
        assert not self.lifecycle.busy and not self.leaving.models

    # ---- what holds at any moment

    def check(self):
        for name in self.serving:
            runtime = self.registry.resolve(name)
            assert runtime.ready, f"{name} has no ready copy"
        current = {id(runtime) for runtime in self.registry.runtimes()}
        for served in self.copies.served:
            assert id(served.runtime) in current
            assert all(id(runtime) in current for runtime in served.uses), f"{served.title} asks for what is gone"
        assert len(current) == len(self.copies.served)

    # ---- what holds when nothing is under way

    def check_at_rest(self):
        assert not self.loop.bugs, self.loop.bugs
        serving = [served for served in self.copies.served if isinstance(served, ServedModel)]
        kept = {instance for served in serving for instance in served.instances}
        assert self.alive == kept, "workers without a model that serves, or the other way round"
        stopped = [served for served in self.made if served not in serving]
        assert sum(part.times for part in self.parts) == 3 * len(stopped), "what is closed is closed once"
        held = {copy.source.private for copy in self.copies.held().values() if copy.serving and copy.source is not None}
        assert self.private == held - {None}, "files of load calls that nobody needs, or that somebody does"
        self._check_index()

    def _check_index(self):
        ready = {(r.signature.name, r.signature.version) for r in self.registry.runtimes()}
        for entry in self.registry.models():
            assert entry.state in ("", "READY", "UNAVAILABLE"), entry
            assert (entry.state == "READY") == ((entry.name, entry.version) in ready), entry
            assert entry.state != "UNAVAILABLE" or entry.reason, entry
            ready.discard((entry.name, entry.version))
        assert not ready, f"not in the index: {ready}"

    def close(self):
        self.loop.look = lambda: None
        self.loop.close()
