"""A model folder that a program writes: complete when it is seen.  Layer 3 (repo)."""

from __future__ import annotations

import errno
import json
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from tisfast import limits
from tisfast.config.error_report import Report
from tisfast.config.json_form import parse_json


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
def written_folder(folder: Path) -> Iterator[Path]:
    """Gives an empty folder beside `folder`, which takes its place once it is filled.  Raises OSError."""
    made, old = (folder.with_name(f".{folder.name}.{secrets.token_hex(8)}{end}") for end in ("", ".old"))
    try:
        made.mkdir(parents=True)
        yield made
        _put(made, folder, old)
    except BaseException:
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _put(made: Path, folder: Path, old: Path) -> None:
    """Have `made` in the place of `folder`, which goes to `old`."""
    for left in range(limits.FOLDER_WRITERS_MAX, -1, -1):
        with suppress(FileNotFoundError):
            folder.rename(old)
        try:
            made.rename(folder)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not left:
                raise
        if old.exists():  # not where the folder was between two writers
            shutil.rmtree(old)  # another writer was faster: what it wrote goes
