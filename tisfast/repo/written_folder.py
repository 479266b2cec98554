"""A model folder that a program writes: complete when it is seen.  Layer 3 (repo)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from tisfast.config.error_report import Report
from tisfast.config.json_form import parse_json


def write_folder(folder: Path, config: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Write `config` as config.pbtxt, and files by their paths in `folder`; what is there already goes.

    It is written beside its place and moved there, so a server that polls never sees half of it.  Raises ConfigErrors,
    OSError.
    """
    report = Report(folder.name)
    message = parse_json(json.dumps(config), report)
    report.raise_if_any()
    made, old = (folder.with_name(f".{folder.name}.{os.getpid()}{end}") for end in ("", ".old"))
    shutil.rmtree(made, ignore_errors=True)
    try:
        for path, content in {**files, "config.pbtxt": text_format.MessageToString(message).encode()}.items():
            file = made / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        if folder.exists():
            folder.rename(old)
        made.rename(folder)
    except BaseException:
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
