"""The client: `Client("localhost:8000").model("add_sub")(a, b)`, over HTTP and gRPC (docs/client.md).  Layer 3.

Importing it loads numpy and the wire's modules, and nothing of the server; AsyncClient brings asyncio when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tisfast.client.address import Tls
from tisfast.client.arrays import Classification, classification
from tisfast.client.checks import ModelMetadata, TensorMetadata
from tisfast.client.errors import (
    AlreadyExists,
    BadRequest,
    BadResponse,
    Cancelled,
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    Forbidden,
    Internal,
    NotFound,
    TimedOut,
    TisError,
    Unauthenticated,
    Unavailable,
    Unknown,
    Unsupported,
)
from tisfast.client.options import CallOptions, ClientOptions
from tisfast.client.results import Result
from tisfast.client.retries import Retries
from tisfast.client.sync_client import Client, Model

if TYPE_CHECKING:
    from tisfast.client.async_client import AsyncClient, AsyncModel

__all__ = [
    "AlreadyExists", "AsyncClient", "AsyncModel", "BadRequest", "BadResponse", "CallOptions", "Cancelled",
    "Classification", "Client", "ClientClosed", "ClientOptions", "ConnectFailed", "ConnectionLost", "Forbidden",
    "Internal", "Model", "ModelMetadata", "NotFound", "Result", "Retries", "TensorMetadata", "TimedOut", "TisError",
    "Tls", "Unauthenticated", "Unavailable", "Unknown", "Unsupported", "classification",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Of the client that is awaited, with the first use: asyncio takes longer to import than all of this."""
    if name in ("AsyncClient", "AsyncModel"):
        from tisfast.client import async_client  # noqa: PLC0415

        return getattr(async_client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
