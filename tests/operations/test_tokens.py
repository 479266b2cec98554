"""Tokens in a file: which there are, and what happens when the file changes."""

from __future__ import annotations

import logging
import os

import pytest

from tests.operations.control_helpers import write
from tisfast import limits
from tisfast.errors import ConfigError
from tisfast.operations.tokens import TokenFile


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tokens"


def test_one_token_a_line(file):
    write(file, "# of Ann\n\none.TWO-3_4~5+6/7==\n  second \r\n")
    tokens = TokenFile(str(file))
    assert tokens.holds("one.TWO-3_4~5+6/7==") and tokens.holds("second")
    for other in ("", "one", "# of Ann", "second ", "SECOND", "é", "\udcff"):
        assert not tokens.holds(other)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no token; write one a line"),
        ("# nobody\n", "holds no token"),
        ("good\ntwo words\n", "line 2 is no token"),
        ("\N{SNOWMAN}\n", "line 1 is no token"),
        ("t\n" * (limits.CONTROL_TOKENS_MAX + 1), f"{limits.CONTROL_TOKENS_MAX} are the limit"),
        ("t" * (limits.CONTROL_TOKENS_BYTES_MAX + 1), f"has more than {limits.CONTROL_TOKENS_BYTES_MAX} bytes"),
    ],
    ids=lambda text: text[:20],
)
def test_a_file_that_cannot_be_used_is_named(text, said, file):
    write(file, text)
    with pytest.raises(ConfigError) as caught:
        TokenFile(str(file))
    assert caught.value.message.startswith(f"--model-control-token-file={file} ") and said in caught.value.message
    assert "two words" not in caught.value.message


def test_no_file_and_a_folder_are_named(file, tmp_path):
    for path in (file, tmp_path):
        with pytest.raises(ConfigError, match=f"--model-control-token-file={path} cannot be read"):
            TokenFile(str(path))


def test_a_change_counts_from_the_next_call_on(file):
    write(file, "old\n")
    tokens = TokenFile(str(file))
    write(file, "new\n")
    assert tokens.holds("new") and not tokens.holds("old")
    with file.open("a") as more:
        more.write("more\n")
    assert tokens.holds("more") and tokens.holds("new")


def test_a_file_that_becomes_unusable_lets_nobody_in_until_it_is_mended(file, caplog):
    caplog.set_level(logging.INFO, "tisfast")
    write(file, "secret-one\n")
    tokens = TokenFile(str(file))
    for breakage in (file.unlink, lambda: write(file, "two words\n"), lambda: write(file, "")):
        breakage()
        assert not tokens.holds("secret-one") and not tokens.holds("two words")
    write(file, "secret-one\n")
    assert tokens.holds("secret-one")
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]  # once, and that it is mended
    assert "secret" not in caplog.text


def test_a_file_that_was_away_lets_people_in_again_when_the_very_same_one_is_back(file, tmp_path):
    write(file, "one\n")
    tokens = TokenFile(str(file))
    away = tmp_path / "away"
    os.rename(file, away)
    assert not tokens.holds("one")
    os.rename(away, file)
    assert tokens.holds("one")
