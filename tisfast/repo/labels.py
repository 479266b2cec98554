"""Label files of classification outputs.  Layer 3 (repo)."""

from __future__ import annotations

from pathlib import Path

from tisfast import limits
from tisfast.errors import ConfigError
from tisfast.repo import layout


def read_labels(folder: Path, name: str) -> tuple[bytes, ...]:
    """The lines of file `name` in the model's folder: label i is line i, an empty line is none.  () when name is "".

    Bytes, not text: what the file holds is what clients get.  Raises ConfigError.
    """
    if not name:
        return ()
    path = folder / name
    try:
        with layout.open_file(path) as file:
            data = file.read(limits.LABELS_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"failed to open text file for read {path}: {error.strerror}", hint="label files lie in the model folder"
        ) from error
    if len(data) > limits.LABELS_BYTES_MAX:
        raise ConfigError(f"label file {path} has more than {limits.LABELS_BYTES_MAX} bytes", hint="shorten it")
    return tuple(data.removesuffix(b"\n").split(b"\n")) if data else ()
