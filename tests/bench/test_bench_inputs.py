"""Input data: all of perf_analyzer's forms, what it refuses, and a sentence for what is wrong."""

from __future__ import annotations

import base64
import json
import math
import re
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tisfast.bench.expected import Tolerance, difference
from tisfast.bench.inputs import Reading, read_inputs
from tisfast.bench.tensor_data import Place, array_of_json
from tisfast.client import ModelMetadata, TensorMetadata
from tisfast.client.arrays import NUMPY, array_of
from tisfast.errors import BadRequest
from tisfast.wire.buffer_tensor import pack_strings


def metadata(*inputs, outputs=()) -> ModelMetadata:
    return ModelMetadata("m", ("1",), "python", tuple(inputs), tuple(outputs))


def tensor(datatype="INT32", shape=(2, 2), name="IN") -> TensorMetadata:
    return TensorMetadata(name, datatype, tuple(shape))


def read(tmp_path, document, spec=None, outputs=(), **reading):
    path = tmp_path / "data.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return read_inputs([str(path)], Reading(metadata(spec or tensor(), outputs=outputs), **reading))


def first(data) -> np.ndarray:
    return data.streams[0][0].inputs["IN"]


def b64(data: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(data).decode()}


INT4 = np.array([[1, 2], [3, 4]], np.int32)


@pytest.mark.parametrize(
    "value",
    [
        [1, 2, 3, 4],
        [[1, 2], [3, 4]],
        b64(INT4.tobytes()),
        {"content": [1, 2, 3, 4], "shape": [2, 2]},
        {"content": [[1, 2], [3, 4]]},
        {"content": b64(INT4.tobytes()), "shape": [2, 2]},
    ],
)
def test_all_forms_of_a_tensor(tmp_path, value):
    found = first(read(tmp_path, {"data": [{"IN": value}]}))

    assert found.dtype == np.int32
    assert np.array_equal(found, INT4)


@given(
    st.sampled_from(["INT8", "UINT16", "INT64", "UINT64", "FP16", "FP32", "FP64", "BOOL"]),
    st.lists(st.integers(0, 1), min_size=6, max_size=6),
)
def test_text_nested_text_and_base64_are_the_same_tensor(datatype, numbers):
    array = np.array(numbers, NUMPY[datatype]).reshape(2, 3)
    spec, here = tensor(datatype, (2, 3)), Place("f", "data[0].IN")
    values = [numbers, array.tolist(), b64(array.tobytes()), {"content": numbers, "shape": [2, 3]}]

    for value in values:
        found = array_of_json(here, value, spec, (2, 3))
        assert found.dtype == array.dtype and np.array_equal(found, array)


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=10))
def test_strings_in_base64_have_lengths_before_them(strings):
    spec = tensor("BYTES", (-1,))

    assert array_of_json(Place("f", "x"), b64(pack_strings(strings)), spec, (-1,)).tolist() == strings


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_floats_survive_their_text(numbers):
    text = json.loads(json.dumps(numbers))  # NaN and Infinity, too
    found = array_of_json(Place("f", "x"), text, tensor("FP32", (-1,)), (-1,))

    assert np.array_equal(found, np.array(numbers, np.float32), equal_nan=True)


def test_whole_numbers_are_floats_and_bf16_takes_numbers(tmp_path):
    assert first(read(tmp_path, {"data": [{"IN": [1, 2, 3, 4]}]}, tensor("FP32"))).tolist() == [[1, 2], [3, 4]]
    data = read(tmp_path, {"data": [{"IN": [1, 0.5, -2, 3]}]}, tensor("BF16"))
    (request,) = data.requests()
    assert array_of(request.tensors[0]).tolist() == [[1.0, 0.5], [-2.0, 3.0]]


def test_streams_are_played_apart_and_taken_together(tmp_path):
    data = read(tmp_path, {"data": [[{"IN": ["1"]}, {"IN": ["2"]}], [{"IN": ["3"]}]]}, tensor("BYTES", (1,)))

    assert [len(stream) for stream in data.streams] == [2, 1]
    assert [each.tensors[0].strings() for each in data.requests()] == [[b"1"], [b"2"], [b"3"]]


def test_several_files_add_up(tmp_path):
    paths = []
    for number in range(2):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps({"data": [{"IN": [number] * 4}]}))
        paths.append(str(path))

    assert read_inputs(paths, Reading(metadata(tensor()))).steps == 2


def test_a_batch_has_the_following_steps(tmp_path):
    document = {"data": [{"IN": [number]} for number in range(3)]}
    requests = read(tmp_path, document, tensor(shape=(-1, 1)), batches=8).requests(2)

    assert [array_of(each.tensors[0]).tolist() for each in requests] == [[[0], [1]], [[1], [2]], [[2], [0]]]


