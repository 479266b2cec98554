"""The report of a conversion: its JSON, its table, and its page, which a browser draws."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from tisfast.convert.compare import Tolerance
from tisfast.convert.report import document, table
from tisfast.convert.report_page import page
from tisfast.convert.results import Conversion, Measured, Try, Wanted
from tisfast.convert.signature import Signature, Tensor

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def level(concurrency: int, rate: float, reason: str = "") -> Measured:
    return Measured(concurrency, rate, 1.0, 0.9, 2.5, 1000, 0, not reason, reason, math.inf if reason else 0.04)


RIGHT = Try("onnx", "fp32", "onnxruntime", "ok", "", "", 0.0, 0.0, 38000, 0.5, 1.5, (level(1, 900.0), level(8, 2000.0)))
DOUBTFUL = "the mean latency is known only within 12 %, and 3 % are wanted: about 16 times would do; raise --trials"
NOTED = Try("treelite", "fp32", "fil", "ok", "", "clients ask it for <input__0> (X)", 1e-8, 1e-6, 900, 0.5, 1.5,
            (level(1, 800.0, DOUBTFUL),))  # fmt: skip
WRONG = Try("onnx", "fp16", "onnxruntime", "wrong", "output 'y' of sample 0: it is inf", "", math.inf, 0.9, 2_500_000)
ABSENT = Try("openvino", "fp32", "openvino", "skipped", "needs openvino: pip install 'tisfast[openvino]'")


def conversion(*tries: Try, best: Try | None = None) -> Conversion:
    signature = Signature((Tensor("x", "FP32", (-1, 8)),), (Tensor("y", "FP32", (-1, 3)),), True)
    why = "nothing fits" if best is None else f"{best.name} answers most"
    return Conversion(
        "net.onnx",
        "onnx",
        "net",
        signature,
        5,
        True,
        8,
        Wanted(20.0),
        tries,
        best,
        why,
        {"cores": "2"},
        None,
        ("the samples are random",),
        {"fp32": Tolerance(1e-4, 1e-3, scaled=True)},
        {"y": (0.25,), "units": (1000.0, 1e-8)},
    )


ALL = conversion(RIGHT, NOTED, WRONG, ABSENT, best=RIGHT)


def test_the_document_has_all_and_is_json():
    read = json.loads(json.dumps(document(ALL), allow_nan=False))
    assert (read["schema"], read["best"], read["model"]) == ("tisfast-convert/1", "onnx fp32", None)
    assert [each["status"] for each in read["tries"]] == ["ok", "ok", "wrong", "skipped"]
    assert (
        read["tries"][2]["max_absolute"] == "inf"
        and read["tries"][3]["max_absolute"] is None
        and read["tries"][1]["measured"][0]["within"] is None
        and read["signature"]["inputs"][0]["dims"] == [-1, 8]
    )


def test_the_table_has_a_line_for_each_and_says_what_stands_behind_it():
    told = table(ALL)
    assert re.search(r"^onnx fp32 \* +ok +0 +0 +38 kB +2000 +4% +0.9 +2.5 +8$", told, re.MULTILINE)
    assert re.search(r"^onnx fp16 +wrong +inf +0.9 +2.5 MB$", told, re.MULTILINE)
    assert "openvino fp32: skipped: needs openvino: pip install 'tisfast[openvino]'" in told
    assert "They may differ by: fp32 0.0001 * scale + 0.001 * |x|." in told
    assert re.search(r"^openvino fp32 +skipped +- +-$", told, re.MULTILINE)
    assert "treelite fp32: clients ask it for <input__0> (X)" in told
    assert "treelite fp32 at 1: the mean latency is known only within 12 %" in told and "--trials" not in told
    assert "Note: the samples are random." in told and "Best: onnx fp32 answers most." in told
    assert "Nothing was chosen: nothing fits." in table(conversion(WRONG))


@pytest.mark.parametrize("found", [ALL, conversion(WRONG, ABSENT), conversion()], ids=["all", "none", "nothing"])
def test_a_page_loads_nothing_and_escapes_what_it_says(found):
    text = page(document(found))
    assert "<script" not in text and not re.search(r'(src|href)="(?!data:)', text)
    assert "<input__0>" not in text and text.count("<svg") == text.count("</svg>")
    for each in found.tries:
        assert f"<td>{each.name}" in text


@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")
@pytest.mark.parametrize("width", [360, 1200])
def test_a_browser_draws_the_page_without_a_complaint(tmp_path, width):
    (tmp_path / "page.html").write_text(page(document(ALL)))
    picture = tmp_path / "page.png"
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--window-size={width},900")
    where = (f"--user-data-dir={tmp_path}/profile", f"--screenshot={picture}", f"file://{tmp_path}/page.html")
    ran = subprocess.run([BROWSER, *flags, *where], capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in ran.stderr and picture.stat().st_size > 10_000


def test_the_document_and_the_page_tell_tolerances_and_which_load_they_show():
    read = document(ALL)
    assert read["tolerances"] == {"fp32": {"absolute": 1e-4, "relative": 1e-3, "scaled": True}}
    assert read["scales"] == {"y": [0.25], "units": [1000.0, 1e-8]} and read["best_load"] == 8
    text = page(read)
    assert re.search("scale of units, by place</t.><td>1e.03, 1e-08<", text)
    assert re.search("onnx fp16</td><td class=.bad.>wrong</td>.*?<td>inf</td><td>0.9</td>", text)
    assert "p99 latency, with 8 at one time" in text and "scale of y" in text and "0.0001 * scale + 0.001 * |x|" in text
    limited = replace(ALL, wanted=Wanted(2.0))  # which no load of the best holds, so the most that it answers is shown
    assert document(limited)["best_load"] == 8
    sooner = replace(RIGHT, measured=(replace(RIGHT.measured[0], p99_ms=1.0), RIGHT.measured[1]))
    held = replace(conversion(sooner, best=sooner), wanted=Wanted(2.0))
    assert document(held)["best_load"] == 1 and "p99 latency, with 1 at one time" in page(document(held))
    assert re.search(r"^onnx fp32 \* .* 900 +4% +0.9 +1 +1$", table(held), re.MULTILINE)


def test_doubts_of_several_loads_are_one_sentence():
    busy = "the mean latency is known only within {} %: the client had no core for {}% of the time; run it elsewhere"
    loads = (level(1, 900.0, busy.format("4.4", 31)), level(8, 990.0, busy.format("1.6e+02", 20)))
    told = table(conversion(replace(RIGHT, measured=loads), NOTED))
    assert (
        "\nonnx fp32 at 1, onnx fp32 at 8: the mean latency is known only within 4.4 % to 1.6e+02 %: the client had no "
        "core for 20% to 31% of the time\n"
    ) in told
    assert told.count("known only") == 2


def test_one_sample_is_one():
    assert "with the source: 1 sample, alone" in table(replace(ALL, rows=1))


def test_the_page_has_what_decides_first_and_names_in_its_charts():
    told = page(document(ALL))
    heads = re.findall(r"<th>(.*?)</th>", told)
    assert heads[:4] == ["format<br>", "result<br>", "requests/s<br>at 1", "within<br>at 1"]
    assert re.search(r'text-anchor="end">onnx fp32</text>', told) and "its average latency" in told
    assert "<td>clients ask it for &lt;input__0&gt; (X)</td>" in told and "<td>wrong: output" in told
