"""Waiting for servers and models in an event loop.  The client is an AsyncClient of `tisfast.client`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from tisfast.client import AsyncClient
from tisfast.pytriton.client.base import client_errors
from tisfast.pytriton.client.url import TritonUrl
from tisfast.pytriton.client.utils import (
    LATEST_MODEL_VERSION,
    LOOK_SECONDS,
    NETWORK_TIMEOUT_S,
    NOT_READY_ERRORS,
    WAITING_ERROR,
    Looks,
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
    with client_errors():
        return read_config(await client.model(model_name, model_version or "").config(), model_version)


async def asyncio_get_model_state(client: AsyncClient, model_name: str, model_version: str | None = None) -> ModelState:
    """UNAVAILABLE for a model that the server does not know, too."""
    with client_errors():
        return state_in(await client.models(), model_name, model_version)


def _not_ready(model_name: str, model_version: str | None) -> str:
    return f"Timeout while waiting for model {model_name}/{model_version or LATEST_MODEL_VERSION} to be ready"


async def _until(
    ready: Callable[[], Awaitable[bool]], timeout_s: float, message: str, first_pause: float = LOOK_SECONDS[0]
) -> None:
    looks = Looks(timeout_s, message, first_pause)
    while not await _is_ready(ready, max(looks.remaining_s, first_pause)):
        await asyncio.sleep(looks.pause_s())


async def _is_ready(ask: Callable[[], Awaitable[bool]], timeout_s: float) -> bool:
    """See is_ready."""
    try:
        with client_errors(WAITING_ERROR, but=NOT_READY_ERRORS):
            return await _within(ask(), timeout_s)
    except NOT_READY_ERRORS:
        return False


async def _within(asking: Awaitable[bool], timeout_s: float) -> bool:
    """False when the time is over.  Not wait_for: before Python 3.12 it loses a cancel that comes with the answer."""
    task = asyncio.ensure_future(asking)
    try:
        done, _ = await asyncio.wait([task], timeout=timeout_s)
        if not done:
            task.cancel()
            await asyncio.wait([task])  # it lets go of its connection
        return not task.cancelled() and task.result()
    finally:
        task.cancel()
