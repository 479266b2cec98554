"""Answers held against the source's."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tisfast.convert.compare import Allowed, Difference, Tolerance, allowed, tolerance_of
from tisfast.convert.scales import Scales, scales_of

TOLERANCE = Allowed(0.01, 0.1)


def difference(wanted, found, tolerance=TOLERANCE) -> Difference:
    seen = Difference()
    seen.add("y", "sample 0", np.asarray(wanted), np.asarray(found), tolerance)
    return seen


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ([1.0, -2.0], [1.1, -2.2]),
        ([0.0], [0.01]),
        ([np.nan, np.inf, -np.inf], [np.nan, np.inf, -np.inf]),
        (np.float32([1]), np.float64([1.0])),
        ([[1.0], [2.0]], [1.0, 2.0]),
        ([1.0, 2.0], [[1.0], [2.0]]),
        (np.ones(8), np.ones((1, 8))),
        (np.ones((1, 1, 8)), np.ones((1, 8))),
        (np.float64(2.0), [2.0]),
        ([1, 2], [1, 2]),
        ([True], [True]),
        (["a", "b"], np.array([b"a", b"b"], object)),
        (np.zeros((0, 3)), np.zeros((0, 3))),
    ],
)
def test_what_is_within_is_right(wanted, found):
    assert not difference(wanted, found).wrong


@pytest.mark.parametrize(
    ("wanted", "found", "said"),
    [
        ([1.0, 2.0], [1.0, 2.3], r"1 of 2 elements .* 0.01 \+ 0.1 \* \|x\|: at \[1\], .* it is 2.3 and not 2"),
        ([1.0], [np.nan], r"at \[0\], .* it is nan and not 1"),
        ([1.0], [np.inf], "it is inf and not 1"),
        ([np.inf], [-np.inf], "it is -inf and not inf"),
        ([np.nan], [0.0], "it is 0 and not nan"),
        ([1.0, 2.0], [1.0], r"its shape is \[1\] and not \[2\]"),
        (np.zeros((2, 3)), np.zeros((3, 2)), r"its shape is \[3, 2\] and not \[2, 3\]"),
        ([3, 4], [3, 5], "1 of 2 elements are not the same: element 1 is 5 and not 4"),
        (["a"], np.array([b"b"], object), "element 0 is 'b' and not 'a'"),
        (np.array([b"\xff"], object), np.array([b"\xfe"], object), r"element 0 is b'\\xfe' and not b'\\xff'"),
        (np.array([b"a\0"], object), np.array([b"a"], object), r"element 0 is 'a' and not 'a\\x00'"),
        (np.ones((1, 8)), np.ones((8, 1)), r"its shape is \[8, 1\] and not \[1, 8\]"),
        (np.ones((2, 3)), np.ones((2, 1, 3)), r"its shape is \[2, 1, 3\] and not \[2, 3\]"),
        (np.ones((2, 3)), np.ones((2, 3, 1)), r"its shape is \[2, 3, 1\] and not \[2, 3\]"),
    ],
)  # fmt: skip
def test_what_is_not_names_the_element(wanted, found, said):
    seen = difference(wanted, found)
    assert seen.wrong.startswith("output 'y' of sample 0: ")
    assert re.search(said, seen.wrong), seen.wrong


def test_the_largest_differences_are_of_all_answers():
    seen = Difference()
    seen.add("y", "sample 0", np.array([10.0, 0.001]), np.array([11.0, 0.002]), Allowed(5, 0))
    seen.add("z", "sample 1", np.array([100.0]), np.array([102.0]), Allowed(5, 0))
    assert (seen.absolute, seen.relative, seen.place, seen.wrong) == (2.0, 0.1, "'y'", "")


def test_the_first_wrong_one_is_told():
    seen = Difference()
    for at in range(3):
        seen.add("y", f"sample {at}", np.array([1.0]), np.array([1.0 + at]), TOLERANCE)
    assert "sample 1" in seen.wrong


def test_what_was_not_compared_has_no_difference():
    assert (difference(["a"], ["a"]).absolute, difference(["a"], ["a"]).relative) == (None, None)
    assert difference([1.0], [1.0, 2.0]).absolute is None
    assert (difference([0.0], [0.0]).absolute, difference([0.0], [0.0]).relative) == (0.0, 0.0)
    assert (difference([np.nan], [np.nan]).absolute, difference([np.inf], [np.inf]).relative) == (None, None)
    assert (difference([3, 4], [3, 9]).absolute, difference([3, 4], [3, 9]).relative) == (5.0, None)


@pytest.mark.parametrize(("wanted", "found"), [(1.0, np.inf), (1.0, np.nan), (np.nan, 0.0), (np.inf, -np.inf)])
def test_what_is_infinitely_off_is_not_called_zero(wanted, found):
    seen = difference([wanted, 1.0], [found, 1.0])
    assert (seen.absolute, seen.relative) == (np.inf, np.inf)


def whole(numbers) -> Scales:
    """One scale of all."""
    return scales_of([np.asarray(numbers)], np.shape(numbers)[:1])


def test_the_threshold_is_a_share_of_the_outputs_scale():
    small = np.full(1000, 1e-3)
    half = tolerance_of("fp16", None, None)
    assert difference(small, np.zeros(1000), half.of(whole(small))).wrong
    assert not difference(small, small * 1.01, half.of(whole(small))).wrong
    # One sure score does not hide that all others are zeros.
    sure = np.append(small, 0.9)
    assert difference(sure, np.append(np.zeros(1000), 0.9), half.of(whole(sure))).wrong
    # Rounding grows with what is rounded; what a user says is taken as it is.
    assert half.of(Scales((100.0,))) == Allowed(1.0, 1e-2, 100.0)
    assert tolerance_of("fp32", 0.5, None).of(Scales((1e-3,))) == Allowed(0.5, 1e-3, 1e-3)


def test_a_scale_is_of_all_finite_numbers():
    assert whole([3.0, np.nan, 4.0, np.inf]).each == pytest.approx([12.5**0.5])
    assert whole([1e-200, -1e-200]).each == pytest.approx([1e-200])
    assert whole(np.zeros(3)).each == whole(np.array([5])).each == scales_of([], (-1,)).each == (0.0,)
    # Of an output that is nearly always 0 it is a tenth of the largest.
    assert whole(np.append(np.zeros(10**6), 50.0)).each == pytest.approx([5.0])


UNITS = np.array([1000.0, 1e-8, 1e-4, 0.0])
TABLE = np.random.default_rng(0).standard_normal((6, 4)) * UNITS


def within(precision, table, found) -> Difference:
    scales = scales_of([table], (-1, table.shape[-1]))
    return difference(table, found, allowed(precision, table, scales, None, None))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_each_column_has_a_scale_of_its_own(precision):
    for column in range(3):
        found = TABLE.copy()
        found[:, column] = 0
        seen = within(precision, TABLE, found)
        assert re.search(rf"6 of 24 elements .* at \[\d, {column}\]", seen.wrong), seen.wrong
        assert 1 <= seen.relative < 10 and seen.place == f"'y' at [..., {column}]"
    assert not within("fp16", TABLE, TABLE * 1.001).wrong
    assert not within("fp16", TABLE, TABLE + np.array([0, 0, 0, 1e-3])).wrong


def test_what_is_no_unit_of_its_own_has_one_scale():
    wide = np.random.default_rng(0).standard_normal((6, 65))
    for table, dims in [
        (TABLE, (-1, -1)),  # as many places as a request has
        (wide, (-1, 65)),
        (np.tile(TABLE[:3], (9, 1)), (-1, 4)),  # three rows tell too little
        (TABLE[:, 0], (4,)),
        (np.full((8, 2), 0.5) + np.outer(np.arange(8) / 17, [1, -1]), (-1, 2)),  # shares of one whole
    ]:
        assert scales_of([table], dims) == Scales(whole(table.ravel()).each)
    assert len(scales_of([TABLE], (-1, 4)).each) == 4 and len(scales_of([wide], (2, 3, 65)).each) == 1


@pytest.mark.parametrize("axis", [-1, -2])
def test_scores_beside_boxes_have_their_own_scale_in_both_layouts(axis):
    """As detectors answer: [N, 84, many] or [N, many, 85].  Zeros in place of all scores were once within FP16."""
    random = np.random.default_rng(0)
    found = np.concatenate([random.uniform(0, 640, (2, 300, 4)), random.uniform(0, 1, (2, 300, 80))], 2)
    boxes = np.where(np.arange(84) < 4, found, 0.0)
    found, boxes = (np.moveaxis(each, 2, axis) for each in (found, boxes))
    own = allowed("fp16", found, scales_of([found], found.shape), None, None)
    assert "elements differ by more than 0.00" in difference(found, boxes, own).wrong
    assert not difference(found, found * 1.005, own).wrong
    assert difference(found, boxes, own).place.endswith(", :]" if axis == -2 else "]")


def test_what_a_sum_cancels_to_is_off_by_what_was_added():
    """In FP32, whose sums in two orders are no two right answers and a wrong one."""
    random = np.random.default_rng(0)
    x, weights = random.standard_normal((50, 512), "f"), random.standard_normal((512, 8), "f") * 100
    exact = (x.astype("d") @ weights).astype("f")
    other = np.add.reduce([x[:, at : at + 1] * weights[at] for at in reversed(range(512))], 0).astype("f")
    small = np.abs(exact) < 10  # of some 2000
    assert np.abs(exact - other)[small].max() > 1e-4
    assert not within("fp32", exact, other).wrong
    assert within("fp32", exact, (x.astype(np.float16) @ weights.astype(np.float16)).astype("f")).wrong


def test_a_number_of_a_column_that_is_0_in_all_samples_is_no_unit():
    """The others' largest scale, but 1 at most: 5 in place of 0 is not rounding of 1000."""
    table = TABLE[:, [0, 3]]
    assert within("fp16", table, table + np.array([0, 5.0])).wrong
    assert not within("fp16", table, table + np.array([0, 5e-3])).wrong


