"""Waiting for servers and models in an event loop.  The client is an AsyncClient of `tisfast.client`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from tisfast.client import AsyncClient, BadRequest, NotFound, Unavailable
from tisfast.pytriton.client.exceptions import PyTritonClientTimeoutError
from tisfast.pytriton.client.url import TritonUrl
from tisfast.pytriton.client.utils import (
    LATEST_MODEL_VERSION,
    LOOK_SECONDS,
    NETWORK_TIMEOUT_S,
    ModelState,
    read_config,
    state_in,
)
from tisfast.pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = [
    "LATEST_MODEL_VERSION",
    "ModelState",
    "asyncio_get_model_config",
    "asyncio_get_model_state",
    "asyncio_wait_for_model_ready",
    "asyncio_wait_for_model_status_loaded",
    "asyncio_wait_for_server_ready",
    "create_asyncio_client",
]

WAIT_SECONDS: Final = 60.0


def create_asyncio_client(
    url: str, network_timeout_s: float | None = None, headers: Mapping[str, str] | None = None
) -> AsyncClient:
    """A client of the server.  Raises PyTritonClientInvalidUrlError."""
    timeout = NETWORK_TIMEOUT_S if network_timeout_s is None else network_timeout_s
    return AsyncClient(TritonUrl.from_url(url).with_scheme, timeout=timeout, retries=0, headers=dict(headers or {}))


async def asyncio_wait_for_server_ready(
    asyncio_client: AsyncClient, sleep_time_s: float = LOOK_SECONDS[0], timeout_s: float = WAIT_SECONDS
) -> None:
    """Raises PyTritonClientTimeoutError when the server is not live and ready in time.  sleep_time_s: between looks."""

    async def ready() -> bool:
        return await asyncio_client.live() and await asyncio_client.ready()

    await _until(ready, timeout_s, "Timeout while waiting for server to be ready", sleep_time_s)


async def asyncio_wait_for_model_status_loaded(
    asyncio_client: AsyncClient,
    model_name: str,
    sleep_time_s: float = LOOK_SECONDS[0],
    model_version: str | None = None,
    timeout_s: float = WAIT_SECONDS,
) -> None:
    """Raises PyTritonClientTimeoutError when the model is not loaded in time."""
    model = asyncio_client.model(model_name, model_version or "")
    await _until(model.ready, timeout_s, _not_ready(model_name, model_version), sleep_time_s)


async def asyncio_wait_for_model_ready(
    asyncio_client: AsyncClient, model_name: str, model_version: str | None = None, timeout_s: float = WAIT_SECONDS
) -> None:
    """Raises PyTritonClientTimeoutError when server and model are not ready in time."""
    model = asyncio_client.model(model_name, model_version or "")

    async def ready() -> bool:
        return await asyncio_client.live() and await asyncio_client.ready() and await model.ready()

    await _until(ready, timeout_s, _not_ready(model_name, model_version))


async def asyncio_get_model_config(
    client: AsyncClient, model_name: str, model_version: str | None = None, timeout_s: float = WAIT_SECONDS
) -> TritonModelConfig:
    """The configuration of a model, for which it waits.  Raises PyTritonClientTimeoutError."""
    await asyncio_wait_for_model_ready(client, model_name, model_version, timeout_s)
    return read_config(await client.model(model_name, model_version or "").config(), model_version)


async def asyncio_get_model_state(client: AsyncClient, model_name: str, model_version: str | None = None) -> ModelState:
    """UNAVAILABLE for a model that the server does not know, too."""
    return state_in(await client.models(), model_name, model_version)


def _not_ready(model_name: str, model_version: str | None) -> str:
    return f"Timeout while waiting for model {model_name}/{model_version or LATEST_MODEL_VERSION} to be ready"


async def _until(
    ready: Callable[[], Awaitable[bool]], timeout_s: float, message: str, first_pause: float = LOOK_SECONDS[0]
) -> None:
    deadline, pause = time.monotonic() + timeout_s, first_pause
    while True:
        remaining = deadline - time.monotonic()
        try:
            if await asyncio.wait_for(ready(), max(remaining, first_pause)):
                return
        except (Unavailable, NotFound, BadRequest, TimeoutError, asyncio.TimeoutError, OSError):
            pass
        if remaining <= 0:
            raise PyTritonClientTimeoutError(message)
        await asyncio.sleep(min(pause, remaining))
        pause = min(2 * pause, max(LOOK_SECONDS[1], first_pause))
