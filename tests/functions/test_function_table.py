"""The table of a notebook, and its rates."""

import numpy as np
from numpy.typing import NDArray

from tisfast.functions.signature import Given, read_signature
from tisfast.functions.table import Rates, html_table


def add(a: NDArray[np.float32], b: float) -> NDArray[np.float32]:
    return a + b


def stats(success, fail=0, ns=0, name="add"):
    return [{"name": name, "inference_stats": {"success": {"count": success, "ns": ns}, "fail": {"count": fail}}}]


def test_rates_are_those_since_the_last_show():
    rates = Rates(10.0)
    assert rates.count(12.0, stats(3, 1, 6_000_000))["add"] == (4, 1, 2.0, 2.0)
    assert rates.count(16.0, stats(13, 1, 26_000_000))["add"].per_second == 2.5
    assert rates.count(17.0, stats(13, 1, 26_000_000))["add"].per_second == 0.0
    assert rates.count(18.0, stats(5))["add"].per_second == 5.0, "it was served anew"
    assert rates.count(18.0, stats(6))["add"].requests == 6


def test_a_table_has_a_row_for_each_function_and_escapes():
    signatures = [read_signature(add, name, Given(), batched=False) for name in ("add", "<b>")]
    page = html_table("http://127.0.0.1:1", signatures, Rates(0.0).count(2.0, stats(4, 2, 8_000_000)))
    assert page.count("<tr>") == 3 and '<a href="http://127.0.0.1:1/v2/models/add"' in page
    assert (
        "<td>a: FP32[-1], b: FP64[1]</td><td>output: FP32[-1]</td><td>6</td><td>2</td><td>3.0</td><td>2.000</td>"
        in page
    )
    assert "&lt;b&gt;" in page and "<b>" not in page
    assert "<td>0</td><td>0</td><td>0.0</td><td></td>" in page
