"""Files of captured traffic, and traces that become such files."""

from __future__ import annotations

import json

import pytest

from tisfast.bench.arguments import read
from tisfast.bench.capture import main, traffic
from tisfast.bench.replay import FORM, from_start, read_lines
from tisfast.errors import BadRequest, ConfigError


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{", "line 1 is no JSON"),
        ("\n\n[]", "line 3 is no JSON object"),
        ("{}", "line 1.timestamp is missing"),
        ('{"timestamp": -1}', "line 1.timestamp is -1"),
        ('{"timestamp": 1e999}', "line 1.timestamp is"),
        ('{"timestamp": ' + "9" * 400 + "}", "line 1.timestamp is 9999"),
        ('{"timestamp": ' + "9" * 5000 + "}", "line 1 is no JSON (a number in it has too many digits)"),
        ('{"timestamp": 0, "model": "\\ud800"}', "line 1 is no JSON ('\\ud800' has half of a surrogate pair"),
        (
            '{"timestamp": 1e14}\n{"timestamp": 0}',
            "line 2.timestamp is 0, and that of line 1 100000000000000; at --replay-speed 1 that is a replay of "
            "1e+11 s, and one has 604800 s at most",
        ),
        ("\n", "it has no requests"),
    ],
)
def test_a_line_that_is_none_is_refused(tmp_path, text, wanted):
    path = tmp_path / "traffic.jsonl"
    path.write_text(text)
    with pytest.raises(BadRequest) as refused:
        list(read_lines(str(path), FORM))
    assert f"--replay {path}: {wanted}" in str(refused.value)


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ({"inputs": 5}, "line 1.inputs is 5"),
        ({"inputs": [{"name": "A"}]}, "line 1.inputs is a list that KServe's protocol does not have"),
        ({"inputs": {}, "input": {}}, "line 1.input is not known"),
    ],
)
def test_inputs_that_are_none_are_refused(tmp_path, entry, wanted):
    path = tmp_path / "traffic.jsonl"
    path.write_text(json.dumps({"timestamp": 0, **entry}))
    (line,) = read_lines(str(path), FORM)
    with pytest.raises(BadRequest) as refused:
        line.step()
    assert wanted in str(refused.value)


@pytest.mark.parametrize("version", [None, {}, True])
def test_a_version_that_is_none_is_refused(tmp_path, version):
    path = tmp_path / "traffic.jsonl"
    path.write_text(json.dumps({"timestamp": 0, "version": version}))
    (line,) = read_lines(str(path), FORM)
    with pytest.raises(BadRequest, match=r"line 1\.version is .*; write a number, or leave it out"):
        line.version("")


@pytest.mark.parametrize(
    "entry",
    [
        {"id": [1], "model_name": "a"},
        {"id": 1, "timestamps": 5},
        {"id": 1, "timestamps": [{"ns": "x"}]},
        {"id": 1, "activity": "TENSOR_QUEUE_INPUT"},
        {"id": 1, "activity": "TENSOR_QUEUE_INPUT", "tensor": {"data": "1", "shape": "x"}},
    ],
)
def test_an_entry_that_a_trace_does_not_have_is_refused(tmp_path, capsys, entry):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([entry]))
    assert main([str(path), str(tmp_path / "out.jsonl")]) == 99
    assert f"error: {path} has an entry that a trace does not have" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("flag", ["--vs", "--mix", "--replay"])
def test_a_flag_that_a_script_left_empty_is_refused(flag):
    with pytest.raises(ConfigError, match=f"{flag} is empty"):
        read(["-m", "a", flag, ""])


def test_a_faster_replay_may_be_of_a_longer_time(tmp_path):
    path = tmp_path / "traffic.jsonl"
    path.write_text('{"timestamp": 0}\n{"timestamp": 1e10}')
    assert len(list(read_lines(str(path), FORM, speed=20))) == 2
    with pytest.raises(BadRequest, match=r"at --replay-speed 10 that is a replay of 1e\+06 s"):
        list(read_lines(str(path), FORM, speed=10))


def test_a_name_that_no_file_can_have_is_refused():
    with pytest.raises(BadRequest, match="it cannot be read"):
        list(read_lines("a\0b", FORM))


