"""What serving must know of model.py before it runs.  Layer 3 (repo)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

CLASS: Final = "TritonPythonModel"
COMPLETE: Final = "auto_complete_config"


def may_complete(file: Path) -> bool:
    """Whether the model has, or could inherit, an auto_complete_config.  A file that cannot be judged counts as yes."""
    try:
        source = file.read_bytes()
    except OSError:
        return True
    if COMPLETE.encode() in source:
        return True
    # The usual model defines the class here and inherits nothing: `class TritonPythonModel:`.  All else is judged yes.
    words = source.split(b"class " + CLASS.encode(), 1)
    return len(words) == 1 or not words[1].lstrip().startswith((b":", b"(object)", b"()"))
