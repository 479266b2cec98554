"""Sample inputs: what is read, what fits, and which requests they make."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from tisfast import limits
from tisfast.convert.references import answer
from tisfast.convert.samples import cases_of, drawn, fitted, load_cases, read_samples, save_cases
from tisfast.convert.signature import Signature, Tensor
from tisfast.errors import BadRequest

BATCHES = Signature((Tensor("x", "FP32", (-1, 2)),), (Tensor("y", "FP32", (-1,)),), True)
FIXED = Signature((Tensor("x", "FP32", (3, 2)),), (Tensor("y", "FP32", (3,)),), False)
ROWS = np.arange(10, dtype=np.float32).reshape(5, 2)


def test_files_and_dictionaries_are_read(tmp_path):
    np.savez(tmp_path / "a.npz", x=ROWS)
    (a, b) = read_samples([tmp_path / "a.npz", {"x": ROWS[:1]}])
    assert np.array_equal(a["x"], ROWS) and len(b["x"]) == 1
    assert read_samples(None) == []


def test_what_cannot_be_read_is_named(tmp_path, monkeypatch):
    (tmp_path / "text.npz").write_text("no archive")
    np.save(tmp_path / "one.npy", ROWS)
    np.savez(tmp_path / "none.npz")
    np.savez(tmp_path / "object.npz", x=np.array([{}], object))
    cases = [
        (tmp_path / "nix.npz", "there is no such file"),
        (tmp_path / "text.npz", "cannot be read as arrays of numpy.savez"),
        (tmp_path / "one.npy", "one array without a name"),
        (tmp_path / "none.npz", "holds no arrays"),
        (tmp_path / "object.npz", "an array of Python's objects"),
        ({"x": np.array([{}], object)}, "'x' of the samples is of object"),
        ({"x": np.array(["2026"], "datetime64[D]")}, "'x' of the samples is of datetime64"),
        ({"x": np.array(["a", "\udc80"], object)}, r"the array 'x' of the samples has the text '\\udc80', which is"),
        (tmp_path, "is a folder: name a file, and repeat the flag for more"),
        (7, "not int"),
        ({}, "the samples have no arrays"),
        ([], "the samples have no arrays"),
        ([{"x": ROWS}, {"z": ROWS}], "samples 2 have the arrays z, and the first ones have x"),
        ({"x": [[1, 2], [3]]}, "'x' of the samples cannot be made an array of numpy: .*inhomogeneous"),
    ]
    for given, said in cases:
        with pytest.raises(BadRequest, match=said):
            read_samples(given)
    monkeypatch.setattr(limits, "CONVERT_SAMPLES_BYTES_MAX", 39)
    with pytest.raises(BadRequest, match="the samples have 40 bytes, and tisfast convert takes 39"):
        read_samples({"x": ROWS})


def damaged(path):
    np.savez_compressed(path, x=np.random.default_rng(0).random(1000))
    content = bytearray(path.read_bytes())
    content[200:260] = b"\xff" * 60
    path.write_bytes(content)


def encrypted(path):
    np.savez(path, x=ROWS)
    content = bytearray(path.read_bytes())
    content[6] |= 1
    content[content.find(b"PK\1\2") + 8] |= 1
    path.write_bytes(content)


def compressed_unknown(path):
    np.savez(path, x=ROWS)
    content = bytearray(path.read_bytes())
    content[8] = content[content.find(b"PK\1\2") + 10] = 97
    path.write_bytes(content)


def larger_by_its_header(path):
    with zipfile.ZipFile(path, "w") as archive, archive.open("x.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
        file.write(b"abc")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (damaged, "cannot be read as arrays of numpy.savez: Error -3 while decompressing"),
        (encrypted, "cannot be read as arrays of numpy.savez: File .*x.npy.* is encrypted"),
        (compressed_unknown, "cannot be read as arrays of numpy.savez: That compression method is not supported"),
        (
            larger_by_its_header,
            r"'x.npy' is \[1000000000000\] of float64 by its header, 8000000000000 bytes, and has",
        ),
    ],
)
def test_archives_that_are_no_good_are_named(tmp_path, make, said):
    make(tmp_path / "bad.npz")
    with pytest.raises(BadRequest, match=f"--samples .*bad.npz.*{said}"):
        read_samples(tmp_path / "bad.npz")


def test_names_may_come_in_any_order():
    first, second = read_samples([{"a": ROWS[:1], "b": ROWS[:2]}, {"b": ROWS[:3], "a": ROWS[:4]}])
    assert list(first) == list(second) == ["a", "b"] and len(second["a"]) == 4


def test_samples_that_do_not_fit_name_the_inputs():
    for array, said in [
        (ROWS[:, :1], r"shaped \[5, 1\], and the inputs are x FP32 \[-1, 2\]"),
        (ROWS[0], r"shaped \[2\]"),
        (np.array([["a", "b"]]), "is of <U1"),
        (ROWS[:0], "at least 1"),
    ]:
        with pytest.raises(BadRequest, match=said):
            fitted([{"x": array}], BATCHES)
    with pytest.raises(BadRequest, match="have the arrays z, and the model's inputs are x FP32"):
        fitted([{"z": ROWS}], BATCHES)
    assert fitted([{"x": ROWS.astype(np.float64)}], BATCHES)[0]["x"].dtype == np.float32


def test_rows_are_asked_alone_and_in_full_batches():
    cases = cases_of([{"x": ROWS[:3]}, {"x": ROWS[3:]}], BATCHES, 4)
    assert [len(each.feeds["x"]) for each in cases] == [1, 1, 1, 1, 1, 4, 4]
    assert [row[0] for row in cases[-1].feeds["x"]] == [8, 0, 2, 4]
    assert cases[-1].name == "the batch of 4 from sample 4 on" and cases[-1].alone == (4, 0, 1, 2)
    assert [len(each.feeds["x"]) for each in cases_of([{"x": ROWS}], BATCHES, 1)] == [1] * 5


def test_of_a_model_without_batches_each_sample_is_a_request():
    assert [each.feeds["x"].shape for each in cases_of([{"x": ROWS[:3]}] * 2, FIXED, 8)] == [(3, 2), (3, 2)]


def test_samples_of_several_shapes_are_not_mixed():
    open_ = Signature((Tensor("x", "FP32", (-1, -1)),), (Tensor("y", "FP32", (-1,)),), True)
    cases = cases_of([{"x": ROWS[:2]}, {"x": ROWS[:2, :1]}], open_, 2)
    assert [each.feeds["x"].shape for each in cases] == [(1, 2), (1, 2), (2, 2), (1, 1), (1, 1), (2, 1)]
    assert [each.name for each in cases[3:5]] == ["sample 2", "sample 3"] and cases[5].alone == (3, 4)


def test_too_many_requests_are_refused(monkeypatch):
    monkeypatch.setattr(limits, "CONVERT_CASES_MAX", 6)
    with pytest.raises(BadRequest, match="make 7 requests, and tisfast convert compares 6 at most"):
        cases_of([{"x": ROWS}], BATCHES, 4)
    with pytest.raises(BadRequest, match="make 7 requests"):
        cases_of([{"x": row[np.newaxis]} for row in ROWS], BATCHES, 4)


def test_what_would_take_too_much_memory_is_refused_before_it_does(tmp_path, monkeypatch):
    with (
        zipfile.ZipFile(tmp_path / "zeros.npz", "w", zipfile.ZIP_DEFLATED) as archive,  # some kB
        archive.open("x.npy", "w", force_zip64=True) as file,
    ):
        for _ in range(1025):
            file.write(bytes(1 << 20))
    with pytest.raises(BadRequest, match=r"zeros.npz: its arrays have 1074790400 bytes, and .* takes 1073741824"):
        read_samples(tmp_path / "zeros.npz")
    with pytest.raises(BadRequest, match="there are 2001 files or dictionaries of samples, and tisfast convert takes"):
        read_samples([{"x": ROWS}] * 2001)
    wide = Signature((Tensor("x", "FP32", (-1, 1 << 20)),), (), True)
    with pytest.raises(BadRequest, match="with batches of 65536, have 274882101248 bytes.*a smaller --max-batch-size"):
        cases_of([{"x": np.zeros((1, 1 << 20), np.float32)}], wide, 65536)
    many = np.broadcast_to(np.float32(1), (10**9, 2))
    with pytest.raises(BadRequest, match="make 1125000000 requests"):
        cases_of([{"x": many}], BATCHES, 8)
    with pytest.raises(BadRequest, match="random numbers for input 'x' have 32000000000000 bytes.*give --samples"):
        drawn(Signature((Tensor("x", "FP32", (-1, 10**6, 10**6)),), (), True))
    monkeypatch.setattr(limits, "CONVERT_ANSWERS_BYTES_MAX", 39)
    request = {"max_batch_size": 1, "samples": ""}
    with pytest.raises(BadRequest, match="the source's answers have more than 39 bytes"):
        answer(request, tmp_path, BATCHES, [{"x": ROWS}], lambda feeds: {"y": feeds["x"]})


def test_inputs_are_drawn_where_shapes_are_known():
    assert drawn(BATCHES)["x"].shape == (8, 2) and drawn(FIXED)["x"].shape == (3, 2)
    texts = Signature((Tensor("x", "BYTES", (-1, 1)),), (), True)
    with pytest.raises(
        BadRequest, match=r"input 'x' is BYTES \[-1, 1\], and what to send is not known: give --samples"
    ):
        drawn(texts)


def test_a_long_text_makes_no_other_text_longer(monkeypatch):
    model = Signature((Tensor("x", "BYTES", (-1, 1)),), (Tensor("y", "FP32", (-1, 1)),), True)
    given = [{"x": np.array([[text]])} for text in ("a" * 500_000, *"b" * 200)]
    feeds = [each.feeds["x"] for each in cases_of(fitted(given, model), model, 8)]
    assert sum(each.nbytes for each in feeds) < 10_000
    assert [feeds[0].item(), feeds[1].item()] == ["a" * 500_000, "b"]
    monkeypatch.setattr(limits, "CONVERT_SAMPLES_BYTES_MAX", 1_000_000)
    with pytest.raises(BadRequest, match="the requests of these samples, with batches of 8, have 1020864 bytes"):
        cases_of(fitted(given, model), model, 8)


def test_requests_go_to_another_process_and_back(tmp_path):
    texts = Signature((Tensor("a/b", "BYTES", (-1,)), Tensor("n", "INT8", (-1,))), (), True)
    cases = cases_of([{"a/b": np.array(["ä", b"b\0\xff\0"], object), "n": np.array([1, 2], np.int8)}], texts, 2)
    save_cases(tmp_path / "x.npz", cases)
    back = load_cases(tmp_path / "x.npz", texts.inputs, [each.name for each in cases])
    assert [each.name for each in back] == [each.name for each in cases]
    assert back[-1].feeds["a/b"].tolist() == ["ä".encode(), b"b\0\xff\0"] and back[-1].feeds["n"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("datatype", "array", "said"),
    [
        ("INT8", np.array([1, 300]), "has the value 300, and INT8 holds -128 to 127"),
        ("UINT8", np.array([-1, 3]), "has the value -1, and UINT8 holds 0 to 255"),
        ("INT64", np.array([1 << 63], np.uint64), r"has the value 9.22337e\+18, and INT64 holds"),
        ("FP16", np.array([1e5]), r"has the value 100000, and FP16 holds -65504 to 65504"),
        ("FP32", np.array([1e300, np.nan]), r"has the value 1e\+300, and FP32 holds"),
        ("INT32", np.array([1.0]), "is of float64"),
        ("BOOL", np.array([1]), "is of int64"),
    ],
)
def test_numbers_that_would_become_others_are_refused(datatype, array, said):
    with pytest.raises(BadRequest, match=f"the samples' 'x' {said}"):
        fitted([{"x": array}], Signature((Tensor("x", datatype, (-1,)),), (), True))


def test_numbers_that_fit_are_cast():
    (found,) = fitted([{"x": np.array([0, 255])}], Signature((Tensor("x", "UINT8", (-1,)),), (), True))
    assert found["x"].dtype == np.uint8 and found["x"].tolist() == [0, 255]
    (found,) = fitted([{"x": np.array([np.inf, 1.5])}], Signature((Tensor("x", "FP32", (-1,)),), (), True))
    assert found["x"].dtype == np.float32 and found["x"].tolist() == [np.inf, 1.5]


def test_texts_in_a_file_are_an_array_of_str(tmp_path):
    path = tmp_path / "texts.npz"
    np.savez(path, t=np.array([["a", "é"]], object))
    with pytest.raises(BadRequest, match=r"write texts as an array of str, array.astype\(str\)"):
        read_samples(path)
    np.savez(path, t=np.array([["a", "é"]], object).astype(str))
    assert read_samples(path)[0]["t"].tolist() == [["a", "é"]]


def test_what_cannot_be_drawn_says_why():
    x, y = Tensor("x", "FP32", (-1, 4)), Tensor("y", "FP32", ())
    with pytest.raises(BadRequest, match=r"'x' is FP32 \[-1, 4\], whose first size is no batch, as output 'y' is \[\]"):
        drawn(Signature((x,), (y,), False))
    with pytest.raises(BadRequest, match=r"'z' is FP32 \[-1, -1\], and what to send is not known"):
        drawn(Signature((x, Tensor("z", "FP32", (-1, -1))), (x,), True))


def test_integers_that_a_float_does_not_hold_are_refused():
    model = Signature((Tensor("x", "FP32", (-1, 1)),), (Tensor("y", "FP32", (-1, 1)),), True)
    for value in (2**24 + 1, 2**63 - 1):
        with pytest.raises(BadRequest, match=f"has the value {value}, and FP32 holds its neighbours alone"):
            fitted([{"x": np.array([[3], [value]])}], model)
    (found,) = fitted([{"x": np.array([[2**24], [-(2**63)]])}], model)
    assert found["x"].tolist() == [[2.0**24], [-(2.0**63)]]
