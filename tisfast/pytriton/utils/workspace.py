"""A folder for one server: models that are written to disk, logs."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
import warnings
import weakref
from typing import Final

from tisfast.pytriton import constants

MODEL_STORE: Final = "model-store"


class CleanupWarning(UserWarning):
    """A workspace could not be deleted."""


class Workspace:
    """A folder that is made at once and deleted by `clean`; one without a path is deleted with this object, too."""

    def __init__(self, workspace_path: str | pathlib.Path | None = None) -> None:
        """workspace_path: must not exist.  Raises FileExistsError, and OSError where it cannot be made."""
        if workspace_path is None:
            constants.PYTRITON_HOME.mkdir(parents=True, exist_ok=True)
            self._path = pathlib.Path(tempfile.mkdtemp(prefix="workspace_", dir=constants.PYTRITON_HOME))
            weakref.finalize(self, _delete_of, os.getpid(), self._path)
        else:
            self._path = pathlib.Path(workspace_path).resolve()
            self._path.mkdir(parents=True)
        self.model_store_path.mkdir()

    @property
    def path(self) -> pathlib.Path:
        """The folder."""
        return self._path

    @property
    def model_store_path(self) -> pathlib.Path:
        """The folder of models in it."""
        return self._path / MODEL_STORE

    def exists(self) -> bool:
        """Whether the folder is there."""
        return self._path.exists()

    def is_empty(self) -> bool:
        """Whether nothing is in it but what begins with a dot, or it is not there."""
        return not self.exists() or all(entry.name.startswith(".") for entry in self._path.iterdir())

    def clean(self) -> None:
        """Delete it with all that is in it; what cannot be deleted is a CleanupWarning."""
        _delete(self._path)


def _delete_of(owner: int, path: pathlib.Path) -> None:
    """Unless a process that the owner has forked ends, which has it only by copying."""
    if os.getpid() == owner:
        _delete(path)


def _delete(path: pathlib.Path) -> None:
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        warnings.warn(f"Could not clean workspace {path}. {error}", CleanupWarning, stacklevel=3)