def test_a_batch_of_unequal_shapes_is_refused(tmp_path):
    data = read(tmp_path, {"data": [{"IN": [1]}, {"IN": [1, 2]}]}, tensor(shape=(-1, -1)), batches=8)

    assert [each.tensors[0].shape for each in data.requests(1)] == [(1, 1), (1, 2)]
    with pytest.raises(BadRequest, match=r"shapes \[\[1\], \[2\]\].*use -b 1"):
        data.requests(2)


def test_the_shape_of_the_data_comes_before_the_default(tmp_path):
    document = {"data": [{"IN": list(range(16))}, {"IN": {"content": list(range(16)), "shape": [2, 8]}}]}
    data = read(tmp_path, document, tensor(shape=(-1, -1)), shapes={"IN": (4, 4)})

    assert [step.inputs["IN"].shape for step in data.streams[0]] == [(4, 4), (2, 8)]


def test_parameters_a_timestamp_and_optional_inputs(tmp_path):
    document = {"data": [{"parameters": {"top_k": 3, "fast": True}, "timestamp": 12.5, "model": "x"}]}
    (step,) = read(tmp_path, document, optional=("IN",)).streams[0]

    assert (step.inputs, step.parameters, step.timestamp_ms) == ({}, {"top_k": 3, "fast": True}, 12.5)


def test_expected_outputs_and_their_tolerance(tmp_path):
    out = tensor("FP32", (2,), "OUT")
    document = {
        "data": [{"IN": [1, 2, 3, 4]}, {"IN": [1, 2, 3, 4]}],
        "validation_data": [{"OUT": [1, 2]}, {"OUT": {"content": [1, 2], "atol": 0.5}}],
    }
    loose = Tolerance(0.01)
    one, other = read(tmp_path, document, outputs=(out,), tolerance=loose).streams[0]

    assert one.expected["OUT"][1] == loose
    assert other.expected["OUT"][1] == Tolerance(0.01, 0.5)
    assert other.expected["OUT"][0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("expected", "got", "tolerance", "said"),
    [
        ([1.0, 2.0], [1.0, 2.0], Tolerance(), ""),
        ([1.0, math.nan], [1.0, math.nan], Tolerance(), ""),
        ([100.0, 2.0], [100.9, 2.0], Tolerance(rtol=0.01), ""),
        (
            [100.0, 2.0],
            [101.1, 2.0],
            Tolerance(rtol=0.01),
            r"at \[0\] is 101.1, and 100.0 is expected; 1 of 2 elements",
        ),
        ([1.0, 2.0], [1.0, 2.1], Tolerance(atol=0.05), r"at \[1\]"),
        ([1, 2], [1, 3], Tolerance(atol=5), r"at \[1\] is 3, and 2"),
        ([1, 2], [1, 2, 3], Tolerance(), r"Output size doesn't match expected size: 'OUT' has the shape \[3\]"),
    ],
)
def test_an_answer_beside_the_expected_one(expected, got, tolerance, said):
    text = difference("OUT", np.array(expected), np.array(got), tolerance)

    assert re.search(said, text) if said else not text


def test_strings_differ_by_their_bytes():
    want, have = np.array([b"a", b"b"], object), np.array([b"a", b"c"], object)

    assert "at [1] is b'c', and b'b' is expected" in difference("OUT", want, have, Tolerance())


def test_a_folder_of_files(tmp_path):
    (tmp_path / "IN").write_bytes(INT4.tobytes())
    (tmp_path / "TEXT").write_bytes(b"one\ntwo\n")
    np.save(tmp_path / "OUT.npy", np.array([1.5, 2.5]))
    model = metadata(tensor(), tensor("BYTES", (2,), "TEXT"), outputs=(tensor("FP32", (2,), "OUT"),))

    (step,) = read_inputs([str(tmp_path)], Reading(model)).streams[0]

    assert np.array_equal(step.inputs["IN"], INT4)
    assert step.inputs["TEXT"].tolist() == [b"one", b"two"]
    assert step.expected["OUT"][0].tolist() == [1.5, 2.5]


def test_a_folder_without_an_input(tmp_path):
    with pytest.raises(BadRequest, match=r"no file IN \(or IN.npy\)"):
        read_inputs([str(tmp_path)], Reading(metadata(tensor())))


