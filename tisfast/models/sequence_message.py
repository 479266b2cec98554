"""The part of the load message about a model's sequences.  Layer 4 (models)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tisfast.config.sequence_settings import SequenceSettings
from tisfast.config.sequence_states import State
from tisfast.repo.initial_state import initial_state_file


def sequence_part(sequence: SequenceSettings, folder: Path) -> dict[str, Any]:
    """The keys of WIRE.md's load message that speak of sequences.  folder: the model's.  Raises ConfigError."""
    return {
        "sequence": {
            "slots": sequence.slots,
            "strategy": "oldest" if sequence.oldest else "direct",
            "iterative": sequence.iterative,
        },
        "controls": [
            [control.name, control.kind, control.dtype, control.false_value, control.true_value]
            for control in sequence.controls
        ],
        "states": [_state(state, folder) for state in sequence.states],
    }


def _state(state: State, folder: Path) -> list[Any]:
    initial = None
    if state.initial is not None:
        file = initial_state_file(folder, state)
        initial = [state.initial.dims, "" if file is None else str(file.resolve())]
    return [
        state.input_name, state.output_name, state.dtype, state.dims, state.same_buffer, state.growable, initial,
    ]  # fmt: skip
