"""What is to be converted, told by its name, as `tisfast serve FILE` tells it.  Layer 5 (convert)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from tisfast.config.backends import BUILT_IN
from tisfast.config.served_files import is_there, read_files
from tisfast.errors import BadRequest, ConfigError

KINDS: Final = {"onnxruntime": "onnx"}
"""Of source, by the backend of such a file."""


class Source(NamedTuple):
    """kind: of formats.ROUTES; text: as the user says it; path: absolute; name: for a model."""

    kind: str
    text: str
    path: Path
    name: str


def read_source(given: str | os.PathLike[str]) -> Source:
    """Raises BadRequest for what is not there, or is of no kind that is converted."""
    text = os.fspath(given)
    if not is_there(text):
        raise BadRequest(f"{text}: there is no such file")
    try:
        found = read_files([text], BUILT_IN)
    except ConfigError as error:
        raise BadRequest(str(error)) from None
    if not found.files:
        raise BadRequest(f"{text} is a folder without a model of its own: name a file")
    file = found.files[0]
    kind = KINDS.get(file.backend)
    if kind is None:
        raise BadRequest(
            f"{text} is a model of backend '{file.backend}', which tisfast convert does not take; it takes those of "
            f"{', '.join(KINDS)}"
        )
    return Source(kind, text, file.path, file.name)
