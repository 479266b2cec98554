"""Files that somebody has spoilt: each reader takes them or says in one sentence what is wrong, and nothing else."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.bench.made_levels import latencies, level_of, run_of
from tisfast.bench.arguments import read
from tisfast.bench.capture import main as capture
from tisfast.bench.compare import main as compare
from tisfast.bench.inputs import Reading, read_inputs, request_of
from tisfast.bench.json_output import document_text, profile_export
from tisfast.bench.openai_requests import read_bodies
from tisfast.bench.replay import FORM, read_lines
from tisfast.bench.schedules import Intervals, read_intervals
from tisfast.bench.templates import Form, Step, grpc_templates, http_templates
from tisfast.client import ModelMetadata, TensorMetadata
from tisfast.client.address import Address
from tisfast.errors import BadRequest, ConfigError

READING = Reading(
    ModelMetadata(
        "m",
        ("1",),
        "",
        (TensorMetadata("A", "FP32", (-1, 2)), TensorMetadata("S", "BYTES", (-1,)), TensorMetadata("I", "INT64", (1,))),
        (TensorMetadata("B", "FP16", (2,)),),
    )
)
STEP = {"A": {"content": [1, 2.5], "shape": [1, 2]}, "S": ["x", "y"], "I": {"b64": "AAAAAAAAAAA="}}
MIX = {"models": [{"model": "a", "version": 2, "weight": 3, "input_data": ["a.json"], "shape": {"A": [2, 2]}}]}
MIX["models"].append({"model": "b", "parameters": {"x": 1, "y": "z", "w": True}})
LINES = [
    {"timestamp": 12.5, "model": "m", "version": "1", "inputs": STEP, "parameters": {"p": 1}},
    {
        "timestamp": 0,
        "inputs": [{"name": "A", "shape": [1, 2], "data": [1, 2]}, {"name": "S", "shape": [0], "data": []}],
    },
]
DATA = {
    "data": [{**STEP, "timestamp": 5, "parameters": {"p": 0.5}}],
    "validation_data": [{"B": {"content": [1, 2], "rtol": 0.1}}],
}
BODIES = {"data": [{"payload": {"messages": [{"role": "user", "content": "Hi"}]}, "timestamp": 1}]}
TRACE = [
    {"id": 1, "model_name": "a", "model_version": 1, "parent_id": 0},
    {"id": 1, "timestamps": [{"name": "REQUEST_START", "ns": 5}]},
    {
        "id": 1,
        "activity": "TENSOR_QUEUE_INPUT",
        "tensor": {"name": "A", "data": "1,2", "shape": "1,2", "dtype": "FP32"},
    },
]
ODD = [
    *(
        b"",
        b"null",
        b"true",
        b"[]",
        b"{}",
        b'"x"',
        b"-1",
        b"0.5",
        b"1e999",
        b"NaN",
        b"-Infinity",
        b"9" * 30,
        b"9" * 400,
    ),
    *(
        b"9" * 5000,
        rb'"\ud800"',
        rb"\u0000",
        rb"\udfff",
        b"\xff",
        b"\x00",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\n",
        b"[",
    ),
    *(b'"timestamp":', b'"b64":', b'"shape":', b'"content":', b",", b":", "\u00b2".encode(), b"[[[[", b"{" * 50_000),
]
SPOILT = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def spoilt(text: str):
    """Pieces of it are replaced: values by odd ones, or any bytes by any."""
    whole = text.encode()
    cuts = [at for at in range(len(whole)) if whole[at] in b',:[]{}" \n'] or [0]
    places = st.sampled_from(cuts) | st.integers(0, len(whole))
    change = st.tuples(places, places | st.just(-1), st.sampled_from(ODD) | st.binary(max_size=3))
    return st.lists(change, min_size=1, max_size=3).map(lambda changes: _changed(whole, changes))


def _changed(whole: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    for begin, end, odd in changes:
        whole = whole[:begin] + odd + whole[max(begin, min(end, begin + 60)) :]
    return whole


VALUES = [
    *(
        None,
        True,
        0,
        -1,
        0.5,
        10**18,
        10**30,
        10**400,
        -(10**400),
        1e308,
        float("nan"),
        float("inf"),
        "",
        "x",
        "\0",
        "\ud800",
    ),
    *(
        [],
        [[]],
        [None],
        [1, [2]],
        {},
        {"": {}},
        {"b64": "?"},
        {"content": []},
        {"shape": [10**30]},
        [10**400],
        ["\ud800"],
    ),
    *({"content": [1], "shape": [-1]}, {"b64": "AAAA"}, [1.5, "x"], [[1, 2], [3]], [{"name": "A"}], "12", "1,2", "a/b"),
]


def places_in(value: object, place: tuple = ()):
    """Of all that lies within."""
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places_in(each, (*place, key))


def put(value, place: tuple, odd: object, renamed: bool):
    if not place:
        return odd
    key, *rest = place
    found = dict(value) if isinstance(value, dict) else list(value)
    if renamed and not rest and isinstance(found, dict):
        found[f"{odd}"[:20]] = found.pop(key)
    else:
        found[key] = put(value[key], tuple(rest), odd, renamed)
    return found


def exchanged(*documents: object):
    """One value of a document is another one, or has another name; or it is spoilt as a text."""

    def made(number: int, place: tuple, odd: object, renamed: bool) -> bytes:
        changed = [*documents[:number], put(documents[number], place, odd, renamed), *documents[number + 1 :]]
        return dumped(*changed).encode()

    whole = [(number, place) for number, each in enumerate(documents) for place in places_in(each)]
    one = st.builds(
        lambda at, odd, renamed: made(*at, odd, renamed), st.sampled_from(whole), st.sampled_from(VALUES), st.booleans()
    )
    return one | spoilt(dumped(*documents))


def dumped(*documents: object) -> str:
    return "\n".join(json.dumps(each) for each in documents)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spoilt"


def is_sentence(error: BadRequest) -> None:
    assert error.message and "\n" not in error.message and "Traceback" not in error.message


def can_be_written(request) -> None:
    """What was read is a request of both protocols, or it is said why not."""
    for grpc, make in ((False, http_templates), (True, grpc_templates)):
        form = Form(Address("h", 1, grpc, False), "m", binary_inputs=grpc)
        try:
            make(form, [Step(request.tensors, request.parameters)])
        except BadRequest as error:
            is_sentence(error)


@SPOILT
@given(text=exchanged(MIX))
def test_a_mix(path, text):
    path.write_bytes(text)
    try:
        read(["--mix", str(path), "--json", "x"])
    except ConfigError as error:
        is_sentence(error)


@SPOILT
@given(text=exchanged(*LINES))
def test_traffic(path, text):
    path.write_bytes(text)
    try:
        for line in read_lines(str(path), FORM):
            line.model("m"), line.version("")
            can_be_written(request_of(line.place, line.step(), READING))
    except BadRequest as error:
        is_sentence(error)


@SPOILT
@given(text=exchanged(DATA))
def test_input_data(path, text):
    path.write_bytes(text)
    try:
        data = read_inputs([str(path)], READING)
        for request in data.requests():
            can_be_written(request)
        data.timestamps()
    except BadRequest as error:
        is_sentence(error)


@SPOILT
@given(text=exchanged(BODIES))
def test_bodies(path, text):
    path.write_bytes(text)
    typed = ["-m", "m", "--service-kind", "openai", "--endpoint", "v1/chat/completions", "--input-data", str(path)]
    try:
        bodies = read_bodies(read(typed).asked)
        assert all(json.loads(each.decode()) for each in bodies.texts)
        bodies.in_order()
    except BadRequest as error:
        is_sentence(error)


@SPOILT
@given(text=spoilt("1000\n250\n0\n86400000000\n"))
def test_intervals(path, text):
    path.write_bytes(text)
    try:
        Intervals(read_intervals(str(path))).take(1.0)
    except BadRequest as error:
        is_sentence(error)


@SPOILT
@given(text=exchanged(TRACE))
def test_a_trace(path, text):
    path.write_bytes(text)
    target = path.with_name("traffic.jsonl")
    target.unlink(missing_ok=True)
    assert capture([str(path), str(target)]) in (0, 99)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "run.json"
    path.write_text(RUN)
    return path


LEVEL = level_of(latencies(1000, windows=8, requests=5))
RUN = document_text(run_of(LEVEL))
SHORT_EXPORT = json.loads("".join(profile_export(run_of(LEVEL), "2.41")))
for each in SHORT_EXPORT["experiments"]:
    del each["requests"][3:]


@SPOILT
@given(text=exchanged(json.loads(RUN)) | exchanged(SHORT_EXPORT))
def test_a_run(path, good, text):
    path.write_bytes(text)
    for more in ([], ["--force", "--paired"]):
        out, err = io.StringIO(), io.StringIO()
        code = compare([str(good), str(path), *more], out, err)
        assert code in (0, 4, 99)
        assert err.getvalue().count("\n") == (1 if code == 99 and not out.getvalue() else 0)
