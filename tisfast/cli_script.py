"""`tisfast script tritonserver`: a script of that name that starts tisfast.  Top layer.

The wheel has no such script, as it would stand in a real server's place wherever both are installed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tisfast.errors import ConfigError

NAME: Final = "tritonserver"
MARK: Final = "# Written by: tisfast script tritonserver"
SCRIPT: Final = """#!/bin/sh
{mark}
exec {python} -m tisfast serve --allow-client-shm=true "$@"
"""
"""Triton has no gate in front of clients' shared memory; what the caller says comes later and wins."""


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    """Write the script and say where.  Raises ConfigError where it would stand in the way of another."""
    parser = argparse.ArgumentParser(
        prog="tisfast script",
        description=f"Write a script '{NAME}' that starts 'tisfast serve' with Triton's defaults.",
    )
    parser.add_argument("name", choices=(NAME,))
    parser.add_argument("folder", nargs="?", default=sysconfig.get_path("scripts"), help="default: %(default)s")
    parser.add_argument("--force", action="store_true", help=f"although there is another '{NAME}'")
    values = parser.parse_args(arguments)
    path = Path(values.folder) / NAME
    other = _other(path, environ.get("PATH", os.defpath))
    if other is not None and not values.force:
        raise ConfigError(
            f"there is a '{NAME}' already, which is not tisfast's: {other}",
            hint=f"give a folder that comes behind {other.parent} in PATH, or --force",
        )
    try:
        path.write_text(SCRIPT.format(mark=MARK, python=shlex.quote(sys.executable)), encoding="utf-8")
        path.chmod(0o755)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}", hint="name another folder") from None
    print(f"{path} starts tisfast serve, with --allow-client-shm=true as Triton has it")
    return 0


def _other(path: Path, search: str) -> Path | None:
    """The script that would be replaced or hidden, unless it is ours."""
    found = shutil.which(NAME, path=search)
    for each in (path, Path(found) if found else path):
        if each.exists() and MARK.encode() not in each.read_bytes()[:200]:
            return each
    return None
