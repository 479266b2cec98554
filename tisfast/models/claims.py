"""The claims of a model version's instances on shared resources.  Layer 4 (models)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tisfast.config.instance_groups import PlannedInstance
    from tisfast.engine.rate_limiter import Claim, RateLimiter
    from tisfast.engine.runtime import ModelRuntime
    from tisfast.wire.signature import ModelSignature

log = logging.getLogger("tisfast.models")


class Claims:
    """Registered from the load to the unload of a model version, whatever becomes of its workers."""

    def __init__(
        self, limiter: RateLimiter | None, runtime: ModelRuntime, instances: Sequence[PlannedInstance]
    ) -> None:
        """limiter: None where nothing limits executions.  Raises BadRequest for what can never run."""
        self._limiter = limiter
        self._claims: dict[str, Claim] = {}
        if limiter is None:
            _say_what_has_no_effect(runtime.signature, instances)
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


def _say_what_has_no_effect(signature: ModelSignature, instances: Sequence[PlannedInstance]) -> None:
    """Triton passes over it without a word."""
    wanted = sorted({demand.name for instance in instances for demand in instance.rate_limit.demands})
    if wanted or any(instance.rate_limit.priority for instance in instances):
        about = f"the resources {', '.join(wanted)}" if wanted else "a priority"
        log.warning(
            "model '%s' version %s: its rate_limiter asks for %s, which nothing heeds while --rate-limit is off; start "
            "with --rate-limit=execution_count", signature.name, signature.version, about,
            extra={"facts": {"model": signature.name, "version": signature.version}},
        )  # fmt: skip
