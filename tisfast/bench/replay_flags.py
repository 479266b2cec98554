"""`--replay FILE`, `--replay-speed X`, and what does not go with them.  Layer 5 (bench)."""

from __future__ import annotations

import math
from typing import Any, Final

from tisfast.bench.asked import Replay
from tisfast.errors import ConfigError

NOT_REPLAYED: Final = (
    "mix",
    "vs",
    "input_data",
    "data_directory",
    "zero",
    "shape",
    "string_data",
    "bls_composing_models",
    "num_of_sequences",
    "sequence_length",
    "sequence_length_variation",
    "sequence_id_range",
    "serial_sequences",
)
"""Flags that say which requests are sent: the file does; by their names in the parsed command line."""


def read_replay(given: Any) -> Replay | None:
    """Raises ConfigError."""
    speed = given.replay_speed
    if not given.replay:
        if speed is not None:
            raise ConfigError("--replay-speed belongs to --replay FILE: give one")
        return None
    name = next((each for each in NOT_REPLAYED if getattr(given, each)), None)
    if name is not None:
        typed = {"zero": "-z"}.get(name, "--" + name.replace("_", "-"))
        raise ConfigError(f"{typed}: with --replay the file says which requests are sent; leave it out")
    if given.batch_size != 1:
        raise ConfigError(f"-b {given.batch_size}: with --replay each request has the batch that it had; leave it out")
    if given.shared_memory != "none":
        raise ConfigError(f"--shared-memory {given.shared_memory} is not for --replay; leave it out")
    if speed is not None and not 0 < speed < math.inf:
        raise ConfigError(f"--replay-speed {speed:g}: it must be above 0")
    return Replay(given.replay, 1.0 if speed is None else speed, given.model_name, given.model_version)
