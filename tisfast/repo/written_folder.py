"""A model folder that a program writes: complete when it is seen.  Layer 3 (repo)."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from google.protobuf import text_format

from tisfast import limits
from tisfast.config.error_report import Report
from tisfast.config.json_form import parse_json

AT_FDCWD: Final = -100
RENAME_EXCHANGE: Final = 2
NO_EXCHANGE: Final = (errno.ENOSYS, errno.EINVAL, errno.EPERM)
"""Of a kernel, a file system or a sandbox that cannot do it."""


def write_folder(folder: Path, config: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Write `config` as config.pbtxt, and files by their paths in `folder`; what is there already goes.

    It is written beside its place and moved there, so a server that polls never sees half of it; of several writers
    the last one wins.  Raises ConfigErrors, OSError.
    """
    text = config_text(folder.name, config)
    with written_folder(folder) as made:
        for path, content in {**files, "config.pbtxt": text.encode()}.items():
            file = made / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


def config_text(name: str, config: Mapping[str, Any]) -> str:
    """A configuration's text, of what JSON has.  name: of the model, for errors.  Raises ConfigErrors."""
    report = Report(name)
    message = parse_json(json.dumps(config), report)
    report.raise_if_any()
    return text_format.MessageToString(message)


@contextmanager
def written_folder(folder: Path, look_at: Callable[[Path], object] = lambda _: None) -> Iterator[Path]:
    """Gives an empty folder beside `folder`, which takes its place once it is filled.  Raises OSError.

    look_at: is called with what was in the place, which has a hidden name by then, before that is removed; if it
    raises, that is put back.  A process that is killed leaves the old folder or the new one, where the file system can
    exchange two names, and removes nothing that was not looked at.
    """
    made, old = (folder.with_name(f".{folder.name}.{secrets.token_hex(8)}{end}") for end in ("", ".old"))
    remove: Path | None = made
    try:
        made.mkdir(parents=True)
        yield made
        before = _put(made, folder, old, look_at)
        if before is not None:
            remove = None  # until it has been looked at
            try:
                look_at(before)
            except BaseException:
                remove = _put_back(before, folder, made)
                raise
            remove = before
    except BaseException:
        if os.path.lexists(old) and not os.path.lexists(folder):
            old.rename(folder)
        raise
    finally:
        if remove is not None:
            _remove(remove)


def _put(made: Path, folder: Path, old: Path, look_at: Callable[[Path], object]) -> Path | None:
    """Have `made` in the place of `folder`, which goes to `made` or `old`: gives that; None where there was nothing."""
    for left in range(limits.FOLDER_WRITERS_MAX, -1, -1):
        if exchanged(made, folder):
            return made
        with suppress(FileNotFoundError):
            folder.rename(old)
        try:
            made.rename(folder)
            return old if os.path.lexists(old) else None
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not left:
                raise
        if os.path.lexists(old):  # another writer was faster: what it wrote goes
            look_at(old)
            _remove(old)
    raise AssertionError("the last attempt returns or raises")


def _put_back(before: Path, folder: Path, made: Path) -> Path:
    """Have `before` in its place again.  Gives where the new folder is then."""
    if exchanged(before, folder):
        return before
    moved = made.with_name(f"{made.name}.new")
    with suppress(FileNotFoundError):
        folder.rename(moved)
    before.rename(folder)
    return moved


def exchanged(one: Path, other: Path) -> bool:
    """Have two names change places, in one step.

    False where one of them is not there, or the system cannot.  Raises OSError.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:  # an older libc
        return False
    if not call(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE):
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOENT, *NO_EXCHANGE):
        return False
    raise OSError(code, os.strerror(code), str(other))


def _remove(path: Path) -> None:
    """What was in the place: a folder, or a link to one, which stays."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
