"""One call to a server without its transport: what to send, and how to read the answer.  Layer 3 (client).

HttpCalls and GrpcCalls make the calls; the transports carry them.  Neither knows whether its user waits or awaits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from tisfast.wire.client_head import RequestHead, ResponseHead
from tisfast.wire.client_request import WantedOutputs
from tisfast.wire.client_response import InferResponse

if TYPE_CHECKING:
    from tisfast.client.transport import Cancel
    from tisfast.wire.buffer_tensor import BufferTensor

T = TypeVar("T")
Parameters = dict[str, bool | int | str | float]
Body = bytes | bytearray | memoryview
Piece = bytes | memoryview
JsonDict = dict[str, Any]


class Call(Generic[T]):
    """Either kind."""

    __slots__ = ("server_timeout_ns",)

    server_timeout_ns: int
    """What the server is told of, 0 for nothing."""


class HttpCall(Call[T]):
    """A request, and what reads its response: read(head, body)."""

    __slots__ = ("head", "head_bytes", "pieces", "read")

    def __init__(
        self,
        head: RequestHead,
        head_bytes: bytes,
        pieces: Sequence[Piece],
        read: Callable[[ResponseHead, Body], T],
    ) -> None:
        self.head = head
        self.head_bytes = head_bytes
        self.pieces = pieces
        self.read = read
        self.server_timeout_ns = 0


class GrpcCall(Call[T]):
    """A message to a method, and what reads the answer's: read(message)."""

    __slots__ = ("encoding", "message", "metadata", "path", "read")

    def __init__(
        self,
        path: str,
        message: bytes | list[Any],
        metadata: Sequence[tuple[str, str]],
        read: Callable[[bytes], T],
    ) -> None:
        self.path = path
        self.message = message
        self.metadata = metadata
        self.read = read
        self.encoding = ""
        self.server_timeout_ns = 0


class Scope(NamedTuple):
    """What holds for all requests that one call makes: an inference may ask for metadata first.

    deadline: of time.monotonic; headers: of each; cancel: what ends them; seconds: that the call has in all.
    """

    deadline: float
    headers: Mapping[str, str] | None = None
    cancel: Cancel | None = None
    seconds: float = 0.0


class InferRequest(NamedTuple):
    """An inference, whatever the protocol.

    server_timeout_ns: 0 for none; headers: of this request alone; served: names of all outputs that the model has.
    """

    model: str
    version: str
    tensors: list[BufferTensor]
    outputs: WantedOutputs | None = None
    parameters: Parameters | None = None
    id: str = ""
    headers: Mapping[str, str] | None = None
    server_timeout_ns: int = 0
    served: tuple[str, ...] = ()


class Calls(Protocol):
    """The calls of one protocol."""

    def infer(self, request: InferRequest) -> Call[InferResponse]:
        """An inference with one answer."""

    def stream(self, request: InferRequest) -> Call[tuple[str, InferResponse]]:
        """An inference with any number of answers.  Raises Unsupported."""

    def ready(self, model: str = "", version: str = "") -> Call[bool]:
        """Whether the server is ready, or a model."""

    def live(self) -> Call[bool]:
        """Whether the server lives."""

    def ask(self, name: str, headers: Mapping[str, str] | None = None, /, **fields: Any) -> Call[JsonDict]:
        """A call of this name of `admin.OPERATIONS`; the answer is what HTTP's JSON has."""
