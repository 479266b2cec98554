"""`tisfast init FOLDER`: a first model, with a test and a page that says what to do with it.  Top layer (cli)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final, NoReturn

from tisfast.errors import ConfigError

TEMPLATE: Final = Path(__file__).resolve().parent / "first_model"
FILES: Final = {
    "README.md": "README.md",
    "config.pbtxt": "scale/config.pbtxt",
    "model.py.txt": "scale/1/model.py",
    "proof.py.txt": "scale/1/test_model.py",
}
"""From the template's name to where it is written.  The modules are text there: they are no part of tisfast."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def main(arguments: list[str]) -> int:
    """Write the files and say what comes next.  Raises ConfigError where one of them is there already."""
    parser = _Parser(
        prog="tisfast init",
        description="Make a model repository with a first model, a test of it, and a page that says what to do next.",
    )
    parser.add_argument("folder", help="folder to make; one that exists keeps what is in it")
    folder = Path(parser.parse_args(arguments).folder)
    targets = {folder / target: TEMPLATE / source for source, target in FILES.items()}
    there = [path for path in targets if path.exists() or path.is_symlink()]
    if there:
        raise ConfigError(f"{there[0]} exists, and nothing was written", hint="name another folder")
    try:
        for path, source in targets.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source.read_text(encoding="utf-8").replace("FOLDER", str(folder)), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be written: {error.strerror}", hint="name another folder") from None
    print(f"{folder} has a first model, 'scale'; {folder / 'README.md'} says more. Serve it:\n")
    print(f"    tisfast serve --model-repository {folder} --reload\n")
    return 0