def test_capture_writes_over_no_file(tmp_path, capsys):
    """Whoever forgets the name of the output would lose the last trace."""
    traces = []
    for number in (1, 2):
        traces.append(tmp_path / f"trace.json.{number}")
        traces[-1].write_text(json.dumps([*traced(number, 1000, ("A", "1", "1", "FP32"))]))
    before = traces[1].read_text()
    assert main([str(each) for each in traces]) == 99
    assert f"{traces[1]} exists already, and is not written over" in capsys.readouterr().err
    assert traces[1].read_text() == before
    assert main([*map(str, traces), str(tmp_path / "traffic.jsonl")]) == 0
    assert main([*map(str, traces), "/dev/stdout"]) == 0
    out, err = capsys.readouterr()
    told, *lines = out.splitlines()
    assert (told, err) == ("2 requests within 0.0 s", told + "\n")
    assert "\n".join(lines) + "\n" == (tmp_path / "traffic.jsonl").read_text()


def test_times_begin_with_the_first_request():
    assert from_start([1000.0, 900.0, 1100.0], 2) == [50.0, 0.0, 100.0]


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (["--replay-speed", "2"], "belongs to --replay"),
        (["--replay", "x", "--replay-speed", "0"], "must be above 0"),
        (["--replay", "x", "--input-data", "y"], "--input-data: with --replay the file says"),
        (["--replay", "x", "-z"], "-z: with --replay"),
        (["--replay", "x", "-b", "2"], "-b 2: with --replay"),
        (["--replay", "x", "--concurrency-range", "2"], "more than one inference load mode"),
        (["--replay", "x", "--request-count", "2"], "--request-count has no place"),
    ],
)
def test_what_does_not_go_with_it_is_refused(typed, text):
    with pytest.raises(ConfigError) as refused:
        read(["-m", "a", *typed])
    assert text in str(refused.value)


def test_replay_needs_no_model():
    asked = read(["--replay", "there/traffic.jsonl", "--replay-speed", "0.5"]).asked
    assert (asked.model, asked.replay, asked.several) == ("traffic.jsonl", ("there/traffic.jsonl", 0.5, "", ""), True)
    with pytest.raises(ConfigError, match="-m"):
        read(["--replay", "x", "--service-kind", "openai", "--endpoint", "v1/completions"])


def traced(number, at_ns, *tensors, model="a", **more):
    yield {"id": number, "model_name": model, "model_version": 3, **more}
    yield {"id": number, "timestamps": [{"name": "REQUEST_START", "ns": at_ns + 5}]}
    yield {"id": number, "timestamps": [{"name": "HTTP_RECV_START", "ns": at_ns}]}
    for name, data, shape, dtype in tensors:
        tensor = {"name": name, "data": data, "shape": shape, "dtype": dtype}
        yield {"id": number, "activity": "TENSOR_QUEUE_INPUT", "tensor": tensor}
        yield {"id": number, "activity": "TENSOR_BACKEND_OUTPUT", "tensor": {**tensor, "data": "0"}}


def test_traces_become_lines_in_the_order_of_their_times(tmp_path):
    one, two = tmp_path / "trace.json.0", tmp_path / "trace.json.1"
    one.write_text(json.dumps([*traced(2, 7_000_000, ("S", '"a,\\"b",""', "2", "BYTES"), model="b")]))
    whole = [
        *traced(1, 2_000_000, ("A", "1,0.5", "1,2", "FP32"), ("C", "true,false", "2", "BOOL")),
        *traced(3, 3_000_000, ("A", "1,0.5,...", "4000000", "FP32")),
        *traced(4, 3_000_000, ("A", "nan", "1", "FP32")),
        *traced(5, 3_000_000),
        *traced(6, 3_000_000, ("A", "1", "1", "FP32"), parent_id=2),
    ]
    two.write_text(json.dumps(whole))
    lines, left_out = traffic([one, two])
    assert left_out == 3
    assert [(each["timestamp"], each["model"]) for each in lines] == [(0.0, "a"), (5.0, "b")]
    assert lines[0]["inputs"] == [
        {"name": "A", "datatype": "FP32", "shape": [1, 2], "data": [1, 0.5]},
        {"name": "C", "datatype": "BOOL", "shape": [2], "data": [True, False]},
    ]
    assert lines[1]["inputs"][0]["data"] == ['a,"b', ""]
    assert "version" not in lines[0]
    assert traffic([two], versions=True)[0][0]["version"] == "3"


@pytest.mark.parametrize(
    ("text", "wanted"), [("{", "is no JSON"), ("{}", "is no list"), ("[]", "there is no request with its inputs")]
)
def test_a_file_that_is_no_trace_is_refused(tmp_path, capsys, text, wanted):
    (tmp_path / "trace.json").write_text(text)
    assert main([str(tmp_path / "trace.json"), str(tmp_path / "out.jsonl")]) == 99
    assert wanted in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()
    assert main([str(tmp_path / "no.json"), str(tmp_path / "out.jsonl")]) == 99
