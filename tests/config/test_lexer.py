"""Cutting text into tokens: their kinds, and where they stand."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tisfast.config.error_report import SourcePosition
from tisfast.config.lexer import BAD, END, NAME, NUMBER, STRING, SYMBOL, Lines, Token, tokens


def kinds(text):
    return [(token.kind, token.text) for token in tokens(text)[:-1]]


@pytest.mark.parametrize("text", ["name", "_", "_a1", "A", "TYPE_FP32", "inf", "nan", "true", "x" * 1000])
def test_names(text):
    assert kinds(text) == [(NAME, text)]


@pytest.mark.parametrize(
    "text",
    [
        "0", "7", "007", "12345678901234567890", "0x0", "0XfF", "1.", "1.5", ".5", "1e9", "1E+9", "1e-9", "1.5e3",
        ".5e3", "1f", "1F", "1.5f", "1.e3f", "0xf", "0x1f",
    ],
)  # fmt: skip
def test_numbers(text):
    assert kinds(text) == [(NUMBER, text)]


@pytest.mark.parametrize("text", ["1a", "0x", "0xg", "1.5.5", "1e", "1e+", "1_000", "1ff", "1.5x", "09z", "1f2"])
def test_what_begins_as_a_number_and_is_none_is_one_bad_token_at_least(text):
    found = kinds(text)
    assert found[0][0] == BAD and "".join(part for _, part in found) == text


@pytest.mark.parametrize(
    "text",
    [
        '""', "''", '"a"', "'a'", '"it\'s"', "'say \"x\"'", r'"\""', r"'\''", r'"\\"',
        '"# no comment"', '"{ [ <"', '"é\t"',
    ],
)  # fmt: skip
def test_texts(text):
    assert kinds(text) == [(STRING, text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"open', [(BAD, '"open')]),
        ("'open", [(BAD, "'open")]),
        ('"open\nname', [(BAD, '"open'), (NAME, "name")]),
        ('"open\\', [(BAD, '"open\\')]),
        (r'"a\"', [(BAD, r'"a\"')]),
        ('"a"b"', [(STRING, '"a"'), (NAME, "b"), (BAD, '"')]),
        ("$", [(BAD, "$")]),
        ("@é", [(BAD, "@"), (BAD, "é")]),
        ("+1", [(BAD, "+"), (NUMBER, "1")]),
        ("-1", [(SYMBOL, "-"), (NUMBER, "1")]),
        ("a.b", [(NAME, "a"), (BAD, "."), (NAME, "b")]),
    ],
)
def test_what_fits_no_rule_is_a_token_of_its_own(text, found):
    assert kinds(text) == found


def test_each_symbol_is_one_token():
    assert kinds("{}<>[]:;,/=-") == [(SYMBOL, symbol) for symbol in "{}<>[]:;,/=-"]


@pytest.mark.parametrize("text", ["", " ", "\n", "\t\r\n\v\f", "# a comment", "# one\n# two", " # { [ \n "])
def test_space_and_comments_are_no_tokens(text):
    assert tokens(text) == [Token(END, "", len(text))]


def test_a_comment_ends_with_its_line():
    assert [(token.text, token.offset) for token in tokens("a#b\nc")] == [("a", 0), ("c", 4), ("", 5)]


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (Token(END, "", 0), "the end of the file"),
        (Token(STRING, '"x"', 0), 'string "x"'),
        (Token(NAME, "x", 0), "'x'"),
        (Token(NAME, "x" * 60, 0), f"'{'x' * 60}'"),
        (Token(NAME, "x" * 61, 0), f"'{'x' * 57}...'"),
        (Token(STRING, f'"{"x" * 70}"', 0), f'string "{"x" * 56}...'),
    ],
)
def test_an_error_shows_no_more_of_a_token_than_fits_a_line(token, shown):
    assert token.shown() == shown


@pytest.mark.parametrize(
    ("text", "offset", "place"),
    [
        ("", 0, (1, 1)),
        ("abc", 2, (1, 3)),
        ("abc", 3, (1, 4)),
        ("a\nb", 1, (1, 2)),
        ("a\nb", 2, (2, 1)),
        ("\n\n", 2, (3, 1)),
        ("é\n\tx", 3, (2, 2)),
        ("a\r\nb", 3, (2, 1)),
    ],
)
def test_a_place_is_a_line_and_a_column_of_characters(text, offset, place):
    assert Lines(text).place(offset) == SourcePosition(*place)


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("ab_01.9eExX+-\"'\\\n# {}[]<>:;,=/$é"), max_size=60))
@example("1.5e+")
@example('"\\\n')
def test_tokens_are_the_whole_text_but_space_and_comments(text):
    at = 0
    for token in tokens(text):
        between = text[at : token.offset]
        assert all(not line.strip() or line.strip().startswith("#") for line in between.split("\n")), between
        assert text[token.offset :].startswith(token.text)
        at = token.offset + len(token.text)
    assert at == len(text)


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("ab\n"), max_size=40))
def test_places_count_the_characters(text):
    lines = Lines(text)
    for offset in range(len(text) + 1):
        before = text[:offset]
        assert lines.place(offset) == (before.count("\n") + 1, len(before.rsplit("\n", 1)[-1]) + 1)
