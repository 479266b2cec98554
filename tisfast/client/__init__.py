"""The client: `Client("localhost:8000").model("add_sub")(a, b)`, over HTTP and gRPC (docs/client.md).  Layer 3.

Importing it loads numpy and the wire's modules, and nothing of the server; AsyncClient brings asyncio when it is used.
"""

from __future__ import annotations

from tisfast.client.address import Tls
from tisfast.client.arrays import Classification, classification
from tisfast.client.checks import ModelMetadata, TensorMetadata
from tisfast.client.errors import (
    BadRequest,
    BadResponse,
    Cancelled,
    ConnectFailed,
    ConnectionLost,
    Internal,
    NotFound,
    TimedOut,
    TisError,
    Unavailable,
    Unsupported,
)
from tisfast.client.options import CallOptions, ClientOptions
from tisfast.client.results import Result
from tisfast.client.retries import Retries
from tisfast.client.sync_client import Client, Model

__all__ = [
    "BadRequest", "BadResponse", "CallOptions", "Cancelled", "Classification", "Client", "ClientOptions",
    "ConnectFailed", "ConnectionLost", "Internal", "Model", "ModelMetadata", "NotFound", "Result", "Retries",
    "TensorMetadata", "TimedOut", "TisError", "Tls", "Unavailable", "Unsupported", "classification",
]  # fmt: skip
