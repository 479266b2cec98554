"""Clients of models."""

from tisfast.pytriton.client.asyncio_clients import AsyncioDecoupledModelClient, AsyncioModelClient
from tisfast.pytriton.client.client import DecoupledModelClient, ModelClient
from tisfast.pytriton.client.futures import FuturesModelClient

__all__ = [
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "DecoupledModelClient",
    "FuturesModelClient",
    "ModelClient",
]
