"""A configuration of a Python model from its text, or the errors in it."""

from __future__ import annotations

import pytest

from tisfast.config.error_report import ConfigErrors
from tisfast.config.model_config import LoadedConfig, finish, parse
from tisfast.errors import ConfigError

PYTHON = 'backend: "python" '
IO = 'input { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } '


def load(text: str, name: str = "m", **options: object) -> LoadedConfig:
    """What the server makes of it."""
    return finish(parse(PYTHON + text, "m/config.pbtxt"), name, **options)


def errors_of(text: str, **options: object) -> list[str]:
    """Each error's text, with its place."""
    with pytest.raises(ConfigErrors) as caught:
        load(text, **options)
    return [str(error) for error in caught.value.errors]


def told(text: str, *, end: str = PYTHON, **options: object) -> list[str]:
    """Each error of a model's configuration in the order of the file, as `LINE:COLUMN KEY | MESSAGE | HINT`.

    end: the last line of the file.
    """
    with pytest.raises(ConfigErrors) as caught:
        finish(parse(f"{text}\n{end}", "m/config.pbtxt"), "m", **options)
    assert all(error.file == "m/config.pbtxt" for error in caught.value.errors)
    return [shown(error) for error in caught.value.errors]


def shown(error: ConfigError) -> str:
    """One error, all of its parts; without a place where it has none."""
    place = f"{error.line}:{error.column} " if error.line else ""
    return " | ".join(filter(None, (f"{place}{error.key}".strip(), error.message, error.hint)))
