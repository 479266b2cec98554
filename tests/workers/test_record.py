"""Records against the test's own encoder and decoder (driver.py): any request in, any answer out."""

from __future__ import annotations

import mmap
import struct

import numpy as np
import pytest
import triton_python_backend_utils as pb
from hypothesis import given
from hypothesis import strategies as st
from tisfast_worker import dtypes
from tisfast_worker.failure import WireError
from tisfast_worker.model import Model
from tisfast_worker.record import RequestReader

from tests.workers.driver import BYTES, record
from tests.workers.record_helpers import Bench, raw

CODES = [code for code in dtypes.TYPES if code not in (BYTES, dtypes.BF16)]
shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
texts = st.text(st.characters(codec="utf-8"), max_size=20)


def model_of(inputs: list[tuple[int, int]], outputs: list[tuple[int, int]], batched: bool = False) -> Model:
    """inputs, outputs: (dtype, rank) each, named by position."""
    return Model(
        {
            **{
                "name": "m",
                "version": "1",
                "repository": "",
                "version_dir": "",
                "file": "model.py",
                "instance": "m_0_0",
            },
            **{
                "kind": "CPU",
                "device_id": 0,
                "config": "{}",
                "decoupled": False,
                "max_batch_size": 8 if batched else 0,
            },
            "inputs": [[f"I{i}", code, [-1] * rank, None] for i, (code, rank) in enumerate(inputs)],
            "outputs": [[f"O{i}", code, [-1] * rank, None] for i, (code, rank) in enumerate(outputs)],
        }
    )


def array_of(code: int, shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape, dtype=int))
    if code == BYTES:
        return np.array([b"x" * i for i in range(count)], dtype=object).reshape(shape)
    return np.arange(count).astype(dtypes.TYPES[code][3]).reshape(shape)


@given(
    tensors=st.lists(st.tuples(st.sampled_from([*CODES, BYTES]), shapes, st.booleans()), min_size=1, max_size=5),
    id=texts,
    parameters=st.sampled_from(["", '{"k": "é"}']),
    correlation=st.one_of(st.integers(0, 2**64 - 1), texts.filter(bool)),
    timeout=st.integers(0, 2**64 - 1),
    flags=st.integers(0, 3),
)
def test_any_request_is_read_as_it_was_written(tensors, id, parameters, correlation, timeout, flags):
    bench = Bench(model_of([(code, len(shape)) for code, shape, _ in tensors], [(11, 1)]))
    arrays = {i: array_of(code, shape) for i, (code, shape, present) in enumerate(tensors) if present}
    inputs = [(i, tensors[i][0], a.shape, bench.plane.place(raw(a))) for i, a in arrays.items()]
    for _ in range(2):  # the second time from a remembered plan
        request = bench.read(
            record(inputs, id=id, parameters=parameters, correlation=correlation, timeout=timeout, flags=flags)
        )
        assert [t.name() for t in request.inputs()] == [f"I{i}" for i in arrays]
        assert (request.request_id(), request.parameters(), request.correlation_id()) == (
            id,
            parameters or "{}",
            correlation,
        )
        assert (request.timeout(), request.flags()) == (timeout, flags)
        for i, array in arrays.items():
            tensor = pb.get_input_tensor_by_name(request, f"I{i}")
            assert tensor.shape() == list(array.shape) and tensor.as_numpy().dtype == array.dtype
            assert np.array_equal(tensor.as_numpy(), array)
        assert all(request.find(f"I{i}") is None for i in range(len(tensors)) if i not in arrays)


@given(
    tensors=st.lists(st.tuples(st.sampled_from([*CODES, BYTES]), shapes), min_size=1, max_size=5),
    order=st.randoms(use_true_random=False),
    parameters=st.dictionaries(texts, st.one_of(st.booleans(), st.integers(-5, 5), texts), max_size=3),
    requested=st.integers(0, 2**64 - 1),
    large=st.booleans(),
)
def test_any_answer_is_written_as_the_server_reads_it(tensors, order, parameters, requested, large):
    if large:
        tensors = [*tensors, (11, (70, 70))]
    bench = Bench(model_of([(11, 1)], [(code, len(shape)) for code, shape in tensors]))
    request = bench.read(record([(0, 11, (1,), bench.plane.place(bytes(4)))], requested=requested))
    outputs = [(i, code, array_of(code, shape)) for i, (code, shape) in enumerate(tensors)]
    order.shuffle(outputs)
    asked = [(i, code, a) for i, code, a in outputs if requested >> i & 1]
    for _ in range(2):
        response = pb.InferenceResponse([pb.Tensor(f"O{i}", a) for i, _, a in outputs], parameters=parameters)
        answer = bench.write(request, response)
        assert answer.outputs == [(i, code, a.shape, 1, raw(a)) for i, code, a in asked], answer.text
        assert answer.parameters.decode() == (response.parameters() if parameters else "")


@given(st.binary(max_size=300), st.integers(0, 300))
def test_any_bytes_are_a_request_or_refused(data, nbytes):
    memory = mmap.mmap(-1, 4096)
    memory[: len(data)] = data
    reader = RequestReader(model_of([(11, 1), (13, 0)], [(11, 1)]), memory, None)
    try:
        reader.read(0, nbytes, None, None)
    except WireError as error:
        assert str(error)


def test_layouts_remembered_are_bounded():
    from tisfast_worker import limits

    bench = Bench(model_of([(11, 1)], [(11, 1)]))
    request = bench.read(record([(0, 11, (1,), bench.plane.place(bytes(4)))]))
    for i in range(limits.PLANS_MAX + 10):
        bench.ours.outputs.collect()
        answer = bench.write(request, pb.InferenceResponse([pb.Tensor("O0", np.zeros(i, "f4"))]))
        bench.plane.give_back(answer.block)
        bench.reader.read(*bench.plane.place(record([(0, 11, (i % 7,), (0, 4 * (i % 7)))])), bench.lease, None)
    assert len(bench.writer._layouts) <= limits.PLANS_MAX


@pytest.mark.parametrize(("dims", "reshape"), [([-1, 2], [2]), ([4], [-1])])
def test_a_reshape_that_loses_a_free_dimension_is_refused(dims, reshape):
    from tisfast_worker.model import TensorSpec

    with pytest.raises(WireError, match="differ in free dimensions"):
        TensorSpec(0, "x", 11, dims, reshape)


@pytest.mark.parametrize("tail", [b"", bytes(8), struct.pack("<Q195Q", 65, *[0] * 195), struct.pack("<4Q", 2, 0, 0, 0)])
def test_places_for_outputs_that_are_not_whole_are_refused(tail):
    bench = Bench(model_of([(11, 1)], [(11, 1)]))
    data = record([(0, 11, (0,), (0, 0))], flags=16 | 64)
    with pytest.raises(WireError, match="places of [0-9]+ outputs"):
        bench.read(data + bytes(-len(data) % 8) + tail)
