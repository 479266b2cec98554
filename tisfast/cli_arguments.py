"""How command lines are read; what argparse leaves over of `tisfast serve`: files, and unknown flags.  Top layer."""

from __future__ import annotations

import argparse
import difflib
import itertools
import os
from collections.abc import Sequence
from typing import Final, NamedTuple, NoReturn

from tisfast import limits
from tisfast.errors import ConfigError
from tisfast.flags import SERVED, UNSERVED, boolean

SIGNALLED: Final = 128
"""And the number of the signal that ended a command: its exit code."""

FLAGS_FILE: Final = "--flags-file"
END: Final = "--"
"""Behind it there are no flags."""


class Parser(argparse.ArgumentParser):
    """argparse with Triton's exit code."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError."""
        raise ConfigError(message)


class LeftoverArguments(NamedTuple):
    """Arguments that argparse left over.  wrong: flags that are none; files: arguments without a flag."""

    wrong: list[ConfigError]
    files: list[str]


def with_flags_of_files(arguments: Sequence[str]) -> list[str]:
    """The same with the lines of each `--flags-file FILE` in its place.  Raises ConfigError."""
    found: list[str] = []
    rest = iter(arguments)
    for text in rest:
        name, equals, path = text.partition("=")
        found += _flags_of_file(path if equals else next(rest, "")) if name == FLAGS_FILE else [text]
    return found


def _flags_of_file(path: str) -> list[str]:
    key = FLAGS_FILE.strip("-")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(limits.FLAGS_FILE_BYTES_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{FLAGS_FILE}={path} cannot be read: {error}", key=key) from error
    if len(text) > limits.FLAGS_FILE_BYTES_MAX:
        raise ConfigError(f"{FLAGS_FILE}={path} has more than {limits.FLAGS_FILE_BYTES_MAX} characters", key=key)
    flags = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
    for flag in flags:
        if not flag.startswith("--") or "=" not in flag or flag.startswith(FLAGS_FILE):
            # Which may hold a secret, so no more of it is shown.
            raise ConfigError(f"{FLAGS_FILE}={path}: {flag.partition('=')[0][:40]!r} is not --NAME=VALUE", key=key)
    return flags


def untangled(arguments: Sequence[str]) -> list[str]:
    """`--reload model.py` as `--reload=true model.py`: a flag's value is optional, and this is not meant as one."""
    switches = {f"--{flag.name}" for flag in SERVED if flag.kind is boolean}
    pairs = itertools.zip_longest(arguments, arguments[1:], fillvalue="")
    return [f"{text}=true" if text in switches and _is_file(after) else text for text, after in pairs]


def _is_file(text: str) -> bool:
    try:
        boolean(text)
    except ValueError:
        return os.path.exists(text) or os.path.exists(text.partition("=")[2])
    return False


def sorted_out(rest: Sequence[str]) -> LeftoverArguments:
    """Sort the arguments that argparse did not know."""
    known = [f"--{flag.name}" for flag in SERVED] + [f"--{flag.name}" for flag in UNSERVED]
    wrong, files = [], []
    value_may_follow = False
    end = rest.index(END) if END in rest else len(rest)
    for text in rest[:end]:
        name = text.split("=", 1)[0]
        if name.startswith("--"):
            close = difflib.get_close_matches(name, known, n=1)
            guess = f"did you mean {close[0]}?" if close else ""
            wrong.append(ConfigError(f"unrecognized option '{name}'", hint=guess))
        elif not value_may_follow:
            files.append(text)
        value_may_follow = name.startswith("--") and "=" not in text
    return LeftoverArguments(wrong, [*files, *rest[end + 1 :]])
