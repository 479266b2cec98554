"""The threads that make all calls for one GPU, and what is told of one that hangs or is lost.  Layer 1 (native)."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final, NamedTuple

from tisfast import limits, tuning
from tisfast.executor import Lane, Watch
from tisfast.native.cuda_faces import Waits

log = logging.getLogger("tisfast.gpu")
THE_DRIVER: Final = "the NVIDIA driver"
HANGS: Final = (
    "Look whether 'nvidia-smi' answers; if requests for it go on failing, reset it (nvidia-smi --gpu-reset -i UUID; "
    "see 'nvidia-smi -L' and the server's log) and start the server again"
)
"""What to do about a GPU that does not do what it is told."""
_GOES_ON: Final = "what waits for it goes on"


def hangs(whose: str) -> Waits:
    """Of a GPU."""
    return Waits((f"{whose} hangs or is busy with others' work",), (HANGS,))


class Losses:
    """How often the server has lost one GPU, whether it works again, and why not, each told once.  From any thread.

    whose: the GPU in the log.
    """

    def __init__(self, whose: str) -> None:
        self.count = 0
        self._whose = whose
        self._since: float | None = None  # time.monotonic, until it works again
        self._unusable = ""  # why, as the log has it
        self._turn = threading.Lock()

    @property
    def is_lost(self) -> bool:
        """Whether it has not worked again since."""
        return self._since is not None

    @property
    def is_unusable(self) -> bool:
        """Whether it was tried, and has never worked."""
        return bool(self._unusable) and not self.is_lost

    def lost(self, what: str, reason: str) -> None:
        """A context is lost.  what: the call was for that has found it, "" where nobody has said so."""
        with self._turn:
            self.count += 1
            if self._since is None:
                self._since = time.monotonic()
        found = f", found in a call for {what}" if what else ""
        log.error(
            "the server has lost %s%s (%s): CUDA regions there must be unregistered and registered again. Most likely "
            "a client has freed memory that it had not unregistered; else look at the GPU itself (nvidia-smi, dmesg)",
            self._whose, found, reason,
        )  # fmt: skip

    def fails(self, reason: str, *, is_full: bool) -> None:
        """The server has no context there, and cannot make one: told again where the reason is another one.

        is_full: the GPU has no room for it.
        """
        with self._turn:
            if reason == self._unusable:
                return
            self._unusable, is_lost = reason, self._since is not None
        state = "has lost %s and cannot use it again" if is_lost else "cannot use %s"
        log.error(
            f"the server {state} (%s): it refuses CUDA regions and lends no memory there. It tries again when somebody "
            "registers a region there or an instance needs memory. This is said once for each reason. %s",
            self._whose, reason, "Free memory of this GPU" if is_full else "If it goes on, start the server again",
        )  # fmt: skip

    def works(self) -> None:
        """The server has made a context there."""
        with self._turn:
            since, self._since = self._since, None
            was_unusable, self._unusable = self._unusable, ""
        if since is not None:
            log.info(
                "the server uses %s again, %.1f s after it had lost it: new CUDA regions can be registered there, and "
                "memory is lent. Regions of before the loss stay unusable until their clients unregister them and "
                "register them again", self._whose, time.monotonic() - since,
            )  # fmt: skip
        elif was_unusable:
            log.info("the server can use %s now", self._whose)


class GpuCondition(NamedTuple):
    """How the server gets on with a GPU.

    device: CUDA's number; uuid: as nvidia-smi has it, "" from a driver that tells none.
    losses: how often it has lost it; is_lost: it has no new context since; is_unusable: it has never had one, and has
    tried; hangs: it has not ended a call for limits.GPU_TOLD_SECONDS.
    """

    device: int
    uuid: str
    losses: int
    is_lost: bool
    is_unusable: bool
    hangs: bool


class Lanes:
    """The two threads of one GPU.  Long copies have a stream of their own, too: a short one waits for no long one.

    whose: the GPU in texts.  CUDA's number is not always that of nvidia-smi, so its UUID is there, too.
    """

    def __init__(self, number: int, uuid: str) -> None:
        """uuid: see GpuCondition."""
        most = limits.GPU_CALLS_WAITING_MAX
        self.whose = whose = f"GPU {number} ({uuid})" if uuid else f"GPU {number}"
        self._number, self._uuid, self.losses = number, uuid, Losses(whose)
        watch = Watch(limits.GPU_TOLD_SECONDS, self._say_late, self._say_over)
        self.short = Lane(most, f"tisfast-gpu-{number}", whose, HANGS, watch)
        self.long = Lane(most, f"tisfast-gpu-{number}-long", whose, HANGS, watch)

    def of(self, nbytes: int) -> Lane:
        """The one for a copy of so many bytes."""
        return self.short if nbytes <= tuning.SHORT_GPU_COPY_BYTES_MAX else self.long

    @property
    def are_busy(self) -> bool:
        """Whether a call is under way, which may never end."""
        return self.short.is_busy or self.long.is_busy

    @property
    def are_used(self) -> bool:
        """Whether they have ever made a call."""
        return self.short.has_begun or self.long.has_begun

    @property
    def condition(self) -> GpuCondition:
        """What is told of the GPU."""
        hangs = max(self.short.seconds, self.long.seconds) >= limits.GPU_TOLD_SECONDS
        lost = self.losses
        return GpuCondition(self._number, self._uuid, lost.count, lost.is_lost, lost.is_unusable, hangs)

    @property
    def doing(self) -> str:
        """What the call is for that this thread makes; "" where nobody has said so."""
        return self.short.doing or self.long.doing

    @property
    def purpose(self) -> str:
        """The same, behind the name of that call."""
        return f" for {self.doing}" if self.doing else ""

    def _say_late(self, lane: Lane, what: str, others: int) -> None:
        _say_late(self.whose, self._call(lane, what), others)

    def _say_over(self, lane: Lane, what: str, seconds: float) -> None:
        now = "the server has lost it" if self.losses.is_lost else _GOES_ON
        _say_over(self.whose, self._call(lane, what), seconds, now)

    def _call(self, lane: Lane, what: str) -> str:
        bound = tuning.SHORT_GPU_COPY_BYTES_MAX
        others = f"a copy of more than {bound} bytes, or opening, closing or allocating memory"
        kind = f"a copy of at most {bound} bytes" if lane is self.short else others
        return f"{kind}; for {what}" if what else kind


def driver_lane() -> Lane:
    """A thread for the driver's start, which may hang, too."""
    watch = Watch(
        limits.GPU_TOLD_SECONDS,
        lambda _lane, _what, others: _say_late(THE_DRIVER, "its start", others),
        lambda _lane, _what, seconds: _say_over(THE_DRIVER, "its start", seconds),
    )
    return Lane(limits.GPU_CALLS_WAITING_MAX, "tisfast-gpu-driver", THE_DRIVER, HANGS, watch)


def _say_late(whose: str, call: str, others: int) -> None:
    log.warning(
        "%s has not ended a call (%s) for %g s, and %s: it hangs, or is busy with others' work. The server refuses a "
        "request when one of its copies has taken %g s, the registration of a region after %g s, and an instance that "
        "asks for memory after %g s. %s",
        whose, call, limits.GPU_TOLD_SECONDS,
        "1 other call waits" if others == 1 else f"{others or 'no'} other calls wait",
        limits.GPU_COPY_SECONDS_MAX, limits.GPU_REGION_SECONDS_MAX, limits.GPU_LENDING_SECONDS_MAX, HANGS,
    )  # fmt: skip


def _say_over(whose: str, call: str, seconds: float, now: str = _GOES_ON) -> None:
    log.info("%s has ended the call (%s) that it hung at, after %.1f s: %s", whose, call, seconds, now)
