import errno
import io
import json
import logging
import re
import sys

import pytest

from tisfast import logs

QUIET = {"verbose": 0, "info": True, "warning": True, "error": True}


@pytest.fixture
def log(tmp_path, own_log):
    """A logger that writes to a file in a chosen format; `read` gives its lines."""
    logger = logging.getLogger("tisfast.test")

    def start(name: str, **switches) -> logging.Logger:
        logs.configure(logs.Switches(**{**QUIET, **switches}), name, str(tmp_path / "log"))
        return logger

    return start


@pytest.fixture
def read(tmp_path):
    return lambda: (tmp_path / "log").read_text().splitlines()


def test_the_default_line_is_triton_s(log, read):
    log("default").info("loading: %s:1", "add_sub")
    assert re.fullmatch(r'I\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ test_logs\.py:\d+\] "loading: add_sub:1"', read()[0])


def test_iso8601_is_triton_s(log, read):
    log("ISO8601").warning("careful")
    assert re.fullmatch(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ W \d+ test_logs\.py:\d+\] "careful"', read()[0])


def test_control_characters_cannot_forge_a_line(log, read):
    log("default").error('evil\nI0101 00:00:00.000000 1 x.cc:1] "all is well"\x1b[0m')
    assert len(read()) == 1
    assert "\\n" in read()[0] and "\\u001b" in read()[0]


def test_a_table_is_printed_as_it_stands(log, read):
    log("default").info("%s", "+--+\n|ab|", extra={"table": True})
    assert read()[1:] == ["+--+", "|ab|", ""]


def test_a_traceback_is_readable_and_cannot_forge_a_line(log, read):
    log("default").error("model failed", extra={"traceback": "Traceback:\n  boom\x1b"})
    assert read()[0].endswith('"model failed"')
    assert read()[1:] == ["    Traceback:", "      boom\\u001b"]


def test_quotes_in_a_traceback_stay_as_they_are(log, read):
    log("default").error("model failed", extra={"traceback": 'File "/m/1/model.py", line 3'})
    assert read()[1:] == ['    File "/m/1/model.py", line 3']


def test_lines_of_a_model_are_readable_and_cannot_forge_a_line(log, read):
    text = 'm_0_0: 3 lines:\nI0101 1 x.cc:1] "all is well"\x1b\nC:\\new\\\n\n'
    log("default").info("%s", text, extra={"indented": True})
    assert read()[0].endswith('"m_0_0: 3 lines:"')
    assert read()[1:] == ['    I0101 1 x.cc:1] "all is well"\\u001b', "    C:\\\\new\\\\", "    ", "    "]


def test_lines_of_a_model_are_one_object_in_json(log, read):
    log("json").info("%s", "m_0_0: 2 lines:\na\nb", extra={"indented": True})
    assert [json.loads(line)["message"] for line in read()] == ["m_0_0: 2 lines:\na\nb"]


def test_a_log_that_cannot_be_written_is_told_once(log, monkeypatch, capsys):
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    logger = log("default")
    logs.configure(logs.Switches(**QUIET), "default")
    monkeypatch.setattr(sys, "stdout", Gone())
    logger.info("first")
    logger.info("second")
    assert capsys.readouterr().err == f"tisfast: log lines are being lost: [Errno {errno.EPIPE}] Broken pipe\n"


def test_the_user_s_own_line_is_named(log, read):
    log("default").info("hello", extra={"source": ("model.py", 12)})
    assert " model.py:12] " in read()[0]


def test_a_line_that_is_not_known_is_not_named(log, read):
    log("default").info("hello", extra={"source": ("compiled.py", 0)})
    log("json").info("hello", extra={"source": ("compiled.py", 0)})
    assert " compiled.py] " in read()[0]
    assert json.loads(read()[1])["file"] == "compiled.py" and "line" not in json.loads(read()[1])


def test_json_has_one_object_a_line_with_the_facts(log, read):
    log("json").info("a\nb", extra={"facts": {"model": "m", "instance": "m_0_0"}, "traceback": "t\nu"})
    (line,) = read()
    entry = json.loads(line)
    assert entry["message"] == "a\nb" and entry["level"] == "info"
    assert entry["model"] == "m" and entry["instance"] == "m_0_0" and entry["traceback"] == "t\nu"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", entry["time"])


@pytest.mark.parametrize("name", logs.FORMATS)
def test_an_exception_is_logged_with_its_traceback(log, read, name):
    logger = log(name)
    try:
        raise ValueError("boom")
    except ValueError:
        logger.exception("failed")
    assert "ValueError: boom" in "\n".join(read())


@pytest.mark.parametrize(
    ("switches", "heard"),
    [
        ({}, ["info", "warning", "error"]),
        ({"verbose": 1}, ["debug", "info", "warning", "error"]),
        ({"info": False}, ["warning", "error"]),
        ({"warning": False}, ["info", "error"]),
        ({"error": False}, ["info", "warning"]),
    ],
)
def test_switches(log, read, switches, heard):
    logger = log("json", **switches)
    for level in ("debug", "info", "warning", "error"):
        getattr(logger, level)(level)
    assert [json.loads(line)["message"] for line in read()] == heard


def test_without_a_file_errors_go_to_stderr(log, capsys):
    logs.configure(logs.Switches(**QUIET), "default")
    logger = logging.getLogger("tisfast.test")
    logger.info("to stdout")
    logger.warning("to stderr")
    out, err = capsys.readouterr()
    assert "to stdout" in out and "to stdout" not in err
    assert "to stderr" in err and "to stderr" not in out
