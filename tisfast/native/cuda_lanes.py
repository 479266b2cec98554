"""The threads that make all calls for one GPU, and what is told of one that hangs.  Layer 1 (native)."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from tisfast import limits, tuning
from tisfast.executor import Lane, Watch

log = logging.getLogger("tisfast.gpu")
THE_DRIVER: Final = "the NVIDIA driver"
HANGS: Final = (
    "Look whether 'nvidia-smi' answers; if requests for it go on failing, reset it (nvidia-smi --gpu-reset) and start "
    "the server again"
)
"""What to do about a GPU that does not do what it is told."""


def hangs(whose: str) -> str:
    """Of a GPU, with the remedy."""
    return f"{whose} hangs or is busy with others' work. {HANGS}"


class Lanes:
    """The two threads of one GPU.  Long copies have a stream of their own, too: a short one waits for no long one."""

    def __init__(self, number: int) -> None:
        most, whose = limits.GPU_CALLS_WAITING_MAX, f"GPU {number}"
        watch = Watch(limits.GPU_TOLD_SECONDS, self._say_late)
        self.short = Lane(most, f"tisfast-gpu-{number}", whose, HANGS, watch)
        self.long = Lane(most, f"tisfast-gpu-{number}-long", whose, HANGS, watch)

    def of(self, nbytes: int) -> Lane:
        """The one for a copy of so many bytes."""
        return self.short if nbytes <= tuning.SHORT_GPU_COPY_BYTES_MAX else self.long

    @property
    def are_busy(self) -> bool:
        """Whether a call is under way, which may never end."""
        return self.short.is_busy or self.long.is_busy

    def _say_late(self, lane: Lane, waiting: int) -> None:
        bound = tuning.SHORT_GPU_COPY_BYTES_MAX
        others = f"a copy of more than {bound} bytes, or opening, closing or allocating memory"
        _say_late(f"a copy of at most {bound} bytes" if lane is self.short else others, lane, waiting)


def driver_lane() -> Lane:
    """A thread for the driver's start, which may hang, too."""
    watch = Watch(limits.GPU_TOLD_SECONDS, partial(_say_late, "its start"))
    return Lane(limits.GPU_CALLS_WAITING_MAX, "tisfast-gpu-driver", THE_DRIVER, HANGS, watch)


def _say_late(call: str, lane: Lane, waiting: int) -> None:
    log.warning(
        "%s has not ended a call (%s) for %g s, and %d %s for it: it hangs, or is busy with others' work. Refused are "
        "a request when one copy has taken %g s, who registers memory after %g s, an instance that asks for memory "
        "after %g s. %s",
        lane.whose, call, limits.GPU_TOLD_SECONDS, waiting, "wait" if waiting > 1 else "waits",
        limits.GPU_COPY_SECONDS_MAX, limits.GPU_REGION_SECONDS_MAX, limits.GPU_LENDING_SECONDS_MAX, HANGS,
    )  # fmt: skip
