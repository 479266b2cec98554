"""Trace files: Triton's objects, whole after each write, cut by log frequency."""

from __future__ import annotations

import json

from tests.operations.helpers import Served
from tests.telemetry.helpers import traced
from tisfast.engine.testing import place_input
from tisfast.telemetry.trace_file import TraceFiles, trace_objects
from tisfast.telemetry.trace_tensors import TracedTensor, input_tensors, tensor_text


def ids(path):
    return sorted({each["id"] for each in json.loads(path.read_text())})


def test_objects_are_tritons():
    found = list(trace_objects(traced(lambda _: None, number=3)))
    assert found[:3] == [
        {"id": 3, "timestamps": [{"name": "HTTP_RECV_START", "ns": 10}]},
        {"id": 3, "timestamps": [{"name": "HTTP_RECV_END", "ns": 20}]},
        {"id": 3, "model_name": "m", "model_version": 1, "request_id": "r"},
    ]
    assert {each["timestamps"][0]["name"] for each in found[3:]} == {
        "REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END",
        "INFER_RESPONSE_COMPLETE", "REQUEST_END", "HTTP_SEND_START", "HTTP_SEND_END",
    }  # fmt: skip


def test_no_request_id_when_there_is_none():
    header = list(trace_objects(traced(lambda _: None, id="")))[2]
    assert header == {"id": 1, "model_name": "m", "model_version": 1}


def test_tensors_alone():
    trace = traced(lambda _: None, levels=())
    trace.tensors.append(TracedTensor("TENSOR_QUEUE_INPUT", "I", "INT32", [1, 2], bytes([1, 0, 0, 0, 2, 0, 0, 0]), 8))
    tensor = {"name": "I", "data": "1,2", "shape": "1,2", "dtype": "INT32"}
    assert list(trace_objects(trace))[1:] == [{"id": 1, "activity": "TENSOR_QUEUE_INPUT", "tensor": tensor}]


def test_numbers_as_triton_writes_them():
    def text(datatype, data, nbytes=None):
        return tensor_text(TracedTensor("", "", datatype, [], data, len(data) if nbytes is None else nbytes))

    assert text("FP32", bytes.fromhex("0000803f00002040")) == "1,2.5"
    assert text("BF16", bytes.fromhex("803f2040")) == "1,2.5"
    assert text("FP16", bytes.fromhex("003c")) == "1"
    assert text("BOOL", b"\0\1") == "false,true"
    assert text("UINT8", b"\xff", 5) == "255,..."
    assert text("BYTES", b'\2\0\0\0a"\0\0\0\0') == '"a\\"",""'
    assert text("BYTES", b"\2\0\0\0a", 99) == "..."


def test_a_file_is_whole_after_each_write(tmp_path):
    files = TraceFiles(str(tmp_path / "t"))
    for number in (1, 2):
        files.write([traced(lambda _: None, number)])
        assert ids(tmp_path / "t") == list(range(1, number + 1))
    files.close()


def test_log_frequency_cuts(tmp_path):
    files = TraceFiles(str(tmp_path / "t"))
    files.write([traced(lambda _: None, number, log_frequency=2) for number in range(1, 6)])
    files.close()
    assert {path.name: ids(path) for path in tmp_path.iterdir()} == {"t.0": [1, 2], "t.1": [3, 4], "t.2": [5]}


def test_the_number_of_files_is_bounded(tmp_path, caplog):
    files = TraceFiles(str(tmp_path / "t"), files_max=2)
    files.write([traced(lambda _: None, number, log_frequency=1) for number in range(1, 6)])
    files.close()
    assert {path.name: ids(path) for path in tmp_path.iterdir()} == {"t.0": [1], "t.1": [2, 3, 4, 5]}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "t.1 is the last: log_frequency 1 has made 2 files" in caplog.text


def test_a_file_that_cannot_be_written_is_told_once(tmp_path, caplog):
    files = TraceFiles(str(tmp_path / "absent" / "t"))
    for _ in range(3):
        files.write([traced(lambda _: None)])
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "absent/t: No such file or directory" in caplog.text


def test_the_bytes_of_one_trace_are_bounded():
    placed = place_input(Served().runtime, "r", [(0, 11, (1, 3), bytes(12)), (1, 13, (1,), bytes(8))])
    assert [(len(t.data), t.nbytes) for t in input_tensors(placed, 16)] == [(12, 12), (4, 8)]
    assert [(len(t.data), t.nbytes) for t in input_tensors(placed, 0)] == [(0, 12), (0, 8)]


def test_a_full_disk_is_told_once_and_is_no_error_at_the_end(caplog):
    files = TraceFiles("/dev/full")
    files.write([traced(lambda _: None)])
    files.close()
    (told,) = caplog.messages
    assert told == "traces are lost: cannot write trace file /dev/full: No space left on device"
