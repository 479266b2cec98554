"""The process of one step: finds the function of that name, and writes what it gives.  Layer 5 (convert).

Frameworks are imported here alone.  What goes wrong is told in the result; what they print goes to
the parent.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tisfast.convert.steps import ERROR, FOUND, REFUSED, REQUEST, RESULT
from tisfast.errors import BadRequest


def main(arguments: Sequence[str]) -> int:
    """(step as PACKAGE.MODULE.FUNCTION, folder): the exit status."""
    step, folder = arguments
    path = Path(folder)
    request = json.loads((path / REQUEST).read_text())
    module, _, function = step.rpartition(".")
    try:
        found: Any = getattr(importlib.import_module(module), function)(request, path)
    except BadRequest as error:
        return _told(path, {ERROR: error.message}, REFUSED)
    except Exception as error:  # each framework has its own
        traceback.print_exc()
        return _told(path, {ERROR: f"{type(error).__name__}: {error}"}, 1)
    return _told(path, {FOUND: found or {}}, 0)


def _told(folder: Path, result: dict[str, Any], status: int) -> int:
    (folder / RESULT).write_text(json.dumps(result))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # what frameworks do at the end of a process may hang or crash, and nothing of it is wanted
