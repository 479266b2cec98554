"""One loaded model version: its runtime and its instances.  Layer 4 (supervise)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tisfast.supervise.instance import Instance, InstanceState
from tisfast.supervise.readiness import asked
from tisfast.supervise.rest import Rest

if TYPE_CHECKING:
    from tisfast.engine.runtime import ModelRuntime
    from tisfast.supervise.claims import Claims
    from tisfast.supervise.timer import RuntimeTimer


class ServedModel:
    """What answers for one version of a model, and what keeps it answering.

    execution_seconds_max: how long one execution may take before its worker is taken to hang.
    """

    def __init__(
        self, runtime: ModelRuntime, timer: RuntimeTimer, execution_seconds_max: float, claims: Claims
    ) -> None:
        self.runtime = runtime
        self._claims = claims
        self.instances: list[Instance] = []
        self.execution_seconds_max = execution_seconds_max
        self.load_seconds = 0.0
        self._timer = timer
        self._rest = Rest(runtime)
        self._refusing = False
        self._loaded = False

    @property
    def title(self) -> str:
        """NAME version N."""
        return f"{self.runtime.signature.name} version {self.runtime.signature.version}"

    @property
    def unanswered(self) -> int:
        """Requests queued or executing."""
        return self.runtime.queued + self.runtime.inflight

    @property
    def restarts(self) -> int:
        """Workers started in place of dead ones."""
        return sum(instance.restarts for instance in self.instances)

    def readiness(self) -> Awaitable[str] | None:
        """What the model's own `is_ready` says in all instances: why it is not ready, or ""; None when it has none."""
        checks = [instance.readiness for instance in self.instances]
        return asked([check for check in checks if check is not None])

    def loaded(self) -> None:
        """All instances are up for the first time: from now on their states are the model's."""
        self._loaded = True
        self.changed()

    def changed(self) -> None:
        """An instance changed its state.  Ready only when all are (row 26.02).

        While a worker is being restarted, requests wait for it.  When none is up and a restart has failed, nobody knows
        how long they would wait: they are refused, until one is up again.
        """
        if not self._loaded:
            return
        down = [instance for instance in self.instances if instance.state is not InstanceState.READY]
        if not down:
            self._refusing = False
            self.runtime.set_state(True, "")
            return
        reason = down[0].reason
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
        self._rest.look(self.unanswered, now_ns)

    async def stop(self, seconds: float, message: str) -> None:
        """Refuse what is queued or still comes with `message`, then end the workers within `seconds`."""
        self._loaded = False
        self.runtime.refuse(message)
        await asyncio.gather(*(instance.stop(seconds) for instance in self.instances))
        self._claims.drop()
        self._timer.close()
