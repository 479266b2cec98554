"""What the rest of the server knows of GPUs: two protocols, and what they give.  Layer 1 (native)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from tisfast.executor import Lane

OWNER_GONE: Final = (
    "most likely the client has freed this memory, or has ended; else these bytes are no handle of CUDA's, or client "
    "and server are in different containers, on different GPUs or of different users ('tisfast docs gpu', "
    '"Containers, MIG, WSL2")'
)
"""Why a handle cannot be opened, the likeliest reason first."""


def uuid_text(raw: bytes, *, part: bool = False) -> str:
    """The UUID of a GPU, or of a part of MIG, as nvidia-smi has it.  raw: its 16 bytes."""
    return f"{'MIG' if part else 'GPU'}-{UUID(bytes=raw)}"


class Unopened(Exception):
    """The driver refuses a handle; the text is its call and reason.

    is_full: the GPU has no room for what it makes; is_lost: it is lost with this call; unclosed: of the DeviceMemory,
    where it was opened before that.
    """

    def __init__(
        self, reason: str, *, is_full: bool = False, is_lost: bool = False, unclosed: Unclosed | None = None
    ) -> None:
        super().__init__(reason)
        self.is_full, self.is_lost, self.unclosed = is_full, is_lost, unclosed


def unused() -> Iterable[Set[int]]:
    """Holder.uses of an instance without requests."""
    return ()


class Holder(NamedTuple):
    """An instance that may have memory open.

    name: in texts, "instance m_0_0 of model 'm' (pid 7)"; end: ends it, for a reason; lingers: its process, where that
    was killed and has not ended (processes.worker.Worker.lingers); uses: walks over the requests that it has, some in
    each step, and gives the id() of each DeviceMemory that they use.
    """

    name: str
    end: Callable[[str], None]
    lingers: str = ""
    uses: Callable[[], Iterable[Set[int]]] = unused


NOT_ENDED: Final = "which was killed and has not ended"
"""Behind Holder.lingers."""


def have_ended(lingering: Sequence[str]) -> str:
    """Who must have ended that was killed: the first one's Holder.lingers, and how many others there are."""
    if len(lingering) == 1:
        return f"{lingering[0]}, {NOT_ENDED}, has"
    return f"{lingering[0]}{and_others(len(lingering) - 1)}, which were killed and have not ended, have"


def others(count: int) -> str:
    """So many that are not named."""
    return "1 other" if count == 1 else f"{count} others"


def and_others(count: int) -> str:
    """Behind the names of the first ones; "" for 0 or less."""
    return f" and {others(count)}" if count > 0 else ""


class By(Enum):
    """Which kind of process a driver has refused, or who has failed before it was asked."""

    BUG = "bug"  # the server
    SERVER = "server"
    INSTANCE = "instance"
    LINGERING = "lingering"  # one that was killed, and has not ended


class Refusal(NamedTuple):
    """Memory is not closed.  who: the process, as in "the server"; reason: the driver's, or of By.BUG the error."""

    by: By
    who: str
    reason: str


class Unclosed(dict[object, Refusal]):
    """Refusals by process.  Whoever has put one in takes it out when the memory is closed."""

    __slots__ = ("__weakref__",)


class Waits(NamedTuple):
    """What something waits for.  remedies: sentences without their full stops."""

    reasons: tuple[str, ...]
    remedies: tuple[str, ...]

    def __str__(self) -> str:
        """Reasons first."""
        return ". ".join(["; ".join(self.reasons), *self.remedies])


class Gone:
    """Whether nobody refers to memory any more, so that its GPU was told to close it.  From any thread."""

    def __init__(self) -> None:
        self.is_told = False
        self._waiting: list[Callable[[], None]] = []

    def tell(self) -> None:
        """It is so.  In a finaliser, in the middle of anything."""
        self.is_told = True
        for each in self._waiting:
            each()

    def then(self, work: Callable[[], None]) -> None:
        """Call this when it is so, maybe twice."""
        self._waiting.append(work)
        if self.is_told:
            work()


class DeviceMemory(Protocol):
    """One opened handle; closed when the last reference is gone.  Addresses are the host's; offsets within `nbytes`.

    uuid: of the GPU that it was opened on; b"" where the driver tells none.  Copies wait for the GPU, so they are made
    in the thread that `lane` names.  is_lent: it is memory of this process; holders: the instances that may have it
    open; unclosed, of a client's: the processes that have it open still, as their driver refuses to close it; gone:
    whether nobody refers to it any more; is_lost: it can be used no more, as its GPU was lost since.
    """

    nbytes: int
    uuid: bytes
    is_lent: bool
    holders: dict[object, Holder]
    unclosed: Unclosed
    gone: Gone

    @property
    def is_lost(self) -> bool:
        """See above."""

    def lane(self, nbytes: int) -> Lane:
        """Where copies of so many bytes are made."""

    def to_host(self, offset: int, address: int, nbytes: int) -> None:
        """Copy out; done when it returns.  Raises Internal."""

    def from_host(self, offset: int, address: int, nbytes: int) -> None:
        """Copy in; done when it returns.  Raises Internal."""

    def from_device(self, offset: int, source: Any, start: int, nbytes: int) -> None:
        """Copy from `start` on of another DeviceMemory, on whatever GPU; done when it returns.  Raises Internal."""


class Devices(Protocol):
    """Whatever can open handles.  count: of GPUs; those below it are there."""

    count: int

    def lane(self, device: int) -> Lane:
        """Where `open` is to be called."""

    async def ready(self, device: int, seconds: float | None) -> None:
        """Before `open`: a GPU that was lost begins anew when no call there is under way, and nobody has memory open
        that was lent there.

        That is waited for so many seconds at most, None: until it is so.  Raises Unavailable.
        """

    def waits(self, device: int) -> Waits:
        """What calls for it wait for."""

    def open(self, handle: bytes, device: int) -> DeviceMemory:
        """handle: HANDLE_BYTES long.  Raises Unopened where the driver refuses it, Unavailable."""
