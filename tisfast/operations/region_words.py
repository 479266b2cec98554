"""What is told of clients' GPU memory that is not closed.  Layer 4 (operations)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from tisfast import limits
from tisfast.native.cuda_faces import By, Refusal, Waits, and_others, have_ended, others
from tisfast.native.cuda_lanes import HANGS

TO_ITS_END = (
    "A request whose client has left is executed to its end (--execution-timeout-secs ends an instance that hangs). A "
    "model may keep inputs of requests that were answered: unload it, or end its process with 'kill -9'"
)
NOT_CLOSED = (
    "--execution-timeout-secs ends an instance whose batch takes too long. 'ps -o stat,wchan:40 -p PID' says whether a "
    "process runs: T is stopped, and 'kill -CONT PID' has it go on. If you end the process with 'kill -9', the memory "
    "is closed, and the server starts the instance again"
)
_BY_NAME = (
    ". You unregistered all regions, so you also hear of other clients' memory, as long as this is so. To hear only of "
    "yours, unregister your regions by name"
)


class Told:
    """What is not closed, piece by piece: each reason and each remedy once, with the regions of each reason."""

    def __init__(self) -> None:
        self.late: dict[str, None] = {}  # names, as all here, in the order of their coming
        self.refused: dict[str, None] = {}
        self._of: dict[str, dict[str, None]] = {}
        self._remedies: dict[str, None] = {}
        self._lingering: set[str] = set()
        self._refusals: set[Refusal] = set()

    def wait(self, name: str, waits: Waits, lingering: Iterable[str]) -> None:
        """It is not closed yet.  lingering: processes that have it open (Holder.lingers)."""
        self.late[name] = None
        for reason in waits.reasons:
            self._of.setdefault(reason, {})[name] = None
        self._remedies.update(dict.fromkeys(waits.remedies))
        self._lingering.update(lingering)

    def refuse(self, name: str, refusals: Iterable[Refusal]) -> None:
        """It stays open."""
        self.refused[name] = None
        self._refusals.update(refusals)

    def within(self, seconds: float, remedy: str = "") -> str:
        """For what it waits after so many seconds.  remedy: what to do about that, behind a semicolon."""
        is_for_all = all(len(names) == len(self.late) for names in self._of.values())
        reasons = [why if is_for_all else f"{_quoted(names)}: {why}" for why, names in self._of.items()]
        text = f"{named(self.late)} unregistered, but not closed within {seconds:g} s{remedy}: {'; '.join(reasons)}"
        return ". ".join([text, *self._remedies])

    @property
    def to_wait(self) -> str:
        """For who has waited in vain."""
        remedy = "; do not free the memory yet, and unregister again to wait again"
        return self.within(limits.GPU_REGION_SECONDS_MAX, remedy)

    @property
    def to_the_end(self) -> str:
        """For who waits when the server ends.  Its end is not the end of a process that was killed."""
        also = f", and {have_ended(sorted(self._lingering))}, too" if self._lingering else ""
        return (
            f"{named(self.late)} unregistered, but not closed before the server ends: free the memory when it has "
            f"ended{also}"
        )

    @property
    def to_refused(self) -> str:
        """Which processes refuse to close it, and what ends them."""
        found = sorted(self._refusals, key=lambda one: (one.who, one.reason))
        failed, refused = ([each for each in found if (each.by is By.BUG) == is_bug] for is_bug in (True, False))
        causes = []
        if refused:
            shown, more = refused[: limits.GPU_REFUSALS_TOLD_MAX], len(refused) - limits.GPU_REFUSALS_TOLD_MAX
            where = ", in ".join(f"{each.who} ({each.reason})" for each in shown)
            causes.append(f"the driver refuses that in {where}{and_others(more)}")
        if failed:
            why = failed[0].reason + and_others(len(failed) - 1)
            causes.append(f"the server has failed to close it ({why}): see its log")
        return f"{named(self.refused)} unregistered, but not closed: {'; '.join(causes)}. {_remedy(found)}"

    def behind(self, late: str, *, is_of_all: bool) -> str:
        """The whole: what is told of what is late, "" where nothing is, then refusals."""
        refused = self.to_refused if self.refused else ""
        return ". Besides, ".join(filter(None, [late, refused])) + (_BY_NAME if is_of_all else "")


def _remedy(refusals: Collection[Refusal]) -> str:
    """What the client must wait for, and how to come there whatever --model-control-mode is."""
    found = {by: len([each for each in refusals if each.by is by]) for by in By}
    instances, lingering = found[By.INSTANCE], found[By.LINGERING]
    them = "this process has" if instances + lingering == 1 else "these processes have"
    if found[By.SERVER] or found[By.BUG]:
        them = "the server has" if not lingering else "the server and what was killed have"
    ways = []
    if instances and not (found[By.SERVER] or found[By.BUG]):
        it, models, again = ("that process by its pid with 'kill -9'", "its model", "the instance")
        if instances > 1:
            it = "the processes of the instances by their pids with 'kill -9'"
            models, again = "their models", "the instances"
        ways.append(
            f"end {it} (the server then starts {again} again), unload {models} (only with "
            "--model-control-mode=explicit), or end the server"
        )
    if lingering:
        ways.append(f"what was killed and has not ended does not end by an unload, nor with the server. {HANGS}")
    return f"Do not free the memory before {them} ended" + (f": {'; '.join(ways)}" if ways else "")


def named(names: Collection[str]) -> str:
    """The first ones of them, which differ, and how many others there are."""
    return f"shared memory region{'s' if len(names) > 1 else ''} {_quoted(names)}"


def listed(texts: Collection[str]) -> str:
    """At most so many, and how many others there are."""
    return _listed(islice(texts, limits.GPU_NAMES_TOLD_MAX), len(texts))


def _quoted(names: Collection[str]) -> str:
    return _listed((f"'{each:.60}'" for each in islice(names, limits.GPU_NAMES_TOLD_MAX)), len(names))


def _listed(first: Iterable[str], count: int) -> str:
    shown = list(first)
    if count > len(shown):
        shown.append(others(count - len(shown)))
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
