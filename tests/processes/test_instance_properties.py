"""The life of an instance under random births, deaths and stops: states follow its diagram, nothing is left behind.

Processes are real and do nothing; what they would say over the control socket, and their nursery, are ours.  The loop's
clock runs a hundred times as fast, so that restart delays cost little.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import sys
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.waiting import until
from tisfast.engine.custom_metrics import CustomMetrics
from tisfast.environments.environment import Interpreter
from tisfast.errors import Internal
from tisfast.native.channel import abi_version
from tisfast.processes.instance import Instance, InstanceState
from tisfast.processes.nursery import Child
from tisfast.processes.worker import Birth, WorkerFailed, Workplace

HASTE = 100
S = InstanceState
ALLOWED = {
    S.STARTING: {S.READY, S.DRAINING},
    S.READY: {S.DEAD, S.DRAINING, S.ASLEEP},
    S.DEAD: {S.READY, S.BROKEN, S.DRAINING},
    S.ASLEEP: {S.WAKING, S.DRAINING},
    S.WAKING: {S.READY, S.BROKEN, S.DRAINING},
    S.BROKEN: {S.READY, S.BROKEN, S.DRAINING},
    S.DRAINING: {S.STOPPED},
    S.STOPPED: set(),
}
BIRTHS = ("ready", "failed", "dies before hello", "dies while loading", "no fork")


class HastySelector(selectors.DefaultSelector):
    def select(self, timeout=None):
        return super().select(timeout and timeout / HASTE)


class HastyLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        super().__init__(HastySelector())

    def time(self):
        return time.monotonic() * HASTE


class World:
    """Nursery, control socket, runtime and links of one instance; `births`: how the next workers begin."""

    endpoint = "ipc:///nowhere"
    execution_count = 0
    about = Interpreter(sys.executable)

    def __init__(self, loop, births):
        self.loop, self.births = loop, list(births)
        self.children, self.links, self.linked, self.lost = {}, [], [], []
        self.handlers, self.behaviour = {}, "ready"
        self.stats = self

    # the nursery

    async def fork(self, order, fds, exited):
        self.behaviour = self.births.pop(0) if self.births else "ready"
        if self.behaviour == "no fork":
            raise Internal("cannot fork")
        pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], os.environ)
        watch = os.pidfd_open(pid)
        self.children[pid] = order.id
        self.loop.add_reader(watch, self._reap, pid, watch, exited)
        if self.behaviour == "dies before hello":
            os.kill(pid, 9)
        else:
            self.loop.call_soon(self._say, order.id, {"t": "hello", "abi": abi_version()})
        return Child(pid, os.pidfd_open(pid))

    def _reap(self, pid, watch, exited):
        self.loop.remove_reader(watch)
        os.close(watch)
        del self.children[pid]
        exited(os.waitpid(pid, 0)[1])

    # the control socket

    def expect(self, worker, token, handle):
        self.handlers[worker] = handle

    def forget(self, worker):
        self.handlers.pop(worker, None)

    def send(self, worker, message):
        if message["t"] == "stop" or self.behaviour == "dies while loading":
            for pid in [pid for pid, name in self.children.items() if name == worker]:
                os.kill(pid, 9)
        else:
            kind = "ready" if self.behaviour == "ready" else "failed"
            self.loop.call_soon(self._say, worker, {"t": kind, "error": "ValueError: no weights"})
        return True

    def _say(self, worker, message):
        if worker in self.handlers:
            self.handlers[worker](message)

    # runtime

    def add_link(self, link):
        self.linked.append(link)

    def remove_link(self, link):
        self.linked.remove(link)

    def requeue(self, requests):
        self.lost += requests

    def fail(self, requests, status, message):
        assert "m_0" in message
        self.lost += requests


class Nobody:
    def answer(self, message, reply):
        """No model asks about models here."""


class FakeLink:
    """Two requests of its own, one taken; `closed` and `ended` count."""

    fds = ()
    executing_since_ns = 1

    def __init__(self):
        self.closed, self.ended, self.opened = 0, 0, False

    def open(self):
        self.opened = True

    def listen(self):
        """Its model calls others."""

    def request_stop(self):
        pass

    def rest(self):
        """No more work."""

    def trace_context(self, _ticket):
        """Nothing is traced here."""

    def close(self, lingers):
        self.closed += 1
        return ([(self, "taken")], [(self, "untaken")]) if self.opened else ([], [])

    def process_ended(self):
        assert self.closed == 1
        self.ended += 1


async def leaves(condition, news):
    """Until the instance's state is another one."""
    while condition():
        await news.wait()
        news.clear()


async def live(world, events, stop_seconds):
    seen = [S.STARTING]
    instance = None

    def make_link():
        world.links.append(FakeLink())
        return world.links[-1]

    news = asyncio.Event()

    def changed():
        news.set()
        if instance.state is S.BROKEN or instance.state is not seen[-1]:
            seen.append(instance.state)

    birth = Birth("m_0", {"t": "load", "model": {"name": "m", "version": "1"}}, world, None)
    place = Workplace(world.loop, world, CustomMetrics(world), Nobody())
    instance = Instance(birth, place, world, make_link, changed)
    try:
        await instance.load()
    except WorkerFailed:
        assert instance.pid == 0
        return seen
    for event in events:
        await leaves(lambda: instance.state is not S.READY, news)
        if event == "stop":
            break
        if event == "sleep":
            instance.doze()
            await instance.sleep(stop_seconds)
            assert instance.state is S.ASLEEP and instance.pid == 0
            await instance.wake()
            continue
        if event == "hang":
            instance.look_for_hang(10**18, 1)
        else:
            assert instance.pid in world.children
            os.kill(instance.pid, 9)
        await leaves(lambda: instance.state is S.READY, news)
    await instance.stop(stop_seconds)
    assert instance.state is S.STOPPED
    return seen


@settings(max_examples=40, deadline=None)
@given(
    births=st.lists(st.sampled_from(BIRTHS), max_size=5),
    first=st.sampled_from(("ready", "ready", "ready", "failed", "dies while loading")),
    events=st.lists(st.sampled_from(("kill", "hang", "sleep", "stop")), max_size=4),
)
def test_an_instance_lives_as_its_diagram_says(births, first, events):
    loop = HastyLoop()
    try:
        world = World(loop, [first, *births])
        seen = loop.run_until_complete(asyncio.wait_for(live(world, events, 10), 90 * HASTE))
        loop.run_until_complete(_gone(world))
    finally:
        loop.close()
    assert all(after in ALLOWED[before] for before, after in zip(seen, seen[1:], strict=False))
    assert world.linked == [] and all(link.closed == link.ended == 1 for link in world.links)
    opened = [link for link in world.links if link.opened]
    assert sorted(map(id, (link for link, _ in world.lost))) == sorted(2 * [id(link) for link in opened])


async def _gone(world):
    await until(lambda: not world.children)
