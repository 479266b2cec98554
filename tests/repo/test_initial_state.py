"""Files of initial states."""

from __future__ import annotations

import pytest

from tisfast.config.sequence_states import InitialState, State
from tisfast.errors import ConfigError
from tisfast.repo.initial_state import initial_state_file


def state(data_file, nbytes=8, dtype=8):
    return State("I", "O", dtype, (2,), False, False, InitialState((2,), data_file, nbytes))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "initial_state").mkdir()
    (tmp_path / "initial_state/numbers").write_bytes(bytes(8))
    (tmp_path / "outside").write_bytes(bytes(8))
    return tmp_path


def test_zeros_need_no_file(folder):
    assert initial_state_file(folder, state("")) is None


def test_the_file_lies_in_its_folder(folder):
    assert initial_state_file(folder, state("numbers")) == folder / "initial_state/numbers"


def test_a_file_that_is_not_there(folder):
    with pytest.raises(ConfigError, match="failed to open text file for read .*initial_state/nobody"):
        initial_state_file(folder, state("nobody"))


def test_a_short_file(folder):
    with pytest.raises(ConfigError, match="expects 12 bytes, but the data provided from numbers only has 8 bytes"):
        initial_state_file(folder, state("numbers", nbytes=12))


def test_texts_have_any_length(folder):
    assert initial_state_file(folder, state("numbers", nbytes=12, dtype=13)) is not None


def test_a_file_outside_the_model(folder):
    with pytest.raises(ConfigError, match="outside the model folder"):
        initial_state_file(folder / "initial_state", state("../../outside"))
