"""Listening sockets: bound at the very start, so that a taken port is told at once; opened when the models are loaded.

Layer 5 (app).  A bound socket that does not listen yet refuses connections, as Triton's does.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final

from tisfast import limits
from tisfast.config.settings import ListenSettings
from tisfast.errors import ConfigError, TisError, Unavailable
from tisfast.front.congestion_control import listen_unpaced
from tisfast.tls import Certificates

_NEVER: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EACCES, errno.EINVAL, socket.EAI_NONAME})
"""No later try would open the address."""


class Listener:
    """One bound socket, and the server on it once it is opened."""

    def __init__(self, settings: ListenSettings, certificates: Certificates | None = None) -> None:
        """Binds.  certificates: for a TLS port.  Raises Unavailable or ConfigError with Triton's text.

        set_aside: the machine's congestion control, where clients on this machine have another one; else "".
        """
        self.certificates = certificates
        self.service = settings.service
        self.flag = settings.flag
        self._settings = settings
        self._server: asyncio.AbstractServer | None = None
        self._socket = _bound(settings)
        self.set_aside = listen_unpaced(self._socket) if settings.unpaced_local else ""
        self.port = int(self._socket.getsockname()[1])

    @property
    def where(self) -> str:
        """ADDRESS:PORT, with the port that the system chose."""
        return f"{self._settings.address}:{self.port}"

    @property
    def reachable(self) -> str:
        """HOST:PORT for a client on this machine."""
        host = self._settings.address
        return (
            f"{'localhost' if host in ('0.0.0.0', '', 'ipv6:[::]', '::') else host.removeprefix('ipv6:')}:{self.port}"
        )

    @property
    def dialled(self) -> str:
        """IP:PORT for a program on this machine, which is spared looking up `localhost` and trying IPv6 first."""
        return self.reachable.replace("localhost:", "127.0.0.1:")

    async def open(self, protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        """Accept connections from now on.  Raises Unavailable when another server took the port."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                protocol,
                sock=self._socket,
                backlog=limits.HTTP_BACKLOG,
                ssl=self.certificates.context if self.certificates else None,
                ssl_handshake_timeout=limits.TLS_HANDSHAKE_SECONDS_MAX if self.certificates else None,
                ssl_shutdown_timeout=limits.TLS_SHUTDOWN_SECONDS_MAX if self.certificates else None,
            )
        except OSError as error:
            raise _refused(self._settings, error) from None

    def close(self) -> None:
        """Accept no more; open connections stay."""
        if self._server is not None:
            self._server.close()
        else:
            self._socket.close()


def _bound(settings: ListenSettings) -> socket.socket:
    host = settings.address
    if host.startswith("ipv6:"):
        host = host.removeprefix("ipv6:").strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise _refused(settings, error) from None
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.reuse_port:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        raise _refused(settings, error) from None
    return made


def _refused(settings: ListenSettings, error: OSError) -> TisError:
    start = f"failed to start {settings.service} service: Unavailable - Socket '{settings.where}'"
    if error.errno == errno.EADDRINUSE:
        return Unavailable(
            f"{start} already in use; stop the other server or choose a port with --{settings.flag}-port"
        )
    kind = ConfigError if error.errno in _NEVER else Unavailable
    return kind(f"{start} cannot be opened: {error.strerror or error}; see --{settings.flag}-address")
