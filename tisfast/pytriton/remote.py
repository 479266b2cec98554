"""RemoteTriton: callables of this program for a server that runs already."""

from __future__ import annotations

import logging
import pathlib
import time
from typing import Any, Final

from tisfast.client import Client, TisError
from tisfast.local_server import guest_runtime
from tisfast.pytriton.client.auth import create_auth_headers
from tisfast.pytriton.client.exceptions import PyTritonClientTimeoutError
from tisfast.pytriton.client.url import TritonUrl
from tisfast.pytriton.client.utils import create_client_from_url, wait_for_server_ready
from tisfast.pytriton.constants import DEFAULT_TRITON_STARTUP_TIMEOUT_S
from tisfast.pytriton.exceptions import PyTritonRuntimeError
from tisfast.pytriton.triton_base import StoppedMeanwhile, TritonBase, warn_of_verbose_logs
from tisfast.pytriton.utils.workspace import Workspace

log = logging.getLogger("tisfast.pytriton")
_GUESTS: Final = ("guests(", ")")
"""Around the folder, among the extensions that the server's metadata names."""
_LOOK_S: Final = 0.5
"""Between two looks at whether a server is still wanted that is not there yet."""


class RemoteTriton(TritonBase):
    """A server of the same user on this machine, started with --guest-directory or by `Triton`."""

    def __init__(
        self, url: str, workspace: Workspace | str | pathlib.Path | None = None, access_token: str | None = None
    ) -> None:
        """url: [http|grpc://]HOST[:PORT].  access_token: for a server that restricts its metadata or log settings.

        Raises PyTritonClientInvalidUrlError.
        """
        self._url = TritonUrl.from_url(url)
        self._headers = create_auth_headers(access_token, self._url.scheme) if access_token else {}
        super().__init__(workspace)

    # ---- of TritonBase

    def _join(self) -> Any:
        guest = guest_runtime()
        with create_client_from_url(self._url.with_scheme, headers=self._headers) as client:
            self._wait_for_server(client)
            self._warn(client)
            directory = self._directory(client)
        try:
            return guest.join(directory)
        except guest.GuestError as error:
            raise PyTritonRuntimeError(f"the server at {self._url.with_scheme} cannot be joined: {error}") from error

    def _leave(self, guest: Any) -> None:
        if guest is not None:
            guest.close()

    def _reached(self, guest: Any) -> bool:
        return guest is None or not guest.gone

    # ---- parts

    def _wait_for_server(self, client: Client) -> None:
        """Raises TimeoutError.  Looks between for `stop`, which another thread may have called."""
        deadline = time.monotonic() + DEFAULT_TRITON_STARTUP_TIMEOUT_S
        while not self._stop_wanted:
            try:
                return wait_for_server_ready(client, _LOOK_S)
            except PyTritonClientTimeoutError as error:
                if time.monotonic() >= deadline:
                    raise TimeoutError("Triton Inference Server is not ready after timeout.") from error
        raise StoppedMeanwhile(f"`stop` was called before the server at {self._url.with_scheme} was ready")

    def _directory(self, client: Client) -> str:
        """Where guests meet the server.  Raises PyTritonRuntimeError."""
        begin, end = _GUESTS
        try:
            extensions = client.metadata()["extensions"]
        except TisError as error:
            raise PyTritonRuntimeError(
                f"the server at {self._url.with_scheme} says nothing of itself: {error}"
            ) from error
        for extension in extensions:
            if extension.startswith(begin) and extension.endswith(end):
                return str(extension[len(begin) : -len(end)])
        raise PyTritonRuntimeError(
            f"the server at {self._url.with_scheme} takes no models of other programs: start it with "
            "`tisfast serve --guest-directory FOLDER`"
        )

    def _warn(self, client: Client) -> None:
        """Where it may be asked."""
        try:
            warn_of_verbose_logs(client.log_settings().get("log_verbose_level"))
        except TisError:
            log.debug("the log settings of %s are restricted", self._url.with_scheme)
