"""The report of one configuration: places, order, bounds, and what is not told twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tisfast import limits
from tisfast.config.error_report import NOWHERE, ConfigErrors, Report, SourcePosition, key_text, owner
from tisfast.errors import ConfigError


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("name",), "name"),
        (("input", 0), "input[0]"),
        (("input", 0, "dims", 11), "input[0].dims[11]"),
        (("parameters", "a.b"), "parameters.a.b"),
        (("dynamic_batching", "priority_queue_policy", 3, "max_queue_size"),
         "dynamic_batching.priority_queue_policy[3].max_queue_size"),
    ],
)  # fmt: skip
def test_a_key_path_as_people_write_it(path, text):
    assert key_text(path) == text


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), "the model configuration"),
        (("input",), "'input'"),
        (("input", 0), "'input'"),
        (("input", 0, "reshape"), "'reshape'"),
        ((0,), "the model configuration"),
    ],
)
def test_a_message_is_called_by_the_nearest_key(path, text):
    assert owner(path) == text


def raised(report) -> ConfigErrors:
    with pytest.raises(ConfigErrors) as caught:
        report.raise_all()
    return caught.value


def test_a_report_without_errors_raises_nothing():
    Report("f").raise_if_any()


def test_an_error_stands_where_its_key_is_or_the_nearest_above():
    report = Report("m/config.pbtxt")
    report.places.update({("input",): SourcePosition(2, 1), ("input", 0): SourcePosition(3, 5)})
    for path in (("input", 0, "dims", 1), ("input", 0), ("input", 7), ("output",)):
        report.add("wrong", path)
    assert [str(error) for error in report.errors] == [
        "m/config.pbtxt:3:5: wrong",
        "m/config.pbtxt:3:5: wrong",
        "m/config.pbtxt:2:1: wrong",
        "m/config.pbtxt: wrong",
    ]
    assert report.place_of(("output", 3)) == NOWHERE


def test_a_place_of_its_own_goes_before_that_of_the_key():
    report = Report("f")
    report.places["name",] = SourcePosition(2, 1)
    report.add("wrong", ("name",), place=SourcePosition(9, 8))
    assert (report.errors[0].line, report.errors[0].column, report.errors[0].key) == (9, 8, "name")


def test_errors_are_in_the_order_of_the_file_and_those_without_a_place_behind_them():
    report = Report("f")
    for line, column in ((3, 1), (0, 0), (1, 9), (1, 2), (0, 0)):
        report.add(f"{line}:{column}", place=SourcePosition(line, column))
    assert [error.message for error in raised(report).errors] == ["1:2", "1:9", "3:1", "0:0", "0:0"]


def test_errors_beyond_the_bound_are_counted():
    report = Report("f")
    for number in range(limits.CONFIG_ERRORS_MAX + 3):
        assert report.full == (number >= limits.CONFIG_ERRORS_MAX)
        report.add(f"wrong {number}", ("name",))
    errors = raised(report).errors
    assert len(errors) == limits.CONFIG_ERRORS_MAX + 1
    assert str(errors[-1]) == "f: and 3 more errors; correct these first"


def test_a_hint_that_takes_long_is_looked_for_only_where_it_is_shown():
    report, asked = Report("f"), []

    def hint():
        asked.append(True)
        return "do this"

    for _ in range(limits.CONFIG_ERRORS_MAX + 5):
        report.add("wrong", hint=hint)
    assert len(asked) == limits.CONFIG_ERRORS_MAX and report.errors[-1].hint == "do this"


def test_what_could_not_be_read_is_not_told_as_wrong_as_well():
    report = Report("f")
    report.broke(("input", 0, "dims"))
    for path in (("input", 0, "dims"), ("input", 0, "dims", 1), ("input", 0), ("input",), ()):
        report.wrong("missing", path)
    assert not report.errors
    for path in (("input", 1), ("input", 0, "name"), ("output",)):
        report.wrong("missing", path)
    assert [error.key for error in report.errors] == ["input[1]", "input[0].name", "output"]


PATHS = st.lists(st.sampled_from(["a", "b", 0, 1]), max_size=4).map(tuple)


@settings(max_examples=200, deadline=None)
@given(st.lists(PATHS, max_size=5), PATHS)
def test_a_key_is_broken_with_what_is_above_and_below_it(broken, path):
    report = Report("f")
    for key in broken:
        report.broke(key)
    related = [key for key in broken if all(one == other for one, other in zip(key, path, strict=False))]
    assert report.is_broken(path) == bool(related)


def test_errors_of_the_load_are_told_from_those_of_the_form():
    report = Report("f")
    report.add("form")
    with report.loading():
        report.add("load")
        with report.loading(readable=False):
            report.add("form again")
        report.add("load again")
    report.add("form at the end")
    assert [error.at_load for error in report.errors] == [False, True, False, True, False]


@pytest.mark.parametrize(("kinds", "at_load"), [([True], True), ([True, True], True), ([True, False], False)])
def test_a_file_is_readable_where_all_its_errors_are_of_the_load(kinds, at_load):
    report = Report("f")
    for kind in kinds:
        with report.loading(readable=kind):
            report.add("wrong")
    assert raised(report).at_load is at_load


def test_versions_are_known_where_the_file_could_be_read():
    error = ConfigError("wrong")
    assert ConfigErrors([error], [1, 2]).versions == ()
    error.at_load = True
    assert ConfigErrors([error], [1, 2]).versions == (1, 2)


def test_a_count_of_more_errors_is_of_the_kind_of_the_others():
    report = Report("f")
    with report.loading():
        for _ in range(limits.CONFIG_ERRORS_MAX + 1):
            report.add("wrong")
    assert raised(report).at_load


def test_a_broken_rule_within_a_context_that_raises_ends_the_context():
    report = Report("f")
    with pytest.raises(ZeroDivisionError), report.loading():
        raise ZeroDivisionError
    report.add("form")
    assert not report.errors[0].at_load


def both():
    return ConfigErrors([
        ConfigError("first", file="/link/f", line=1, column=2, hint="see /link/x"),
        ConfigError("second /link/y", file="/link/f"),
    ])  # fmt: skip


def test_all_errors_are_one_with_a_line_for_each():
    assert str(both()) == both().message == "/link/f:1:2: first; see /link/x\n/link/f: second /link/y"
    assert both().message_first == "first; see /link/x (/link/f:1:2)\nsecond /link/y (/link/f)"


def test_files_that_nobody_named_so_are_renamed_in_every_error():
    errors = both()
    errors.reword(lambda text: text.replace("/link/", ""))
    assert errors.message == "f:1:2: first; see x\nf: second y"
    assert errors.message_first == "first; see x (f:1:2)\nsecond y (f)"
    assert [error.file for error in errors.errors] == ["f", "f"]
