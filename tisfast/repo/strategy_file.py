"""Files of custom batching strategies.  Layer 3 (repo)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tisfast import limits
from tisfast.config.model_config import LoadedConfig
from tisfast.config.unsupported import STRATEGY_PARAMETER
from tisfast.errors import ConfigError
from tisfast.repo import layout


class StrategyFile(NamedTuple):
    """The author's text of a strategy, and its file."""

    path: Path
    text: str


def read_strategy(config: LoadedConfig, folder: Path) -> StrategyFile | None:
    """The strategy that the configuration names, None when it names none.  Raises ConfigError.

    folder: the model's; a relative path is looked up there.
    """
    name = config.parameters.get(STRATEGY_PARAMETER, "")
    if not name:
        return None
    path = folder / name
    try:
        with layout.open_file(path) as file:
            data = file.read(limits.STRATEGY_BYTES_MAX + 1)
        if len(data) > limits.STRATEGY_BYTES_MAX:
            text = f"batching strategy {path} has more than {limits.STRATEGY_BYTES_MAX} bytes"
            raise ConfigError(text, hint="shorten it")
        return StrategyFile(path, data.decode())
    except OSError as error:
        raise ConfigError(f"Batching library path not found: {name}", hint=f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"batching strategy {path} is not UTF-8", hint="save it as UTF-8") from error