def test_a_column_that_is_tiny_beside_others_is_compared_in_fp32():
    table = np.random.default_rng(0).standard_normal((6, 2)) * [1.0, 1e-9]
    assert not within("fp32", table, table * (1 + 1e-4)).wrong
    seen = within("fp32", table, table * [1, 1.17])
    assert seen.wrong and seen.relative == pytest.approx(0.17) and seen.place == "'y' at [..., 1]"
    assert not difference(
        table, table * [1, 1.17], tolerance_of("fp32", 1e-6, None).of(scales_of([table], (-1, 2)))
    ).wrong


def test_differences_of_whole_numbers_are_exact():
    for wanted, found, apart in [
        (np.array([2**53]), np.array([2**53 + 1]), 1.0),
        (np.array([-(2**63)]), np.array([2**63 - 1]), float(2**64 - 1)),
        (np.array([2**64 - 1], np.uint64), np.array([2**64 - 3], np.uint64), 2.0),
        (np.array([200], np.uint8), np.array([-100], np.int8), 300.0),
        (np.array(2**53), np.array(2**53 + 1), 1.0),
        (np.array([True]), np.array([False]), 1.0),
    ]:
        assert difference(wanted, found).absolute == difference(found, wanted).absolute == apart


def test_answers_that_are_fp16_have_its_tolerance_in_all_formats():
    wanted = np.array([[1.0], [2.0]], np.float16)
    for precision in ("fp32", "fp16"):
        assert not within(precision, wanted, wanted.astype("f") * np.float32(1.005)).wrong
    assert within("fp32", wanted.astype("f"), wanted.astype("f") * np.float32(1.005)).wrong
    assert allowed("fp32", wanted, Scales((1.0,)), 0.5, 0.25) == Tolerance(0.5, 0.25).of(Scales((1.0,)))
