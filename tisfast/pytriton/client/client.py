"""Clients that wait: one call at a time, and streams of decoupled models."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeVar

import tisfast.client
from tisfast.client import Client
from tisfast.pytriton.client import base
from tisfast.pytriton.client.base import Array, BaseModelClient, Values, client_errors
from tisfast.pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientInferenceServerError,
    PyTritonClientValueError,
)
from tisfast.pytriton.client.url import TritonUrl
from tisfast.pytriton.client.utils import (
    create_client_from_url,
    not_ready,
    read_config,
    until,
    wait_for_model_ready,
    wait_for_server_ready,
)
from tisfast.pytriton.model_config.triton_model_config import TritonModelConfig

Kind = TypeVar("Kind", bound="ModelClient")


class ModelClient(BaseModelClient):
    """Asks a model over HTTP or gRPC.  Any number of threads may use it."""

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
        """See BaseModelClient.  Without lazy_init it waits for the model.  Raises PyTritonClientTimeoutError, too."""
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
        self._lock = threading.Lock()
        self._closed = False
        self._client = self.create_client_from_url(url, self._inference_timeout_s)
        self._model = self._client.model(model_name, model_version or "")
        weakref.finalize(self, self._client.close)
        if not lazy_init:
            self._known_config()

    @classmethod
    def from_existing_client(cls: type[Kind], existing_client: BaseModelClient) -> Kind:
        """A client of the same model, which shares the configuration."""
        return cls(
            existing_client._url.with_scheme,
            existing_client._model_name,
            existing_client._model_version,
            **existing_client._shared(),
        )

    def create_client_from_url(self, url: str, network_timeout_s: float | None = None) -> Client:
        """The client of `tisfast.client` that carries the calls."""
        return create_client_from_url(url, network_timeout_s, self._headers)

    def get_lib(self) -> Any:
        """The package of that client."""
        return tisfast.client

    def __enter__(self: Kind) -> Kind:
        """For `with`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """As `close`."""
        self.close()

    def close(self) -> None:
        """End all connections; no further call is possible."""
        self._closed = True
        self._client.close()

    def wait_for_server(self, timeout_s: float) -> None:
        """Raises PyTritonClientTimeoutError when the server is not ready in time."""
        self._check_open()
        wait_for_server_ready(self._client, timeout_s, check=self._check_open)

    def wait_for_model(self, timeout_s: float) -> None:
        """Raises PyTritonClientTimeoutError when the model is not ready in time."""
        self._check_open()
        self._wait_for_model(timeout_s)

    def load_model(self, config: str | None = None, files: Mapping[str, bytes] | None = None) -> None:
        """Have the server load the model.  config: JSON; files: by VERSION/NAME.  Raises PyTritonClientError."""
        self._check_open()
        with client_errors("Error occurred while the model was loaded. Message: "):
            self._client.load(self._model_name, config, dict(files) if files else None)

    def unload_model(self) -> None:
        """Have the server unload it.  Raises PyTritonClientError."""
        self._check_open()
        with client_errors("Error occurred while the model was unloaded. Message: "):
            self._client.unload(self._model_name)

    @property
    def model_config(self) -> TritonModelConfig:
        """The configuration, asked once.  Raises PyTritonClientTimeoutError."""
        self._check_open()
        return self._known_config()

    @property
    def is_batching_supported(self) -> bool:
        """Whether inputs may be batches."""
        return base.batching_of(self.model_config)

    def infer_sample(
        self, *inputs: Array, parameters: Values | None = None, headers: Values | None = None, **named_inputs: Array
    ) -> Any:
        """Ask about one sample, without a batch dimension.

        Raises PyTritonClientValueError, PyTritonClientTimeoutError, PyTritonClientInferenceServerError.
        """
        config, given = self._read(inputs, named_inputs, parameters, headers)
        if not base.batching_of(config):
            return self._infer(config, given, parameters, headers)
        return self._of_one(self._infer(config, base.with_batch(given), parameters, headers))

    def infer_batch(
        self, *inputs: Array, parameters: Values | None = None, headers: Values | None = None, **named_inputs: Array
    ) -> Any:
        """Ask about a batch.  Raises as infer_sample, and PyTritonClientModelDoesntSupportBatchingError."""
        config, given = self._read(inputs, named_inputs, parameters, headers)
        base.check_batching(config)
        return self._infer(config, given, parameters, headers)

    # ---- parts

    _decoupled = False

    def _read(
        self, inputs: tuple[Any, ...], named: Mapping[str, Any], parameters: Any, headers: Any
    ) -> tuple[TritonModelConfig, dict[str, Array]]:
        self._check_open()
        base.check_arguments(inputs, named, parameters, headers)
        config = self._known_config()
        base.check_decoupled(config, self._decoupled)
        return config, base.read_inputs(inputs, named, config)

    def _infer(
        self, config: TritonModelConfig, inputs: Mapping[str, Array], parameters: Values | None, headers: Values | None
    ) -> Any:
        options = base.options_of(self._next_request_id(), config, parameters, headers)
        with client_errors():
            return self._model.infer(inputs, **options).asdict()

    def _of_one(self, outputs: Any) -> Any:
        return base.without_batch(outputs)

    def _known_config(self) -> TritonModelConfig:
        config = self._model_config
        if config is not None:
            return config
        with self._lock:
            if self._model_config is None:
                if self._ensure_ready:
                    self._wait_for_model(self._init_timeout_s)
                self._model_config = self._ask_config()
            return self._model_config

    def _wait_for_model(self, timeout_s: float) -> None:
        """Raises PyTritonClientClosedError, too: another thread may close the client."""
        wait_for_model_ready(self._client, self._model_name, self._model_version, timeout_s, check=self._check_open)

    def _ask_config(self) -> TritonModelConfig:
        found: list[TritonModelConfig] = []

        def ask() -> bool:
            found.append(read_config(self._model.config(), self._model_version))
            return True

        with client_errors():
            until(ask, self._init_timeout_s, not_ready(self._model_name, self._model_version), self._check_open)
        return found[0]

    def _check_open(self) -> None:
        if self._closed:
            raise PyTritonClientClosedError("Client is closed")


