"""Lines of the access log: their form, and that nobody waits for them."""

from __future__ import annotations

import json
import logging
import os

from tisfast.native.memory import now_ns
from tisfast.telemetry.access_log import AccessLog

PEER = ("127.0.0.1", 5000)


def noted(path, count=1, as_json=False, **facts):
    access_log = AccessLog(str(path), as_json=as_json)
    note(access_log, count, **facts)
    access_log.close()
    return path.read_text().splitlines()


def note(access_log, count=1, *, method="POST", target="/v2/models/m/infer", model="m", status=200, peer=PEER, id=""):
    for _ in range(count):
        access_log.note(method, target, model, status, now_ns(), 10, 20, peer, id)


def test_a_line_has_its_fields_by_name(tmp_path):
    (line,) = noted(tmp_path / "log", id='a "b')
    time, *fields = line.split(" ", 7)
    assert time.endswith("Z")
    assert fields[:5] == ["protocol=HTTP", "method=POST", 'target="/v2/models/m/infer"', 'model="m"', "status=200"]
    assert fields[5].startswith("milliseconds=")
    assert fields[6] == r'received_bytes=10 sent_bytes=20 client=127.0.0.1:5000 id="a \"b"'


def test_a_line_is_one_line_whatever_clients_send(tmp_path):
    (line,) = noted(tmp_path / "log", target="/v2/\n\x00", id="a\nb")
    assert r'target="/v2/\n\u0000"' in line and r'id="a\nb"' in line
    (line,) = noted(tmp_path / "json", as_json=True, id="a\nb")
    assert json.loads(line)["id"] == "a\nb"


def test_the_model_is_read_off_the_path(tmp_path):
    paths = {"/v2/models/a%20b/config": "a b", "/v2/models/m/versions/1/stats?x=1": "m", "/v2/models/stats": "",
             "/v2/repository/models/n/load": "n", "/v2/repository/index": "", "/": "", "-": ""}  # fmt: skip
    access_log = AccessLog(str(tmp_path / "log"), as_json=True)
    for path in paths:
        note(access_log, target=path, model="")
    access_log.close()
    lines = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert {line["target"]: line.get("model", "") for line in lines} == paths


def test_what_is_noted_faster_than_written_is_counted_and_nobody_waits(caplog):
    read, write = os.pipe()
    access_log = AccessLog(f"/dev/fd/{write}", as_json=True, waiting_max=10)
    note(access_log, id="x" * 1_000_000)  # more than a pipe holds: the writer waits for its reader
    note(access_log, count=100)
    lost = logging.getLogger("tisfast.access")
    lost.addHandler(caplog.handler)
    try:
        while not caplog.records:  # the writer goes on as we read
            assert os.read(read, 1 << 16)
            note(access_log)
    finally:
        lost.removeHandler(caplog.handler)
    assert "requests are not in the access log" in caplog.records[0].getMessage()
    assert caplog.records[0].args[0] >= 100 - 10 - 1
    os.close(read)
    os.close(write)
    access_log.close()


def test_lines_that_a_full_disk_refuses_are_lost_and_the_end_is_quiet(caplog):
    lost = logging.getLogger("tisfast.access")
    lost.addHandler(caplog.handler)
    access_log = AccessLog("/dev/full", as_json=False)
    try:
        note(access_log)
        access_log.close()
    finally:
        lost.removeHandler(caplog.handler)
    assert {record.getMessage() for record in caplog.records} == {
        "lines of --access-log=/dev/full are lost: No space left on device"
    }
