"""An object of the caller's own process, for steps: by cloudpickle, with the folders that its modules come from.

Layer 5 (convert).
"""

from __future__ import annotations

import importlib
import os
import pickle
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tisfast.convert.steps import written_to_scratch
from tisfast.errors import BadRequest, Unavailable


def handed_over(thing: Any, path: Path) -> dict[str, Any]:
    """Writes the object to a file, and gives what a step's request says of it.  Raises BadRequest, Unavailable."""
    try:
        cloudpickle: Any = importlib.import_module("cloudpickle")
    except ModuleNotFoundError:
        raise Unavailable(
            "an object is handed over by cloudpickle, which is missing: pip install cloudpickle"
        ) from None
    try:
        content = cloudpickle.dumps(thing)
    except Exception as error:  # each object that refuses has its own way
        raise BadRequest(
            f"the {type(thing).__name__} cannot leave this process: {type(error).__name__}: {error}"
        ) from error
    with written_to_scratch():
        path.write_bytes(content)
    # What this process can import its steps can, too: the folder of its program, and "" of an interpreter.
    return {"pickle": str(path), "folders": [os.path.abspath(each) for each in sys.path if isinstance(each, str)]}


def taken(request: Mapping[str, Any]) -> Any:
    """The object, in a step.  Raises BadRequest where it cannot be made again."""
    sys.path.extend(_own_folders(request))  # behind all others: a file of the user's is never in place of a framework's
    try:
        return pickle.loads(Path(request["pickle"]).read_bytes())  # which our parent has written
    except ModuleNotFoundError as error:
        raise BadRequest(
            f"{request['text']} needs the module '{error.name}', which only this program has: put it into a file or "
            "package in a folder of sys.path"
        ) from error
    except Exception as error:  # an object can raise anything
        raise BadRequest(
            f"{request['text']} cannot be made again in another process ({type(error).__name__}: {error}): what it "
            "holds must survive pickle"
        ) from error


def copy_modules(request: Mapping[str, Any], target: Path) -> None:
    """The modules that the object needs, and that lie where the caller's program alone looks, as files of `target`."""
    folders = {Path(each) for each in _own_folders(request)}
    taken(request)
    for name, module in list(sys.modules.items()):
        found = getattr(module, "__file__", None)
        if not isinstance(found, str):
            continue
        file = Path(found)
        # As many parts of its path as of its name; a package is a file in a folder of its name.
        parts = file.parts[-(name.count(".") + 1 + hasattr(module, "__path__")) :]
        if Path(*file.parts[: -len(parts)]) in folders and file.is_file():
            place = target.joinpath(*parts)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)


def _own_folders(request: Mapping[str, Any]) -> list[str]:
    """In which the caller imports and this process does not."""
    return [each for each in request["folders"] if each not in sys.path]
