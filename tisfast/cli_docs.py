"""`tisfast docs [PAGE]`: the pages of the documentation, which the package carries.  Top layer (cli)."""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path
from typing import Final, NoReturn

from tisfast.errors import ConfigError

CHECKOUT: Final = Path(__file__).resolve().parents[1] / "docs"
INSTALLED: Final = Path(__file__).resolve().parent / "_docs"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def main(arguments: list[str]) -> int:
    """Print a page, or the list of all.  Raises ConfigError for a page that there is not."""
    parser = _Parser(
        prog="tisfast docs", description="Print a page of the documentation (Markdown), or the list of all."
    )
    parser.add_argument("page", nargs="?", help="for example: models, environments, batching, operations")
    parser.add_argument("--plain", action="store_true", help="without a pager, on a terminal, too")
    values = parser.parse_args(arguments)
    found = pages()
    if values.page is None:
        width = max(map(len, found))
        for name, path in sorted(found.items()):
            print(f"{name:{width}}  {_title(path)}")
        return 0
    name = values.page.removesuffix(".md").removeprefix("docs/")
    if name not in found:
        near = difflib.get_close_matches(name, found, 1)
        hint = f"did you mean '{near[0]}'?" if near else "'tisfast docs' lists the pages"
        raise ConfigError(f"there is no page '{values.page}'", hint=hint)
    _show(found[name].read_text(encoding="utf-8"), plain=values.plain)
    return 0


def pages() -> dict[str, Path]:
    """All pages by name: those beside this file's checkout, or those that were installed with it."""
    folder = INSTALLED if INSTALLED.is_dir() else CHECKOUT
    return {str(path.relative_to(folder).with_suffix("")): path for path in folder.rglob("*.md")}


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.readline().strip("# \n")


def _show(text: str, *, plain: bool) -> None:
    """Through a pager on a terminal: Markdown is made to be read as it is written."""
    if plain or not sys.stdout.isatty():
        print(text, end="")
        return
    import pydoc  # noqa: PLC0415 - 20 ms, and only for a terminal

    pydoc.pager(text)
