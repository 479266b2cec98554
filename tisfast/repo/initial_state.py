"""Files that hold what a sequence's state starts with.  Layer 3 (repo)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tisfast import limits
from tisfast.config.sequence_states import State
from tisfast.errors import ConfigError
from tisfast.repo import layout
from tisfast.types import BY_CODE

FOLDER: Final = "initial_state"


def initial_state_file(folder: Path, state: State) -> Path | None:
    """The file of a state's first content, None when it starts with zeros.  folder: the model's.

    Raises ConfigError when the file cannot be read, or has less than the state's dims ask for.
    """
    initial = state.initial
    if initial is None or not initial.data_file:
        return None
    path = folder / FOLDER / initial.data_file
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(
            f"initial state file '{initial.data_file}' of state input '{state.input_name}' lies outside the model "
            "folder",
            hint=f"put it into {folder / FOLDER}",
        )
    try:
        with layout.open_file(path) as file:
            size = file.seek(0, 2)
    except OSError as error:
        raise ConfigError(
            f"failed to open text file for read {path}: {error.strerror}",
            hint=f"initial states lie in the folder '{FOLDER}' of the model",
        ) from error
    if size > limits.STATE_BYTES_MAX:
        raise ConfigError(f"{path} has {size} bytes, more than {limits.STATE_BYTES_MAX}", hint="shorten it")
    if size < initial.nbytes and BY_CODE[state.dtype].size:
        raise ConfigError(
            f"initial_state setting expects {initial.nbytes} bytes, but the data provided from {initial.data_file} "
            f"only has {size} bytes."
        )
    return path
