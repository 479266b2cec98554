"""What the executions of one model version share with others: its instances' claims.  Layer 4 (supervise)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tisfast.config.instances import Instance
    from tisfast.engine.rate_limiter import Claim, RateLimiter
    from tisfast.engine.runtime import ModelRuntime


class Claims:
    """Registered from the load to the unload of a model version, whatever becomes of its workers."""

    def __init__(self, limiter: RateLimiter | None, runtime: ModelRuntime, instances: Sequence[Instance]) -> None:
        """limiter: None where nothing limits executions.  Raises BadRequest for what can never run."""
        self._limiter = limiter
        self._claims: dict[str, Claim] = {}
        if limiter is None:
            return
        runtime.limit_by(limiter)
        try:
            for instance in instances:
                if instance.rate_limit.demands:
                    claim = limiter.register(instance.name, instance.rate_limit, instance.device_id, runtime.resume)
                    self._claims[instance.name] = claim
        except BaseException:
            self.drop()
            raise

    def of(self, instance: str) -> Claim | None:
        """An instance's; None when its executions share nothing."""
        return self._claims.get(instance)

    def drop(self) -> None:
        """The instances are gone."""
        while self._claims and self._limiter is not None:
            self._limiter.unregister(self._claims.popitem()[1])
