"""The folder that a conversion is written to: the model, marked as ours, and the report.  Layer 5 (convert)."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tisfast.bench.files import write_text
from tisfast.convert.report import SCHEMA
from tisfast.convert.report_page import page
from tisfast.errors import BadRequest
from tisfast.repo.layout import BYTECODE
from tisfast.repo.written_folder import written_folder

REPORT: Final = "report.json"
PAGE: Final = "report.html"
MARK: Final = ".tisfast-convert.json"
"""In a model's folder: the fingerprints of its files when it was written."""
FILES: Final = "files"
MARK_BYTES_MAX: Final = 1 << 20
"""Of a mark that is read."""


@contextmanager
def output(folder: Path, name: str) -> Iterator[Path]:
    """The folder, made if need be; the folders that were made go again where nothing is written.

    Raises BadRequest where it may not be written to, or has a model that is not ours.
    """
    absent = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / f".{name}.{secrets.token_hex(8)}.old"  # as long as names that are needed later on
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise BadRequest(
                f"-o {folder} cannot be written to ({error.strerror}): name a folder in one that exists and may be "
                "written"
            ) from None
        check_ours(folder, name)
        yield folder
    finally:
        for each in absent:
            with suppress(OSError):  # something is in it
                each.rmdir()


def check_ours(folder: Path, name: str) -> None:
    """Raises BadRequest where there is something of that name which a person has made, or changed since."""
    model = folder / name
    if os.path.lexists(model) and (found := _foreign(model)):
        raise BadRequest(
            f"-o {folder} has '{name}' already, and {found}: nothing of it is replaced; move or remove it, or give "
            "another --name"
        )


def write_model_folder(made: Path, target: Path) -> None:
    """Put `made` in the place of `target`, marked.  Raises BadRequest where that is not ours, OSError."""
    with written_folder(target) as beside:
        shutil.copytree(made, beside, dirs_exist_ok=True)
        (beside / MARK).write_text(json.dumps({"schema": SCHEMA, FILES: _fingerprints(beside)}, indent=1) + "\n")
        check_ours(target.parent, target.name)  # as late as can be: people work there while formats are tried


def why(error: OSError) -> str:
    """What the system says.  shutil gathers the errors of all files of a folder in a list: the first one's."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        _source, _target, said = error.args[0][0]
        return str(said)
    return error.strerror or str(error)


def write_reports(told: dict[str, Any], folder: Path) -> None:
    """Raises Unavailable."""
    write_text(folder / REPORT, json.dumps(told, indent=1, allow_nan=False) + "\n")
    write_text(folder / PAGE, page(told))


def _foreign(model: Path) -> str:
    """Why it is not what a conversion has written; "" where it is."""
    if model.is_symlink() or not model.is_dir():
        return "it is no folder that tisfast convert has written"
    try:
        with (model / MARK).open("rb") as file:
            mark = json.loads(file.read(MARK_BYTES_MAX))
        written = mark[FILES] if mark["schema"] == SCHEMA else None
        if not isinstance(written, dict):
            return "tisfast convert has not written it"
        found = _fingerprints(model)
    except (OSError, ValueError, KeyError, TypeError):
        return "tisfast convert has not written it"
    for file in sorted({*written, *found}):
        if written.get(file) != found.get(file):
            change = "removed" if file not in found else "added" if file not in written else "changed"
            return f"{file} was {change} since tisfast convert wrote it"
    return ""


def _fingerprints(model: Path) -> dict[str, str]:
    """Of its files, by their paths; without what Python makes beside code."""
    found = {}
    for path in sorted(model.rglob("*")):
        inside = path.relative_to(model)
        if path.is_symlink():
            found[str(inside)] = f"a link to {os.readlink(path)}"
        elif path.is_file() and str(inside) != MARK and BYTECODE not in inside.parts:
            with path.open("rb") as file:
                found[str(inside)] = _sha256(file)
    return found


def _sha256(file: Any) -> str:
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()
