"""Facts of a model's files that serving needs before a worker loads it.  Layer 3 (repo)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tisfast import limits
from tisfast.config.backends import BackendInfo, Completion
from tisfast.config.schema import Message
from tisfast.repo import layout

CLASS: Final = "TritonPythonModel"
COMPLETE: Final = "auto_complete_config"


def may_complete(backend: BackendInfo, files: Iterable[Path], message: Message) -> bool:
    """Whether a worker must be asked what the model's configuration leaves open.  files: of its versions."""
    if backend.python_based:
        files = [Path(backend.module)]
    if not backend.served or backend.completion is Completion.ALWAYS:
        return backend.served
    if backend.completion is Completion.OPEN:
        return not ((message.input or message.batch_input) and message.output)
    return any(map(_may_complete, files))


def _may_complete(file: Path) -> bool:
    """Whether the model has, or could inherit, an auto_complete_config.  A file that cannot be judged counts as yes."""
    try:
        source = layout.read_file(file, limits.MODEL_FILE_BYTES_MAX)
    except OSError:
        return True
    if COMPLETE.encode() in source:
        return True
    # The usual model defines the class here and inherits nothing: `class TritonPythonModel:`.  All else is judged yes.
    words = source.split(b"class " + CLASS.encode(), 1)
    return len(words) == 1 or not words[1].lstrip().startswith((b":", b"(object)", b"()"))
