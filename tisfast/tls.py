"""Certificates of a TLS port, and their exchange while it serves.  Layer 5 (app); shared by the HTTP and gRPC ports.

The context that a listener is given never changes; for each connection it asks for the certificates of the moment.  So
a reload concerns connections that are made after it, and no session can be resumed across it.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tisfast.errors import ConfigError

log = logging.getLogger("tisfast.tls")


class Certificates:
    """The files of one TLS port, in PEM.

    cert: certificate with its chain; key: its private key, not encrypted; client_ca: "" or the authorities of which a
    client must show a certificate (mutual TLS); alpn: protocols offered, the preferred one first.
    """

    def __init__(self, cert: str, key: str, client_ca: str = "", *, alpn: Sequence[str] = ()) -> None:
        """Reads the files.  Raises ConfigError."""
        self._cert, self._key, self._client_ca, self._alpn = cert, key, client_ca, tuple(alpn)
        self._current = self._load()
        self.context: ssl.SSLContext = _AskedContext(lambda: self._current)

    @property
    def files(self) -> str:
        """The files, for a log line."""
        return ", ".join(file for file in (self._cert, self._key, self._client_ca) if file)

    def reload(self) -> None:
        """Read the files again; new connections use what they hold.  Raises ConfigError, and then nothing changes."""
        self._current = self._load()

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        if self._alpn:
            context.set_alpn_protocols(list(self._alpn))
        for file in (self._cert, self._key, self._client_ca):
            _require_readable(file)
        try:
            context.load_cert_chain(self._cert, self._key, password=self._refuse_encrypted)
        except ssl.SSLError as error:
            raise ConfigError(
                f"TLS: {self._cert} and {self._key} are no certificate and its private key in PEM: {_reason(error)}"
            ) from None
        if self._client_ca:
            self._ask_clients(context)
        return context

    def _ask_clients(self, context: ssl.SSLContext) -> None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(self._client_ca)
        except ssl.SSLError as error:
            raise ConfigError(
                f"TLS: {self._client_ca} holds no certificates in PEM, it should hold those that sign the clients': "
                f"{_reason(error)}"
            ) from None

    def _refuse_encrypted(self) -> NoReturn:
        # Without this, OpenSSL would ask for the password on the terminal.
        raise ConfigError(f"TLS: the private key {self._key} is encrypted; give one that is not")


class _AskedContext(ssl.SSLContext):
    """A server context that makes each connection with the context of the moment."""

    _ask: Callable[[], ssl.SSLContext]

    def __new__(cls, _ask: Callable[[], ssl.SSLContext]) -> _AskedContext:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, ask: Callable[[], ssl.SSLContext]) -> None:
        self._ask = ask

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """Called by the event loop for a new connection: wraps it with the newest files."""
        return self._ask().wrap_bio(*arguments, **named)


def reload_all(every: Sequence[Certificates]) -> None:
    """Reload each and log how it went: what cannot be loaded stays as it was."""
    for certificates in every:
        try:
            certificates.reload()
        except ConfigError as error:
            log.error("certificates were not reloaded, those before stay in use: %s", error)
        else:
            log.info("certificates reloaded for new connections: %s", certificates.files)


def _require_readable(file: str) -> None:
    if not file:
        return
    try:
        with open(file, "rb"):
            return
    except OSError as error:
        raise ConfigError(f"TLS: cannot read {file}: {error.strerror}") from None


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
