"""Values that every layer may know: data types and status codes, each stated once.  No I/O, no state.

Layer 0: imports the standard library only.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple


class Status(IntEnum):
    """Triton's error codes (TRITONSERVER_Error_Code + 1; 0 is success), as they travel in rings and to clients.

    The last two are tisfast's own, of fronts alone: a worker never sends them.
    """

    OK = 0
    UNKNOWN = 1
    INTERNAL = 2
    NOT_FOUND = 3
    INVALID_ARG = 4
    UNAVAILABLE = 5
    UNSUPPORTED = 6
    ALREADY_EXISTS = 7
    CANCELLED = 8
    UNAUTHENTICATED = 9
    FORBIDDEN = 10


class StatusCodes(NamedTuple):
    """The codes of one status on the wires: HTTP status and gRPC code number."""

    http: int
    grpc: int
    text: str


STATUS_CODES: Final[dict[Status, StatusCodes]] = {
    Status.OK: StatusCodes(200, 0, "OK"),
    Status.UNKNOWN: StatusCodes(400, 2, "Unknown"),
    Status.INTERNAL: StatusCodes(500, 13, "Internal"),
    Status.NOT_FOUND: StatusCodes(404, 5, "Not found"),
    Status.INVALID_ARG: StatusCodes(400, 3, "Invalid argument"),
    Status.UNAVAILABLE: StatusCodes(503, 14, "Unavailable"),
    Status.UNSUPPORTED: StatusCodes(501, 12, "Unsupported"),
    Status.ALREADY_EXISTS: StatusCodes(400, 6, "Already exists"),
    Status.CANCELLED: StatusCodes(400, 1, "Cancelled"),
    Status.UNAUTHENTICATED: StatusCodes(401, 16, "Unauthenticated"),
    Status.FORBIDDEN: StatusCodes(403, 7, "Permission denied"),
}


EXECUTED_FIELD: Final = "tisfast-executed"
"""Header of a 503, trailer of an UNAVAILABLE: a model may have executed the request, or a part of it."""
HANDLE_BYTES: Final = 64
"""sizeof(cudaIpcMemHandle_t), which is the CUDA driver's CUipcMemHandle."""


class DataType(NamedTuple):
    """One tensor element type.

    code: number in ModelConfig's DataType enum and on the worker wire; wire: KServe name; config: ModelConfig name;
    size: bytes of an element, 0 for BYTES (variable); numpy: dtype string, "" where numpy has none (BF16).
    """

    code: int
    wire: str
    config: str
    size: int
    numpy: str


DATA_TYPES: Final[tuple[DataType, ...]] = (
    DataType(1, "BOOL", "TYPE_BOOL", 1, "?"),
    DataType(2, "UINT8", "TYPE_UINT8", 1, "<u1"),
    DataType(3, "UINT16", "TYPE_UINT16", 2, "<u2"),
    DataType(4, "UINT32", "TYPE_UINT32", 4, "<u4"),
    DataType(5, "UINT64", "TYPE_UINT64", 8, "<u8"),
    DataType(6, "INT8", "TYPE_INT8", 1, "<i1"),
    DataType(7, "INT16", "TYPE_INT16", 2, "<i2"),
    DataType(8, "INT32", "TYPE_INT32", 4, "<i4"),
    DataType(9, "INT64", "TYPE_INT64", 8, "<i8"),
    DataType(10, "FP16", "TYPE_FP16", 2, "<f2"),
    DataType(11, "FP32", "TYPE_FP32", 4, "<f4"),
    DataType(12, "FP64", "TYPE_FP64", 8, "<f8"),
    DataType(13, "BYTES", "TYPE_STRING", 0, "O"),
    DataType(14, "BF16", "TYPE_BF16", 2, ""),
)
BY_CODE: Final[dict[int, DataType]] = {t.code: t for t in DATA_TYPES}
BY_WIRE: Final[dict[str, DataType]] = {t.wire: t for t in DATA_TYPES}
NAMESPACE_SIGN: Final = "::"
"""Between a model's namespace and its name, in what tells it from its namesakes."""
API_CATEGORIES: Final = (
    *("health", "metadata", "inference", "shared-memory", "model-config", "model-repository", "statistics", "trace"),
    "logging",
)
"""Categories of calls that --http-restricted-api and --grpc-restricted-protocol name."""


def identity_of(namespace: str, name: str) -> str:
    """The identity of a model among those of its name in other namespaces: its name alone where there are none."""
    return f"{namespace}{NAMESPACE_SIGN}{name}" if namespace else name


def split_identity(identity: str) -> tuple[str, str]:
    """Namespace and name; for servers with --model-namespacing, where no name has the sign in it."""
    namespace, _, name = identity.rpartition(NAMESPACE_SIGN)
    return namespace, name


NO_DEVICE: Final = -1
"""The GPU of a model whose inputs come in host memory."""
