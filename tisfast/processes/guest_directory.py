"""The folder in which guests find the server: private to the user.  Layer 4 (processes)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from pathlib import Path
from typing import Final

from tisfast import limits
from tisfast.errors import ConfigError

SOCKET: Final = "guests.sock"
"""The socket's name in it: what guests connect to (workers/tisfast_worker/guest.py)."""
FLAG: Final = "guest-directory"


class GuestDirectory:
    """The folder of --guest-directory, locked for as long as a server serves guests there.

    Made, with mode 0700, where it is missing.  Raises ConfigError when others may enter it, or another server has it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.socket = self.path / SOCKET
        if len(os.fsencode(self.socket)) > limits.CONTROL_PATH_BYTES_MAX:
            raise _wrong(
                self.path,
                f"the socket {self.socket} has a path longer than {limits.CONTROL_PATH_BYTES_MAX} bytes, which Unix "
                "sockets do not allow",
                "name a folder with a shorter path",
            )
        self._folder = self._opened()
        try:
            _check_private(self.path, os.fstat(self._folder))
            self._lock()
        except BaseException:
            os.close(self._folder)
            raise

    def listen(self) -> socket.socket:
        """A listening socket, in the place of one that a dead server has left.  Raises ConfigError."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            with contextlib.suppress(FileNotFoundError):
                self.socket.unlink()
            listener.bind(str(self.socket))
            listener.listen(limits.GUESTS_MAX)
        except OSError as error:
            listener.close()
            raise _wrong(self.path, f"cannot be listened in: {error.strerror}", "name another folder") from error
        return listener

    def remove(self) -> None:
        """Take the socket away and let others have the folder, which stays."""
        if self._folder >= 0:
            with contextlib.suppress(OSError):
                self.socket.unlink()
            os.close(self._folder)
            self._folder = -1

    def _opened(self) -> int:
        try:
            with contextlib.suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
            return os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise _wrong(self.path, f"cannot be used: {error.strerror}", "name a folder of yours") from error

    def _lock(self) -> None:
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _wrong(
                self.path, "is another server's, which serves guests there", "name a folder of its own for each server"
            ) from error


def _check_private(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise _wrong(
            path, f"belongs to the user with number {status.st_uid}, and the server runs as {os.geteuid()}",
            "guests and server are of one user: name a folder of that user's",
        )  # fmt: skip
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise _wrong(path, f"has mode {mode:04o}, so others than its owner may enter it", f"chmod 700 {path}")


def _wrong(path: Path, what: str, remedy: str) -> ConfigError:
    return ConfigError(f"--{FLAG}={path} {what}", key=FLAG, hint=remedy)