WRONG = [
    ("{", r"is no JSON .line 1, column 2: "),
    ("[]", r'no list "data"'),
    ({"data": []}, r'"data" is empty'),
    ({"data": [[]]}, r"data\[0\] has no steps"),
    ({"data": [3]}, r'step 0 of "data" is 3'),
    ({"data": [{"IN": [1, 2, 3, 4]}, [{}]]}, r'step 1 of "data"'),
    ({"data": [{"IN": [1, 2, 3, 4]}], "dtaa": 1}, r'key "dtaa" is not known'),
    ({"data": [{}]}, r"data\[0\] lacks the input 'IN'"),
    ({"data": [{"IM": [1], "IN": [1, 2, 3, 4]}]}, r"data\[0\].IM is no input of the model; its inputs are IN"),
    ({"data": [{"IN": [1, 2, 3]}]}, r"data\[0\].IN has 3 elements; the shape \[2, 2\].* takes 4"),
    ({"data": [{"IN": [1, 2, 3, 4.5]}]}, r"has the element 4.5 at 3; INT32 takes whole numbers from -2147483648"),
    ({"data": [{"IN": [1, 2, 3, 2**31]}]}, r"has the element 2147483648 at 3"),
    ({"data": [{"IN": [1, 2, 3, True]}]}, r"has the element true at 3"),
    ({"data": [{"IN": [[1, 2], [3]]}]}, r"unequal lengths"),
    ({"data": [{"IN": [[1, 2], 3, 4]}]}, r"unequal lengths"),
    ({"data": [{"IN": {"b64": "?"}}]}, r"no base64"),
    ({"data": [{"IN": b64(b"123")}]}, r"has 3 bytes; an element of INT32 has 4"),
    ({"data": [{"IN": {"b46": "AA=="}}]}, r"keys \['b46'\]"),
    ({"data": [{"IN": {"content": [1], "shpae": [1]}}]}, r"IN.shpae is not known"),
    ({"data": [{"IN": {"content": [1] * 4, "shape": [4]}}]}, r"IN.shape is \[4\]; the shape of 'IN' is \[2, 2\]"),
    ({"data": [{"payload": {}}]}, r"payload is a body for --service-kind openai"),
    ({"data": [{"IN": [1] * 4, "timestamp": "3"}]}, r'timestamp is "3"; write milliseconds'),
    ({"data": [{"IN": [1] * 4, "parameters": [1]}]}, r"parameters is \[1\]"),
    ({"data": [{"IN": [1] * 4}], "validation_data": []}, r'"validation_data" is empty'),
    ({"data": [{"IN": [1] * 4}], "validation_data": [{}, {}]}, r'"validation_data" has \[2\] steps by stream'),
    ({"data": [{"IN": [1] * 4}], "validation_data": [{"X": [1]}]}, r"validation_data\[0\].X is no output"),
]


@pytest.mark.parametrize(("document", "match"), WRONG, ids=[match for _, match in WRONG])
def test_what_is_wrong_is_one_sentence_with_file_and_key(tmp_path, document, match):
    with pytest.raises(BadRequest, match=match) as raised:
        read(tmp_path, document)

    assert str(tmp_path / "data.json") in raised.value.message
    assert "\n" not in raised.value.message


def test_strings_that_are_cut_or_none(tmp_path):
    with pytest.raises(BadRequest, match="has a string of 9 bytes at byte 0, and ends at byte 6"):
        read(tmp_path, {"data": [{"IN": b64(struct.pack("<I", 9) + b"ab")}]}, tensor("BYTES", (-1,)))
    with pytest.raises(BadRequest, match="has the element 3 at 0; BYTES takes strings"):
        read(tmp_path, {"data": [{"IN": [3]}]}, tensor("BYTES", (-1,)))


def test_two_free_dimensions_need_a_shape(tmp_path):
    with pytest.raises(BadRequest, match=r"--shape IN:D1,D2"):
        read(tmp_path, {"data": [{"IN": [1, 2]}]}, tensor(shape=(-1, -1)))
    assert first(read(tmp_path, {"data": [{"IN": [1, 2, 3, 4]}]}, tensor(shape=(-1, 2)))).shape == (2, 2)


@pytest.mark.parametrize("shapes", [{"IN": (3,)}, {"X": (3, 4)}])
def test_a_shape_that_does_not_fit(tmp_path, shapes):
    with pytest.raises(BadRequest, match="--shape"):
        read(tmp_path, {"data": [{"IN": [1, 2]}]}, tensor(shape=(-1, 2)), shapes=shapes)


def test_a_missing_file(tmp_path):
    with pytest.raises(BadRequest, match="cannot be read .No such file or directory.; name a JSON file"):
        read_inputs([str(tmp_path / "none.json")], Reading(metadata(tensor())))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["b64", "content", "shape", "x"]), inner)
        ),
        max_leaves=12,
    )
)
def test_any_json_is_a_tensor_or_a_sentence(value):
    for datatype in ("INT8", "FP16", "BOOL", "BYTES"):
        try:
            found = array_of_json(Place("f", "k"), value, tensor(datatype, (-1, 2)), (-1, 2))
        except BadRequest as error:
            assert "f: k" in error.message
        else:
            assert found.ndim == 2 and found.shape[1] == 2
