import json
import shlex

import pytest

from tisfast import console
from tisfast.engine.registry import ModelEntry
from tisfast.types import BY_WIRE
from tisfast.wire.signature import ModelSignature


def signature(*inputs, max_batch_size: int = 0, decoupled: bool = False, name: str = "m") -> ModelSignature:
    rows = [(each, BY_WIRE[datatype].code, dims, optional, False) for each, datatype, dims, optional in inputs]
    return ModelSignature(name, "1", max_batch_size, decoupled, rows, [("OUT", 11, [1])])


def body(line: str) -> dict:
    words = shlex.split(line)
    return json.loads(words[words.index("-d") + 1])


def test_the_table_is_triton_s():
    entries = [ModelEntry("add_sub", "1", "READY", ""), ModelEntry("bad", "", "UNAVAILABLE", "Internal: one\ntwo")]
    assert console.model_table(entries) == (
        "+---------+---------+-----------------------------+\n"
        "| Model   | Version | Status                      |\n"
        "+---------+---------+-----------------------------+\n"
        "| add_sub | 1       | READY                       |\n"
        "| bad     | -       | UNAVAILABLE: Internal: one… |\n"
        "+---------+---------+-----------------------------+"
    )


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_the_table_fits_the_terminal(columns):
    entries = [ModelEntry("some_model", "1", "UNAVAILABLE", "Internal: " + "a long reason " * 40)]
    rows = console.model_table(entries, columns).splitlines()
    assert columns - 1 <= len(rows[3]) <= columns and rows[3].endswith("… |")


def test_an_empty_table_has_its_heads():
    assert "| Model | Version | Status |" in console.model_table([])


def test_reasons_cannot_write_to_the_terminal():
    assert "\x1b" not in console.model_table([ModelEntry("m", "1", "UNAVAILABLE", "\x1b[2J")])


def test_a_curl_line_of_a_decoupled_model_asks_for_events():
    line = console.curl_line(signature(("A", "FP32", [4], False), decoupled=True), "https://h:1")
    assert shlex.split(line)[2:5] == ["https://h:1/v2/models/m/infer", "-H", "Accept: text/event-stream"]


def test_a_curl_line_spells_small_zeros_out():
    line = console.curl_line(signature(("A", "FP32", [4], False), ("B", "BYTES", [-1], False)), "http://localhost:8000")
    assert "http://localhost:8000/v2/models/m/infer" in line
    assert body(line)["inputs"] == [
        {"name": "A", "shape": [4], "datatype": "FP32", "data": [0, 0, 0, 0]},
        {"name": "B", "shape": [1], "datatype": "BYTES", "data": ["0"]},
    ]


def test_a_curl_line_quotes_a_models_name():
    line = console.curl_line(signature(("A", "FP32", [1], False), name="mein Modell's ä"), "http://h:1")
    assert shlex.split(line)[2] == "http://h:1/v2/models/mein%20Modell%27s%20%C3%A4/infer"


def test_a_batching_model_gets_a_batch_of_one():
    line = console.curl_line(signature(("A", "INT32", [2], False), max_batch_size=8), "http://h:1")
    assert body(line)["inputs"][0]["shape"] == [1, 2]


def test_optional_inputs_are_left_out():
    line = console.curl_line(signature(("A", "INT32", [2], False), ("B", "INT32", [2], True)), "http://h:1")
    assert [tensor["name"] for tensor in body(line)["inputs"]] == ["A"]


@pytest.mark.parametrize(("datatype", "dims", "nbytes"), [("FP32", [224, 224, 3], 602112), ("FP16", [2], 4)])
def test_large_zeros_and_halves_come_as_bytes(datatype, dims, nbytes):
    line = console.curl_line(signature(("A", datatype, dims, False)), "http://h:1")
    words = shlex.split(line)
    head = words[words.index("%s") + 1].rstrip(");")
    assert f"head -c {nbytes} /dev/zero" in line
    assert json.loads(head)["inputs"][0]["parameters"] == {"binary_data_size": nbytes}
    assert f"Inference-Header-Content-Length: {len(head)}" in line


def test_progress_costs_nothing_off_a_terminal():
    progress = console.LoadProgress(3, terminal=False)
    progress.show()
    progress.step("m")
    progress.close()


def test_progress_shows_how_many_models_are_loaded(capsys):
    progress = console.LoadProgress(3, terminal=True)
    progress.step("a")
    progress.show()
    progress.step("b")
    progress.close()
    shown = capsys.readouterr().out.split("\r\x1b[2K")
    assert [line.partition("] ")[2].split(" 0:")[0] for line in shown[1:-1]] == ["1/3", "2/3"]
    assert shown[1].startswith("loading models [########....") and shown[2].endswith("(b)") and not shown[-1]
