"""Triton's test hooks, as the environment gives them."""

from __future__ import annotations

import pytest

from tisfast.config.scheduler_hooks import SchedulerHooks, read_hooks
from tisfast.errors import ConfigError


def test_without_variables_nothing_is_held():
    assert read_hooks({}) == SchedulerHooks(0, 0)
    assert read_hooks({"TRITONSERVER_DELAY_SCHEDULER": ""}) == SchedulerHooks(0, 0)


def test_each_hook_has_its_variable():
    environ = {"TRITONSERVER_DELAY_SCHEDULER": "12", "TRITONSERVER_BACKLOG_DELAY_SCHEDULER": "2"}
    assert read_hooks(environ) == SchedulerHooks(12, 2)


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "65537", "٣"])
def test_what_is_no_number_of_requests_is_refused(text):
    with pytest.raises(ConfigError, match="TRITONSERVER_DELAY_SCHEDULER must be a number of requests, 0 to 65536"):
        read_hooks({"TRITONSERVER_DELAY_SCHEDULER": text})
