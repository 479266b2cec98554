"""A configuration of a Python model from its text, or the errors in it."""

from __future__ import annotations

import pytest

from tisfast.config.error_report import ConfigErrors
from tisfast.config.model_config import LoadedConfig, finish, parse

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
