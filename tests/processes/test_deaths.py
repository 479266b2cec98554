"""What the requests are told that a worker had when it died."""

from __future__ import annotations

from types import SimpleNamespace

from tisfast.processes.deaths import SAFE, Deaths


def request(*regions):
    """One with inputs in these regions on a GPU."""
    return SimpleNamespace(input=SimpleNamespace(gpu_regions=lambda: list(regions)))


def test_who_has_inputs_where_a_model_may_write_is_told_to_write_them_again():
    one, two, none = request("given"), request("a", "b"), SimpleNamespace()
    for _ in range(2):
        assert Deaths().advice([one, two, none]) == {
            "its input in region 'given' may be changed: write it again before you retry. A new instance is being "
            "started": [one],
            "its inputs in regions 'a', 'b' may be changed: write them again before you retry. A new instance is being "
            "started": [two],
            SAFE: [none],
        }
    assert SAFE == "retrying is safe: a new instance is being started"
