"""Clients that are awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, TypeVar

import tisfast.client
from tisfast.client import AsyncClient
from tisfast.pytriton.client import base
from tisfast.pytriton.client.asyncio_utils import (
    asyncio_get_model_config,
    asyncio_wait_for_model_ready,
    create_asyncio_client,
)
from tisfast.pytriton.client.base import Array, BaseModelClient, Values, client_errors
from tisfast.pytriton.client.exceptions import PyTritonClientClosedError, PyTritonClientValueError
from tisfast.pytriton.client.utils import read_config
from tisfast.pytriton.model_config.triton_model_config import TritonModelConfig

Kind = TypeVar("Kind", bound="AsyncioModelClient")
_SERVER_ERROR = "Error occurred on Triton Inference Server side:\n "


class AsyncioModelClient(BaseModelClient):
    """Asks a model over HTTP or gRPC, any number of times at once.  All calls are awaited, in one event loop."""

    def __init__(  # noqa: PLR0913 - PyTriton's
        self,
        url: str,
        model_name: str,
        model_version: str | None = None,
        *,
        lazy_init: bool = True,
        init_timeout_s: float | None = None,
        inference_timeout_s: float | None = None,
        model_config: TritonModelConfig | None = None,
        ensure_model_is_ready: bool = True,
        access_token: str | None = None,
    ) -> None:
        """See BaseModelClient.  Without lazy_init `async with` waits for the model."""
        super().__init__(
            url,
            model_name,
            model_version,
            lazy_init=lazy_init,
            init_timeout_s=init_timeout_s,
            inference_timeout_s=inference_timeout_s,
            model_config=model_config,
            ensure_model_is_ready=ensure_model_is_ready,
            access_token=access_token,
        )
        self._closed = False
        self._client = self.create_client_from_url(url, self._inference_timeout_s)
        self._model = self._client.model(model_name, model_version or "")
        self._asking: asyncio.Task[TritonModelConfig] | None = None

    @classmethod
    def from_existing_client(cls: type[Kind], existing_client: BaseModelClient) -> Kind:
        """A client of the same model, which shares the configuration."""
        return cls(
            existing_client._url.with_scheme,
            existing_client._model_name,
            existing_client._model_version,
            **existing_client._shared(),
        )

    def create_client_from_url(self, url: str, network_timeout_s: float | None = None) -> AsyncClient:
        """The client of `tisfast.client` that carries the calls."""
        return create_asyncio_client(url, network_timeout_s, self._headers)

    def get_lib(self) -> Any:
        """The package of that client."""
        return tisfast.client

    async def __aenter__(self: Kind) -> Kind:
        """For `async with`."""
        if not self._lazy_init:
            await self._known_config()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """As `close`."""
        await self.close()

    async def close(self) -> None:
        """End all connections; no further call is possible."""
        self._closed = True
        if self._asking is not None:
            self._asking.cancel()
        await self._client.close()

    async def wait_for_model(self, timeout_s: float) -> None:
        """Raises PyTritonClientTimeoutError when the model is not ready in time."""
        self._check_open()
        await asyncio_wait_for_model_ready(self._client, self._model_name, self._model_version, timeout_s)

    @property
    async def model_config(self) -> TritonModelConfig:
        """The configuration, asked once.  Raises PyTritonClientTimeoutError."""
        self._check_open()
        return await self._known_config()

    async def infer_sample(
        self, *inputs: Array, parameters: Values | None = None, headers: Values | None = None, **named_inputs: Array
    ) -> dict[str, Array]:
        """Ask about one sample, without a batch dimension.

        Raises PyTritonClientValueError, PyTritonClientTimeoutError, PyTritonClientInferenceServerError.
        """
        config, given = await self._read(inputs, named_inputs, parameters, headers)
        if not base.batching_of(config):
            return await self._infer(config, given, parameters, headers)
        return base.without_batch(await self._infer(config, base.with_batch(given), parameters, headers))

    async def infer_batch(
        self, *inputs: Array, parameters: Values | None = None, headers: Values | None = None, **named_inputs: Array
    ) -> dict[str, Array]:
        """Ask about a batch.  Raises as infer_sample, and PyTritonClientModelDoesntSupportBatchingError."""
        config, given = await self._read(inputs, named_inputs, parameters, headers)
        base.check_batching(config)
        return await self._infer(config, given, parameters, headers)

    # ---- parts

    _decoupled = False

    async def _read(
        self, inputs: tuple[Any, ...], named: Mapping[str, Any], parameters: Any, headers: Any
    ) -> tuple[TritonModelConfig, dict[str, Array]]:
        self._check_open()
        base.check_arguments(inputs, named, parameters, headers)
        config = await self._known_config()
        base.check_decoupled(config, self._decoupled)
        return config, base.read_inputs(inputs, named, config)

    async def _infer(
        self, config: TritonModelConfig, inputs: Mapping[str, Array], parameters: Values | None, headers: Values | None
    ) -> dict[str, Array]:
        options = base.options_of(self._next_request_id(), config, parameters, headers)
        with client_errors(_SERVER_ERROR):
            return (await self._model.infer(inputs, **options)).asdict()

    async def _known_config(self) -> TritonModelConfig:
        """Asked once, however many calls wait for it."""
        if self._model_config is not None:
            return self._model_config
        asking = self._asking
        if asking is None:
            asking = self._asking = asyncio.ensure_future(self._ask_config())
            asking.add_done_callback(self._forget)
        try:
            self._model_config = await asyncio.shield(asking)
        except asyncio.CancelledError:
            if self._closed and asking.cancelled() and not _is_cancelled(asyncio.current_task()):
                raise PyTritonClientClosedError("Client was closed before the model was ready") from None
            raise
        return self._model_config

    async def _ask_config(self) -> TritonModelConfig:
        if self._ensure_ready:
            return await asyncio_get_model_config(
                self._client, self._model_name, self._model_version, self._init_timeout_s
            )
        with client_errors(_SERVER_ERROR):
            return read_config(await self._model.config(), self._model_version)

    def _forget(self, asked: asyncio.Task[TritonModelConfig]) -> None:
        self._asking = None
        if not asked.cancelled():
            asked.exception()  # whoever waited has it; nobody may be left

    def _check_open(self) -> None:
        if self._closed:
            raise PyTritonClientClosedError("Client is closed")


def _is_cancelled(task: asyncio.Task[Any] | None) -> bool:
    """Whether somebody has cancelled it; Python 3.10 does not tell."""
    cancelling = getattr(task, "cancelling", None)
    return cancelling is not None and cancelling() > 0


class AsyncioDecoupledModelClient(AsyncioModelClient):
    """Asks a decoupled model over gRPC: `async for answer in client.infer_sample(...)`."""

    _decoupled = True

    async def infer_sample(  # type: ignore[override]
        self, *inputs: Array, parameters: Values | None = None, headers: Values | None = None, **named_inputs: Array
    ) -> AsyncIterator[dict[str, Array]]:
        """The answers about one sample.  Raises as AsyncioModelClient."""
        config, given = await self._read(inputs, named_inputs, parameters, headers)
        batching = base.batching_of(config)
        inputs_sent = base.with_batch(given) if batching else given
        async for outputs in self._stream(config, inputs_sent, parameters, headers):
            yield base.without_batch(outputs) if batching else outputs

    async def infer_batch(  # type: ignore[override]
        self, *inputs: Array, parameters: Values | None = None, headers: Values | None = None, **named_inputs: Array
    ) -> AsyncIterator[dict[str, Array]]:
        """The answers about a batch.  Raises as AsyncioModelClient."""
        config, given = await self._read(inputs, named_inputs, parameters, headers)
        base.check_batching(config)
        async for outputs in self._stream(config, given, parameters, headers):
            yield outputs

    async def _read(
        self, inputs: tuple[Any, ...], named: Mapping[str, Any], parameters: Any, headers: Any
    ) -> tuple[TritonModelConfig, dict[str, Array]]:
        if self._url.scheme == "http":
            raise PyTritonClientValueError("AsyncioDecoupledModelClient is only supported for grpc protocol")
        return await super()._read(inputs, named, parameters, headers)

    async def _stream(
        self, config: TritonModelConfig, inputs: Mapping[str, Array], parameters: Values | None, headers: Values | None
    ) -> AsyncIterator[dict[str, Array]]:
        options = base.options_of(self._next_request_id(), config, parameters, headers)
        named = {**{name: value for name, value in options.items() if name not in inputs}, **inputs}
        with client_errors(_SERVER_ERROR):
            async with self._model.stream(**named) as answers:
                async for each in answers:
                    yield each.asdict()
