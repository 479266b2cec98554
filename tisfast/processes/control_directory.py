"""The server's control directory: private, locked while the server lives, swept after it.  Layer 4 (processes)."""

from __future__ import annotations

import os
from pathlib import Path

from tisfast import limits
from tisfast.errors import Internal
from tisfast.private_directory import PrivateDirectory
from tisfast.repo.load_override import FOLDER


class ControlDirectory(PrivateDirectory):
    """A private directory that holds the control socket.  Removed by `remove`.

    It holds sockets and the files that load calls gave: when the server dies, its nurseries remove them and the
    directory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.overrides.mkdir(mode=0o700)
        if len(os.fsencode(self.socket)) > limits.CONTROL_PATH_BYTES_MAX:
            self.remove()
            raise Internal(
                f"the control socket's path {self.socket} is longer than {limits.CONTROL_PATH_BYTES_MAX} bytes, which "
                "Unix sockets do not allow; set TMPDIR to a shorter path"
            )

    @property
    def socket(self) -> Path:
        """The path of the control socket."""
        return self.path / "control"

    @property
    def overrides(self) -> Path:
        """The folder below which files lie that load calls gave."""
        return self.path / FOLDER

    @property
    def links(self) -> Path:
        """The folder below which links lie to files that are served without a repository; made when it is needed."""
        return self.overrides / "files"
