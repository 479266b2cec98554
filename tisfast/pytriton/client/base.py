"""What all clients of a model do alike: arguments, the batch dimension, errors.  Nothing here waits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import numpy as np

from tisfast.client import ConnectFailed, ConnectionLost, TimedOut, TisError
from tisfast.pytriton.client.auth import create_auth_headers
from tisfast.pytriton.client.exceptions import (
    PyTritonClientInferenceServerError,
    PyTritonClientModelDoesntSupportBatchingError,
    PyTritonClientTimeoutError,
    PyTritonClientValueError,
)
from tisfast.pytriton.client.url import TritonUrl
from tisfast.pytriton.model_config.triton_model_config import TritonModelConfig

Array: TypeAlias = np.ndarray[Any, Any]
Values: TypeAlias = dict[str, str | int | bool]

DEFAULT_INIT_TIMEOUT_S: Final = 300.0
DEFAULT_INFERENCE_TIMEOUT_S: Final = 60.0
_UNREACHABLE: Final = (TimedOut, ConnectFailed, ConnectionLost)


class BaseModelClient:
    """A model of a server, by the server's URL; subclasses ask it."""

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
        """url: [http|grpc://]HOST[:PORT].  Raises PyTritonClientInvalidUrlError.

        lazy_init: nothing is asked before the first use, which waits at most init_timeout_s for server and model.
        model_config, ensure_model_is_ready: what is known already, and whether to wait.  access_token: for servers that
        restrict calls.
        """
        self._url = TritonUrl.from_url(url)
        self._model_name, self._model_version = model_name, model_version
        self._init_timeout_s = DEFAULT_INIT_TIMEOUT_S if init_timeout_s is None else init_timeout_s
        self._inference_timeout_s = DEFAULT_INFERENCE_TIMEOUT_S if inference_timeout_s is None else inference_timeout_s
        self._model_config = model_config
        self._ensure_ready = ensure_model_is_ready
        self._ids = itertools.count()
        self._headers = create_auth_headers(access_token, self._url.scheme) if access_token else {}
        self._access_token, self._lazy_init = access_token, lazy_init

    def _next_request_id(self) -> str:
        return str(next(self._ids))

    def _shared(self) -> dict[str, Any]:
        """Keywords for a client of the same model, which needs not wait for it."""
        shared = {"model_config": self._model_config, "ensure_model_is_ready": False} if self._model_config else {}
        return {
            "init_timeout_s": self._init_timeout_s,
            "inference_timeout_s": self._inference_timeout_s,
            "access_token": self._access_token,
            **shared,
        }


def read_inputs(inputs: Sequence[Any], named: Mapping[str, Any], config: TritonModelConfig) -> dict[str, Any]:
    """Inputs by name, of a call's arguments.  Raises PyTritonClientValueError."""
    if named:
        found = dict(named)
    else:
        names = [spec.name for spec in config.inputs or ()]
        if len(inputs) > len(names):
            raise PyTritonClientValueError(
                f"{len(inputs)} inputs were given, and model {config.model_name} has {len(names)}: {', '.join(names)}"
            )
        found = dict(zip(names, inputs, strict=False))
    for name, value in found.items():
        _check_array(name, value)
    return found


def check_arguments(inputs: Sequence[Any], named: Mapping[str, Any], parameters: Any, headers: Any) -> None:
    """What can be said before the model is known.  Raises PyTritonClientValueError."""
    check_values("parameters", parameters)
    check_values("headers", headers)
    if not inputs and not named:
        raise PyTritonClientValueError("Provide input data")
    if inputs and named:
        raise PyTritonClientValueError("Use either positional either keyword method arguments convention")


def _check_array(name: str, value: Any) -> None:
    if not isinstance(value, np.ndarray):
        raise PyTritonClientValueError(f"Input '{name}' is a {type(value).__name__}; give a NumPy array")
    if value.dtype.kind == "U":
        raise RuntimeError(
            f"Input '{name}' is an array of {value.dtype}: text is sent as bytes; encode it, as with np.char.encode"
        )
    if value.dtype.kind == "O" and value.size and not isinstance(value.flat[0], bytes):
        raise RuntimeError(f"Input '{name}' is an array of objects, and only bytes can be sent as such")


def check_values(kind: str, values: Any) -> None:
    """Raises PyTritonClientValueError.  kind: "parameters" or "headers"."""
    if values is None:
        return
    if not isinstance(values, dict):
        raise PyTritonClientValueError(f"{kind} must be a dictionary, not a {type(values).__name__}")
    for name, value in values.items():
        if not isinstance(name, str):
            raise PyTritonClientValueError(f"A name in {kind} is {name!r}; names must be text")
        if not isinstance(value, str | int | bool):
            raise PyTritonClientValueError(f"{kind}[{name!r}] is {value!r}; values must be text, integers or booleans")


def batching_of(config: TritonModelConfig) -> bool:
    """Whether the model takes batches."""
    return config.max_batch_size > 0


def check_batching(config: TritonModelConfig) -> None:
    """Raises PyTritonClientModelDoesntSupportBatchingError."""
    if not batching_of(config):
        raise PyTritonClientModelDoesntSupportBatchingError(
            f"Model {config.model_name} doesn't support batching - use infer_sample method instead"
        )


def check_decoupled(config: TritonModelConfig, decoupled: bool) -> None:
    """Raises PyTritonClientInferenceServerError for a client of the other kind."""
    if config.decoupled != decoupled:
        kind, client = ("decoupled", "DecoupledModelClient") if config.decoupled else ("coupled", "ModelClient")
        raise PyTritonClientInferenceServerError(
            f"Model {config.model_name} is {kind}, and can't be asked by this client; use {client}"
        )


def with_batch(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """A batch of one."""
    return {name: array[np.newaxis, ...] for name, array in inputs.items()}


def without_batch(outputs: Mapping[str, Array]) -> dict[str, Array]:
    """The only one of a batch.  Raises PyTritonClientInferenceServerError for other batches."""
    odd = [f"{name}: {array.shape}" for name, array in outputs.items() if not array.ndim or array.shape[0] != 1]
    if odd:
        raise PyTritonClientInferenceServerError(
            f"Received output tensors with different batch sizes: {', '.join(odd)}. Expected batch size: 1."
        )
    return {name: array[0] for name, array in outputs.items()}


def options_of(
    request_id: str, config: TritonModelConfig, parameters: Values | None, headers: Values | None
) -> dict[str, Any]:
    """What goes with the inputs: all outputs of the configuration are wanted."""
    options: dict[str, Any] = {"id": request_id, "outputs": [spec.name for spec in config.outputs or ()]}
    if parameters:
        options["parameters"] = parameters
    if headers:
        options["headers"] = {name: str(value) for name, value in headers.items()}
    return options


@contextmanager
def client_errors(
    prefix: str = "Error occurred during inference request. Message: ", but: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """What tisfast's client raises, as PyTriton's errors.  but: errors that stay what they are."""
    try:
        yield
    except but:
        raise
    except _UNREACHABLE as error:
        raise PyTritonClientTimeoutError(f"Timeout occurred during inference request. Message: {error}") from error
    except TisError as error:
        raise PyTritonClientInferenceServerError(f"{prefix}{error}") from error
