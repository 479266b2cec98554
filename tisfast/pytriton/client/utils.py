"""Waiting for servers and models, and what is known of them.  The client is one of `tisfast.client`."""

from __future__ import annotations

import enum
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tisfast.client import BadRequest, Client, NotFound, Unavailable
from tisfast.pytriton.client.base import client_errors
from tisfast.pytriton.client.exceptions import PyTritonClientTimeoutError
from tisfast.pytriton.client.url import TritonUrl
from tisfast.pytriton.client.warnings import NotSupportedTimeoutWarning
from tisfast.pytriton.constants import DEFAULT_GRPC_PORT, DEFAULT_HTTP_PORT
from tisfast.pytriton.model_config.parser import ModelConfigParser
from tisfast.pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = [
    "DEFAULT_GRPC_PORT",
    "DEFAULT_HTTP_PORT",
    "LATEST_MODEL_VERSION",
    "ModelState",
    "TritonUrl",
    "create_client_from_url",
    "get_model_config",
    "get_model_state",
    "wait_for_model_ready",
    "wait_for_server_ready",
]

LATEST_MODEL_VERSION: Final = "<latest>"
NETWORK_TIMEOUT_S: Final = 60.0
SERVER_READY_TIMEOUT_S: Final = 60.0
MODEL_READY_TIMEOUT_S: Final = 300.0
LOOK_SECONDS: Final = (0.02, 0.5)
"""Between two looks at a server that is not ready: first, and in the end."""
NOT_READY_ERRORS: Final = (Unavailable, NotFound, BadRequest, TimeoutError, OSError)
"""What is answered, or not, by who may be ready later; other errors are no question of time."""
WAITING_ERROR: Final = "Error occurred while the server was asked whether it is ready. Message: "


class ModelState(enum.Enum):
    """What the server's index says of a model."""

    LOADING = "LOADING"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"
    READY = "READY"


def create_client_from_url(
    url: str, network_timeout_s: float | None = None, headers: Mapping[str, str] | None = None
) -> Client:
    """A client of the server.  Raises PyTritonClientInvalidUrlError."""
    address = TritonUrl.from_url(url)
    if address.scheme == "grpc" and network_timeout_s is not None:
        warnings.warn(
            f"Network timeout of {network_timeout_s} s is a timeout of each call over gRPC, not of the connection",
            NotSupportedTimeoutWarning,
            stacklevel=3,
        )
    timeout = NETWORK_TIMEOUT_S if network_timeout_s is None else network_timeout_s
    return Client(address.with_scheme, timeout=timeout, retries=0, headers=dict(headers or {}))


def _nothing() -> None:
    """There is nothing to look at beside that."""


def wait_for_server_ready(
    client: Client,
    timeout_s: float | None = None,
    headers: Mapping[str, str] | None = None,
    check: Callable[[], None] = _nothing,
) -> None:
    """Raises PyTritonClientTimeoutError when the server is not live and ready in time.

    check: called before each look; what it raises ends the wait.
    """
    limit = SERVER_READY_TIMEOUT_S if timeout_s is None else timeout_s
    with _having(client, headers, limit) as asked:
        until(lambda: asked.live() and asked.ready(), limit, "Waiting for server to be ready timed out.", check)


def wait_for_model_ready(
    client: Client,
    model_name: str,
    model_version: str | None = None,
    timeout_s: float | None = None,
    headers: Mapping[str, str] | None = None,
    check: Callable[[], None] = _nothing,
) -> None:
    """Raises PyTritonClientTimeoutError when server and model are not ready in time.  check: see above."""
    limit = MODEL_READY_TIMEOUT_S if timeout_s is None else timeout_s
    deadline = time.monotonic() + limit
    with _having(client, headers, limit) as asked:
        wait_for_server_ready(asked, limit, check=check)
        model = asked.model(model_name, model_version or "")
        until(model.ready, max(0.0, deadline - time.monotonic()), not_ready(model_name, model_version), check)


