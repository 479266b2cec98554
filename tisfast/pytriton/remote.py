"""RemoteTriton: callables of this program for a server that runs already."""

from __future__ import annotations

import logging
import pathlib
from typing import Any, Final

from tisfast.client import Client, TisError
from tisfast.local_server import guest_runtime
from tisfast.pytriton.client.auth import create_auth_headers
from tisfast.pytriton.client.exceptions import PyTritonClientTimeoutError
from tisfast.pytriton.client.url import TritonUrl
from tisfast.pytriton.client.utils import create_client_from_url, wait_for_server_ready
from tisfast.pytriton.constants import DEFAULT_TRITON_STARTUP_TIMEOUT_S
from tisfast.pytriton.exceptions import PyTritonRuntimeError
from tisfast.pytriton.triton_base import TritonBase, warn_of_verbose_logs
from tisfast.pytriton.utils.workspace import Workspace

log = logging.getLogger("tisfast.pytriton")
_GUESTS: Final = ("guests(", ")")
"""Around the folder, among the extensions that the server's metadata names."""


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
            try:
                wait_for_server_ready(client, DEFAULT_TRITON_STARTUP_TIMEOUT_S)
            except PyTritonClientTimeoutError as error:
                raise TimeoutError("Triton Inference Server is not ready after timeout.") from error
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