class DecoupledModelClient(ModelClient):
    """Asks a decoupled model over gRPC: each call gives an iterator of its answers.  One call at a time."""

    _decoupled = True

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
        """See BaseModelClient.  Raises PyTritonClientValueError for a URL of HTTP."""
        if TritonUrl.from_url(url).scheme == "http":
            raise PyTritonClientValueError("DecoupledModelClient is only supported for grpc protocol")
        self._running: Callable[[], Any] = lambda: None  # the answers of the call that is not over
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

    def close(self) -> None:
        """As of others; a call that is not over ends, and the server is told."""
        running = self._running()
        if running is not None:
            running.cancel()
        super().close()

    def _read(
        self, inputs: tuple[Any, ...], named: Mapping[str, Any], parameters: Any, headers: Any
    ) -> tuple[TritonModelConfig, dict[str, Array]]:
        if parameters is not None or headers is not None:
            raise PyTritonClientValueError("DecoupledModelClient does not support parameters or headers")
        return super()._read(inputs, named, parameters, headers)

    def _infer(
        self, config: TritonModelConfig, inputs: Mapping[str, Array], parameters: Values | None, headers: Values | None
    ) -> Any:
        with self._lock:
            running = self._running()
            if running is not None and not running.over:
                raise PyTritonClientInferenceServerError("Inference is already in progress")
            options = base.options_of(self._next_request_id(), config, parameters, headers)
            named = {**{name: value for name, value in options.items() if name not in inputs}, **inputs}
            with client_errors():
                answers = Answers(self._model.stream(**named))
            self._running = weakref.ref(answers)
        return answers

    def _of_one(self, outputs: Any) -> Any:
        outputs.of_one = True
        return outputs


class Answers(Iterator[dict[str, Array]]):
    """The answers of a decoupled model to one request.  `over`: none follows.

    of_one: they are of a batch of one, which is taken away.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.over = self.of_one = False

    def __next__(self) -> dict[str, Array]:
        """The next one.  Raises PyTritonClientInferenceServerError, PyTritonClientTimeoutError."""
        if self.over:
            raise StopIteration
        try:
            with client_errors():
                outputs = next(self._stream).asdict()
            return base.without_batch(outputs) if self.of_one else outputs
        except BaseException:
            self.over = True
            raise

    def cancel(self) -> None:
        """No further one is wanted."""
        self.over = True
        self._stream.cancel()

    def __del__(self) -> None:
        """Who leaves early has the server stop."""
        self.cancel()
