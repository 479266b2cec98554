"""The logging extension."""

from __future__ import annotations

import logging

import pytest

from tisfast import logs
from tisfast.errors import BadRequest, Internal, Unsupported
from tisfast.operations.log_settings import LiveLogSettings, UnknownLogFormat

DEFAULTS = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}


@pytest.fixture
def file(tmp_path, own_log):
    return tmp_path / "log"


def settings(file, told=None):
    switches = logs.Switches(verbose=0, info=True, warning=True, error=True)
    return LiveLogSettings(logs.configure(switches, "default", str(file)), (told if told is not None else []).append)


def test_values_are_those_of_the_flags(file):
    assert settings(file).values() == {**DEFAULTS, "log_file": str(file)}


def test_changes_are_seen_by_the_next_line(file):
    live, log = settings(file), logging.getLogger("tisfast.test")
    log.debug("one")
    live.update({"log_verbose_level": 1, "log_info": False, "log_format": "json"})
    log.debug("two")
    log.info("three")
    live.update({"log_verbose_level": None, "log_info": True, "log_format": "ISO8601"})
    log.info("four")
    first, second = file.read_text().splitlines()
    assert '"message": "two"' in first
    assert second.endswith('"four"')
    assert second[10] == "T"


def test_workers_are_told_of_another_verbose_level(file):
    told = []
    live = settings(file, told)
    live.update({"log_info": False})
    live.update({"log_verbose_level": 3})
    live.update({"log_verbose_level": 3})
    assert told == [3]


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"log_info": 1}, Internal, "attempt to access JSON non-boolean as boolean"),
        ({"log_verbose_level": True}, Internal, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"log_verbose_level": -1}, Internal, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"log_verbose_level": 2**32}, Internal, "attempt to access JSON non-unsigned-integer"),
        ({"log_format": 1}, Internal, "attempt to access JSON non-string as string"),
        ({"log_format": "x"}, UnknownLogFormat, "invalid argument for --log_format, got: x"),
        ({"log_file": "x"}, Unsupported, "log file location can not be updated through network protocol"),
        ({"bogus": 1}, BadRequest, "unknown log setting 'bogus'"),
    ],
)
def test_a_wrong_value_changes_nothing(file, change, error, text):
    live = settings(file)
    with pytest.raises(error, match=text):
        live.update({"log_info": False, **change})
    assert live.values() == {**DEFAULTS, "log_file": str(file)}


def test_none_leaves_a_setting_as_it_is(file):
    live = settings(file)
    live.update(dict.fromkeys(DEFAULTS))
    assert live.values() == {**DEFAULTS, "log_file": str(file)}
