"""The folder that a conversion is written to: the model, marked as ours, and the report.  Layer 5 (convert)."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
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
ERRNO: Final = re.compile(r"\[Errno (\d+)\]")
HIDDEN: Final = re.compile(r"[0-9a-f]{16}(\.old|\.new)?")
"""What written_folder adds to a name."""
MARK: Final = ".tisfast-convert.json"
"""In a model's folder: the fingerprints of its files when it was written."""
FILES: Final = "files"
COMPILED: Final = ".pyc"
Known = tuple[tuple[int, ...], str]
"""Of a file: what the system says of it, and its fingerprint."""
MARK_BYTES_MAX: Final = 64 << 20
"""Of a mark or a report, when it is written as when it is read: some 500,000 files."""


@contextmanager
def output(folder: Path, name: str) -> Iterator[Path]:
    """The folder, made if need be; the folders that were made go again where nothing is written.

    Raises BadRequest where it may not be written to, or has a model or a report that is not ours.
    """
    if name in (REPORT, PAGE):
        raise BadRequest(f"the model would be called '{name}', which is the report's name in -o: give another --name")
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


def left_behind(folder: Path, name: str) -> Iterator[str]:
    """Of hidden folders beside the model, one sentence each: they may hold what a person has changed."""
    for each in sorted(folder.glob(f".{glob.escape(name)}.*")):
        if HIDDEN.fullmatch(each.name.removeprefix(f".{name}.")):
            yield (
                f"{each} is of a conversion that was killed or still runs: it may be what was called '{name}'; look "
                "for files of your own before you remove it"
            )


def check_source(folder: Path, name: str, source: Path) -> None:
    """Raises BadRequest where the source lies in what would be replaced."""
    model = Path(os.path.realpath(folder / name))
    if Path(os.path.realpath(source)).is_relative_to(model):
        raise BadRequest(
            f"-o {folder} would replace '{name}' there, in which the source {source} lies: give another --name or "
            "another -o"
        )


def check_ours(folder: Path, name: str, known: dict[str, Known] | None = None) -> None:
    """Raises BadRequest where there is something of these names which a person has made, or changed since.

    known: see _fingerprints.
    """
    check_reports(folder)
    if os.path.lexists(folder / name):
        _check_model(folder / name, folder, name, known)


def _check_model(model: Path, folder: Path, name: str, known: dict[str, Known] | None) -> None:
    if found := _foreign(model, {} if known is None else known):
        raise BadRequest(
            f"-o {folder} has '{name}' already, and {found}: nothing of it is replaced; move or remove it, or give "
            "another --name"
        )


def check_reports(folder: Path) -> None:
    """Raises BadRequest where a file that has a report's name is no report of a conversion."""
    report, html = folder / REPORT, folder / PAGE
    ours = _is_file(report) and _is_report(report)
    for path, replaced in ((report, ours), (html, ours and _is_file(html))):
        if os.path.lexists(path) and not replaced:
            alone = f", as no {REPORT} of its own lies beside it" if path is html and _is_file(html) else ""
            raise BadRequest(
                f"-o {folder} has {path.name} already, which tisfast convert has not written{alone}: it is not "
                "replaced; move or remove it, or give another -o"
            )


def _is_file(path: Path) -> bool:
    """Itself, and no link."""
    return path.is_file() and not path.is_symlink()


def _is_report(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return bool(json.loads(file.read(MARK_BYTES_MAX))["schema"] == SCHEMA)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def write_model_folder(made: Path, target: Path, before_it_is_there: Callable[[], object] = lambda: None) -> None:
    """Put `made` in the place of `target`, marked.  Raises BadRequest where that is not ours, OSError.

    before_it_is_there: is called when all is copied.  People work in the folder meanwhile, so what was in the place is
    looked at before it goes from there, and again before it is removed.
    """
    known: dict[str, Known] = {}
    folder, name = target.parent, target.name
    with written_folder(target, lambda before: _check_model(before, folder, name, known)) as beside:
        shutil.copytree(made, beside, dirs_exist_ok=True)
        files = _fingerprints(beside, {})
        mark = json.dumps({"schema": SCHEMA, FILES: files}, indent=1) + "\n"
        if len(mark) > MARK_BYTES_MAX:  # it could not be read again
            raise BadRequest(
                f"the model has {len(files)} files, and {MARK} with their fingerprints would have {len(mark)} bytes, "
                f"more than {MARK_BYTES_MAX}: make it of fewer files"
            )
        (beside / MARK).write_text(mark)
        check_ours(folder, name, known)
        before_it_is_there()


def why(error: OSError) -> str:
    """What the system says.  shutil gathers the errors of all files of a folder in a list: the first one's."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        _source, _target, said = error.args[0][0]
        number = ERRNO.match(str(said))  # names of hidden folders follow it
        return os.strerror(int(number[1])) if number else str(said)
    return error.strerror or str(error)


def write_reports(told: dict[str, Any], folder: Path) -> None:
    """Raises BadRequest where there are others, Unavailable."""
    check_reports(folder)
    write_text(folder / REPORT, json.dumps(told, indent=1, allow_nan=False) + "\n")
    write_text(folder / PAGE, page(told))


def _foreign(model: Path, known: dict[str, Known]) -> str:
    """Why it is not what a conversion has written; "" where it is.  known: see _fingerprints."""
    if model.is_symlink() or not model.is_dir():
        return "it is no folder that tisfast convert has written"
    try:
        with (model / MARK).open("rb") as file:
            mark = json.loads(file.read(MARK_BYTES_MAX))
        written = mark[FILES] if mark["schema"] == SCHEMA else None
        if not isinstance(written, dict):
            return "tisfast convert has not written it"
        found = _fingerprints(model, known)
    except (OSError, ValueError, KeyError, TypeError):
        return "tisfast convert has not written it"
    for file in sorted({*written, *found}, key=lambda each: (each not in written, each)):
        if written.get(file) != found.get(file):
            change = "removed" if file not in found else "added" if file not in written else "changed"
            return f"{file} was {change} since tisfast convert wrote it"
    return ""


def _fingerprints(model: Path, known: dict[str, Known]) -> dict[str, str]:
    """Of its files, empty folders and whatever else it has, by their paths; without what Python makes beside code.

    known: gets what a file was when it was read; one that is the same still is not read again.
    """
    found = {}
    for path in sorted(model.rglob("*")):
        inside = path.relative_to(model)
        if path.is_symlink():
            found[str(inside)] = f"a link to {os.readlink(path)}"
        elif path.is_dir():
            if path.name != BYTECODE and not any(path.iterdir()):
                found[str(inside)] = "an empty folder"
        elif not path.is_file():
            found[str(inside)] = "a pipe, a socket or a device"
        elif str(inside) != MARK and not (path.parent.name == BYTECODE and path.suffix == COMPILED):
            with path.open("rb") as file:
                stat = os.fstat(file.fileno())
                state = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
                before, digest = known.get(str(inside), (None, ""))
                known[str(inside)] = (state, digest if state == before else _sha256(file))
                found[str(inside)] = known[str(inside)][1]
    return found


def _sha256(file: Any) -> str:
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()
