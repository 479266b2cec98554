"""Data of warm-ups."""

import numpy as np
import pytest

from tisfast.pytriton.exceptions import PyTritonBadParameterError
from tisfast.pytriton.model_config.common import (
    ModelWarmup,
    WarmupInput,
    generate_warmup_data,
    generate_warmup_requests,
)


def test_zeros_have_the_batch_in_front():
    made = generate_warmup_data(WarmupInput(np.float32, (2,), zero_data=True), 3)
    assert made.dtype == np.float32
    assert made.tolist() == [[0, 0]] * 3


def test_without_batching_there_is_no_batch():
    assert generate_warmup_data(WarmupInput(np.float32, (2,), zero_data=True), 0).shape == (2,)


def test_zeros_win_over_random_data():
    assert not generate_warmup_data(WarmupInput(np.float32, (64,), zero_data=True, random_data=True), 1).any()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.bool_, np.float16, np.float64])
def test_random_numbers_are_small(dtype):
    made = generate_warmup_data(WarmupInput(dtype, (1000,), random_data=True), 1)
    assert made.dtype == dtype
    assert len(np.unique(made)) > 1
    assert made.min() >= 0
    assert made.max() < (100 if made.dtype.kind in "iu" else 1.001)


@pytest.mark.parametrize("dtype", [bytes, np.bytes_, object])
def test_random_strings_have_8_to_32_characters(dtype):
    made = generate_warmup_data(WarmupInput(dtype, (100,), random_data=True), 1)
    lengths = {len(each) for each in made.flat}
    assert min(lengths) >= 8
    assert max(lengths) <= 32
    assert len(lengths) > 1


@pytest.mark.parametrize(
    ("stored", "batch_size", "expected"),
    [
        ([1, 2], 2, [[1, 2], [1, 2]]),  # without a batch
        ([[1, 2], [3, 4]], 1, [[1, 2]]),
        ([[1, 2], [3, 4]], 3, [[1, 2], [3, 4], [1, 2]]),
    ],
)
def test_a_file_is_made_as_large_as_the_batch_and_wins(tmp_path, stored, batch_size, expected):
    np.save(tmp_path / "data.npy", np.array(stored))
    spec = WarmupInput(np.float32, (2,), zero_data=True, input_data_file=tmp_path / "data.npy")
    made = generate_warmup_data(spec, batch_size)
    assert made.dtype == np.float32
    assert made.tolist() == expected


def test_an_input_without_data_is_refused():
    with pytest.raises(PyTritonBadParameterError, match="One of 'zero_data', 'random_data', or 'input_data_file'"):
        generate_warmup_data(WarmupInput(np.float32, (2,)), 1)


def test_requests_come_in_order_as_often_as_asked():
    def spec():
        return WarmupInput(np.float32, (1,), zero_data=True)

    warmups = [ModelWarmup("both", 2, {"B": spec(), "A": spec()}, 2), ModelWarmup("some", 1, {"A": spec()}, 1)]
    assert [{name: len(array) for name, array in each.items()} for each in generate_warmup_requests(warmups)] == [
        {"B": 2, "A": 2},
        {"B": 2, "A": 2},
        {"A": 1},
    ]
