"""One loaded model version: its runtime and its instances.  Layer 4 (models)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tisfast import limits
from tisfast.models.idle_memory import IdleTrimmer
from tisfast.processes.instance import Instance, InstanceState
from tisfast.processes.readiness import asked
from tisfast.repo.difference import IN_PLACE

if TYPE_CHECKING:
    from tisfast.config.instance_groups import PlannedInstance
    from tisfast.engine.interface import Runtime
    from tisfast.engine.runtime import ModelRuntime
    from tisfast.models.claims import Claims
    from tisfast.models.loader import WorkerHost
    from tisfast.processes.timer import RuntimeTimer


RESTING = (InstanceState.ASLEEP, InstanceState.WAKING)


class ServedModel:
    """One served version of a model: its runtime and the parts that keep it running.

    execution_seconds_max: how long one execution may take before its worker is taken to hang; make: gives instances as
    planned, not started, and is left when they are; load: start it, when its turn has come; host: of its workers, which
    it leaves at its end; moved: told the instances that there are, or come, as they are planned.
    """

    uses: Sequence[Runtime] = ()

    def __init__(  # noqa: PLR0913 - its parts
        self,
        runtime: ModelRuntime,
        timer: RuntimeTimer,
        execution_seconds_max: float,
        claims: Claims,
        make: Callable[[ServedModel, Sequence[PlannedInstance]], AbstractAsyncContextManager[list[Instance]]],
        load: Callable[[Instance], Awaitable[None]],
        *,
        host: WorkerHost,
        moved: Callable[[Iterable[PlannedInstance]], None],
    ) -> None:
        self.runtime = runtime
        self._claims = claims
        self._make = make
        self._load = load
        self._host = host
        self._moved = moved
        self.instances: list[Instance] = []
        self.execution_seconds_max = execution_seconds_max
        self.load_seconds = 0.0
        self._timer = timer
        self._rest = IdleTrimmer(runtime)
        self._refusing = False
        self._loaded = False
        self.keep_awake = False
        self.asleep = False
        self._awake_ms = 0

    @property
    def title(self) -> str:
        """NAME version N."""
        return f"{self.runtime.signature.name} version {self.runtime.signature.version}"

    @property
    def unanswered(self) -> int:
        """Requests queued or executing."""
        return self.runtime.queued + self.runtime.inflight

    @property
    def outstanding(self) -> int:
        """Requests that are being received, are queued or execute: what still holds a part of the input arena, less
        what user code keeps of requests that were answered."""
        kept = sum(link.kept_blocks for link in self.runtime.links)
        return max(self.unanswered, self.runtime.arena.used_blocks - kept)

    @property
    def planned(self) -> tuple[PlannedInstance, ...]:
        """The planned instances."""
        return tuple(instance.planned for instance in self.instances)

    @property
    def restarts(self) -> int:
        """Workers started in place of dead ones."""
        return sum(instance.restarts for instance in self.instances)

    @property
    def used_ms(self) -> int:
        """When it last answered a request, or was loaded or woken; epoch."""
        return max(self.runtime.stats.last_inference_ms, self._awake_ms)

    @property
    def pids(self) -> list[int]:
        """Its workers."""
        return [instance.pid for instance in self.instances if instance.pid]

    @property
    def may_sleep(self) -> bool:
        """It has nothing to do, and nothing is under way: no request, no sequence, no restart."""
        return (
            self._loaded
            and not (self.asleep or self.keep_awake or self.outstanding or self.runtime.sequences)
            and all(instance.state is InstanceState.READY for instance in self.instances)
        )

    async def sleep(self, wanted: Callable[[], None]) -> None:
        """End the workers.  wanted: called by each request that comes, and waits in the queue, until `wake`."""
        self.asleep = True
        self.runtime.wanted = wanted
        for instance in self.instances:
            instance.doze()
        await asyncio.gather(*(instance.sleep(limits.SLEEP_SECONDS_MAX) for instance in self.instances))

    def wake(self) -> Awaitable[Any]:
        """Start them again: awake at once; done when they serve, or could not be started and are tried again."""
        self.asleep = False
        self.runtime.wanted = None
        self._awake_ms = time.time_ns() // 1_000_000
        return asyncio.gather(*(instance.wake() for instance in self.instances))

    def readiness(self) -> Awaitable[str] | None:
        """Ask the model's own `is_ready` in all instances: why it is not ready, or ""; None when it has none."""
        checks = [instance.readiness for instance in self.instances]
        return asked([check for check in checks if check is not None])

    def _matched(self, planned: Sequence[PlannedInstance]) -> tuple[list[Instance], list[PlannedInstance]]:
        """(instances that go on, what is to be started) to have these.

        Where no instance is one of them, one that differs in nothing but its name takes its place: `m_0`, alone without
        an instance_group, goes on as what would be `m_0_0` of two.
        """
        names = {each.name for each in planned}
        missing = [each for each in planned if each not in self.planned]
        kept = []
        for instance in self.instances:
            own = instance.planned
            alike = [each for each in missing if own.name not in names and replace(each, name=own.name) == own]
            if alike:
                missing.remove(alike[0])
            if alike or own in planned:
                kept.append(instance)
        return kept, missing

    async def grow(self, planned: Sequence[PlannedInstance]) -> None:
        """Start the instances that it lacks to have these.  Raises TisError; then it is as it was."""
        async with self._make(self, self._matched(planned)[1]) as fresh:
            self._moved(each.planned for each in [*self.instances, *fresh])
            tasks = [asyncio.ensure_future(self._load(instance)) for instance in fresh]
            try:
                await asyncio.gather(*tasks)
            except BaseException:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await asyncio.gather(*(instance.stop(limits.WORKER_STOP_SECONDS_MAX) for instance in fresh))
                self._moved(each.planned for each in self.instances)
                raise
        self.instances += fresh
        if self.runtime.wanted is not None:
            self.runtime.wanted()  # a part of it is awake: let all be
        self.changed()

    def shrink(self, planned: Sequence[PlannedInstance]) -> list[Instance]:
        """Take the instances that are not among these out: they get no more work.  The caller lets them go."""
        kept, _ = self._matched(planned)
        surplus = [instance for instance in self.instances if instance not in kept]
        self.instances = kept
        self._moved(each.planned for each in kept)
        for instance in surplus:
            instance.retire()
        self.changed()
        return surplus

    def restate(self, config: dict[str, Any]) -> None:
        """Its configuration is another one in what may change without a new copy, as /config shows it."""
        self.runtime.restate({**self.runtime.config, **{key: config[key] for key in IN_PLACE if key in config}})

    def loaded(self) -> None:
        """All instances are up for the first time: from now on their states are the model's."""
        self._loaded = True
        self._awake_ms = time.time_ns() // 1_000_000
        self.changed()

    def changed(self) -> None:
        """An instance changed its state.  Ready only when all are.

        While a worker is being restarted, requests wait for it.  When none is up and a restart has failed, it is not
        known how long they would wait: they are refused, until one is up again.
        """
        if not self._loaded:
            return
        down = [instance for instance in self.instances if instance.state is not InstanceState.READY]
        if not down:
            self._refusing = False
            self.runtime.set_state(True, "")
            return
        reason = down[0].reason
        if all(instance.state in RESTING for instance in down):
            self.runtime.set_state(True, reason)  # requests are welcome: the first one wakes it
            return
        if len(down) == len(self.instances) and any(each.state is InstanceState.BROKEN for each in down):
            self._refusing = True
            signature = self.runtime.signature
            self.runtime.refuse(f"model '{signature.name}' version {signature.version} is not available: {reason}")
            return
        if self._refusing:
            self._refusing = False
            self.runtime.set_state(True, "")  # takes the refusal back
        self.runtime.set_state(False, reason)

    def look_for_hangs(self, now_ns: int) -> None:
        """Kill workers whose execution takes too long."""
        for instance in self.instances:
            instance.look_for_hang(now_ns, self.execution_seconds_max)

    def look_for_rest(self, now_ns: int) -> None:
        """Give the input arena's free pages back once the model has been idle for ARENA_TRIM_SECONDS."""
        self._rest.look(self.unanswered, now_ns, self._pins)

    def _pins(self) -> bool:
        """Whether an instance may have pinned pages of the arena."""
        return any(instance.pins for instance in self.instances)

    async def stop(self, seconds: float, message: str) -> None:
        """Refuse what is queued or still comes with `message`, then end the workers within `seconds`."""
        self._loaded = False
        self.runtime.wanted = None
        self.runtime.refuse(message)
        await asyncio.gather(*(instance.stop(seconds) for instance in self.instances))
        self._claims.drop()
        self._timer.close()
        self._host.leave()
        if not self.instances:
            return  # stopped twice: at the end of the server, when it was just leaving
        # Instances refer to this and this to them: memory and descriptors are not to wait for the garbage collector.
        self.instances = []
        del self._make, self._load
