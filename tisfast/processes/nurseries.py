"""All nurseries of a server: one for each environment that a model uses, as long as one does.  Layer 4 (processes).

Models of a framework that takes long to import have one of their own, which imports it once for all of their workers.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tisfast.environments.environment import Environment, Interpreter
from tisfast.environments.preparing import EnvironmentLease, Environments
from tisfast.processes.nursery import Nursery, NurseryFailed
from tisfast.processes.nursery_process import NurseryProcess

if TYPE_CHECKING:
    from tisfast.config.settings import WorkerSettings

log = logging.getLogger("tisfast.models")


class NurseryUse:
    """One model version's use of a nursery, from before its first worker until after its last."""

    def __init__(self, nurseries: Nurseries, nursery: Nursery, lease: EnvironmentLease) -> None:
        self.nursery = nursery
        self._nurseries = nurseries
        self._lease: EnvironmentLease | None = lease

    def leave(self) -> None:
        """The model version has no worker any more.  Once is enough; twice does nothing."""
        if self._lease is not None:
            self._nurseries.left(self.nursery)
            self._lease.release()
            self._lease = None

    async def say_what_is_missing(self, model: str) -> None:
        """Log that there is no numpy in the model's environment, which its first tensor would find out."""
        environment = self.nursery.about.environment
        try:
            facts = await self.nursery.up()
        except NurseryFailed:
            return  # the workers are on their way down, too, and tell
        if environment is None or facts.numpy is not None:
            return
        broken = f", or one that cannot be imported ({facts.numpy_error})" if facts.numpy_error else ""
        log.warning(
            "the environment of model '%s' (%s) has no numpy%s: as_numpy() and pb_utils.Tensor() will fail; %s",
            model, environment, broken, environment.remedy("numpy"), extra={"facts": {"model": model}},
        )  # fmt: skip


class Nurseries:
    """Gives model versions their nurseries.  The server's own is kept; others go with their last model."""

    def __init__(self, settings: WorkerSettings, loop: asyncio.AbstractEventLoop) -> None:
        self._own = settings.interpreter
        self._loop = loop
        self._environments = Environments(settings.environments)
        self._by_key: dict[tuple[str, str], Nursery] = {}  # by interpreter and the module that it imports
        self._uses: dict[Nursery, int] = {}

    def adopt(self, spawned: NurseryProcess) -> None:
        """Take over the server's own, which was started early."""
        self._by_key[spawned.interpreter, ""] = Nursery(spawned.interpreter, self._loop, spawned)

    async def use(self, environment: Environment | None, model: str, imports: str = "") -> NurseryUse:
        """Prepare the environment (None: the server's own) and take part in its nursery.

        imports: the module that the nursery is to import, "" for none.  Raises ConfigError, EnvironmentFailed, NoRoom.
        """
        if environment is None:
            lease = EnvironmentLease(Interpreter(self._own))
        else:
            lease = await self._environments.prepare(environment, model)
        nursery = self._nursery(lease.interpreter, imports)
        self._uses[nursery] = self._uses.get(nursery, 0) + 1
        return NurseryUse(self, nursery, lease)

    def left(self, nursery: Nursery) -> None:
        """One lodger less (NurseryUse.leave)."""
        self._uses[nursery] -= 1
        if self._uses[nursery]:
            return
        del self._uses[nursery]
        if nursery.about.environment is not None or nursery.imports:
            del self._by_key[nursery.interpreter, nursery.imports]
            nursery.close()

    def kill(self) -> None:
        """End all of them now, with whatever workers they have."""
        for nursery in self._by_key.values():
            nursery.close()

    async def close(self) -> None:
        """End all of them, and what is being prepared."""
        await self._environments.close()
        self.kill()

    def _nursery(self, interpreter: Interpreter, imports: str) -> Nursery:
        key = (interpreter.path, imports)
        nursery = self._by_key.get(key)
        if nursery is None:
            nursery = self._by_key[key] = Nursery(interpreter.path, self._loop, about=interpreter, imports=imports)
        return nursery