def get_model_config(
    client: Client,
    model_name: str,
    model_version: str | None = None,
    timeout_s: float | None = None,
    headers: Mapping[str, str] | None = None,
) -> TritonModelConfig:
    """The configuration of a model, for which it waits.  Raises PyTritonClientTimeoutError."""
    with _having(client, headers, NETWORK_TIMEOUT_S) as asked:
        wait_for_model_ready(asked, model_name, model_version, timeout_s)
        with client_errors():
            return read_config(asked.model(model_name, model_version or "").config(), model_version)


def get_model_state(
    client: Client, model_name: str, model_version: str | None = None, headers: Mapping[str, str] | None = None
) -> ModelState:
    """UNAVAILABLE for a model that the server does not know, too."""
    with _having(client, headers, NETWORK_TIMEOUT_S) as asked, client_errors():
        return state_in(asked.models(), model_name, model_version)


def read_config(config: Mapping[str, Any], version: str | None) -> TritonModelConfig:
    """What the server says of a model's configuration."""
    found = ModelConfigParser.from_dict(config)
    if version and version.isdigit():
        found.model_version = int(version)
    return found


def state_in(index: list[dict[str, Any]], model_name: str, model_version: str | None) -> ModelState:
    """The state in the server's index; without a version, that of the latest."""
    entries = [
        entry
        for entry in index
        if entry["name"] == model_name and model_version in (None, LATEST_MODEL_VERSION, entry.get("version"))
    ]
    if not entries:
        return ModelState.UNAVAILABLE
    latest = max(entries, key=lambda entry: int(entry.get("version") or 0))
    return ModelState(latest.get("state") or ModelState.LOADING.value)


def not_ready(model_name: str, model_version: str | None) -> str:
    """The text of the error of a model that is not ready in time."""
    return f"Waiting for model {model_name}/{model_version or LATEST_MODEL_VERSION} to be ready timed out."


class Looks:
    """The moments in which something is looked at that is not ready.  Who waits does that between two of them."""

    def __init__(self, timeout_s: float, message: str, first_pause_s: float = LOOK_SECONDS[0]) -> None:
        """message: of the error at the end."""
        self._deadline = time.monotonic() + timeout_s
        self._message, self._pause_s = message, first_pause_s
        self._pause_s_max = max(LOOK_SECONDS[1], first_pause_s)

    @property
    def remaining_s(self) -> float:
        """Until the end."""
        return self._deadline - time.monotonic()

    def pause_s(self) -> float:
        """Until the next look.  Raises PyTritonClientTimeoutError at the end."""
        remaining = self.remaining_s
        if remaining <= 0:
            raise PyTritonClientTimeoutError(self._message)
        pause, self._pause_s = self._pause_s, min(2 * self._pause_s, self._pause_s_max)
        return min(pause, remaining)


def is_ready(ask: Callable[[], bool]) -> bool:
    """Whether something answers that it is ready; who cannot be reached is not.  Raises PyTritonClientError."""
    try:
        with client_errors(WAITING_ERROR, but=NOT_READY_ERRORS):
            return ask()
    except NOT_READY_ERRORS:
        return False


def until(ready: Callable[[], bool], timeout_s: float, message: str, check: Callable[[], None] = _nothing) -> None:
    """Look again and again.  Raises PyTritonClientTimeoutError with the message, and what `check` raises."""
    looks = Looks(timeout_s, message)
    while True:
        check()
        if is_ready(ready):
            return
        time.sleep(looks.pause_s())


@contextmanager
def _having(client: Client, headers: Mapping[str, str] | None, timeout_s: float) -> Iterator[Client]:
    """The same client, or one of the same server with these headers."""
    if not headers:
        yield client
        return
    address, timeout = str(client._core.address), max(timeout_s, LOOK_SECONDS[0])
    with Client(address, timeout=timeout, retries=0, headers=dict(headers)) as made:
        yield made
