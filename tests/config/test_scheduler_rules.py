"""The scheduler's settings: what each field becomes, its bounds, and every refusal."""

from __future__ import annotations

import pytest

from tests.config.loading import load, told
from tisfast import limits
from tisfast.config.scheduler_settings import QueuePolicy, SchedulerSettings

SCHED = [
    (
        "max_batch_size: -1",
        "1:1 max_batch_size | 'max_batch_size' must be non-negative value for m | 0 means that the model has no "
        "batch dimension",
    ),
    (
        "max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 4, 0, 5 ] }",
        "1:65 dynamic_batching.preferred_batch_size[1] | dynamic batching preferred size must be positive for m | "
        "it is 0",
        "1:68 dynamic_batching.preferred_batch_size[2] | dynamic batching preferred size must be <= max batch "
        "size for m | 5 is above max_batch_size 4",
    ),
    (
        "dynamic_batching { preferred_batch_size: 1 }",
        "1:42 dynamic_batching.preferred_batch_size[0] | dynamic batching preferred size must be <= max batch "
        "size for m | 1 is above max_batch_size 0",
    ),
    (
        "dynamic_batching { priority_levels: 2 }",
        "1:1 dynamic_batching.default_priority_level | default priority level must be in range [1, 2] for m | it "
        "is 0",
    ),
    (
        "dynamic_batching { priority_levels: 2 default_priority_level: 3 }",
        "1:39 dynamic_batching.default_priority_level | default priority level must be in range [1, 2] for m | it "
        "is 3",
    ),
    (
        "dynamic_batching { default_priority_level: 1 }",
        "1:20 dynamic_batching.default_priority_level | 'default_priority_level' has no effect without "
        "'priority_levels' for m | set priority_levels, or remove it",
    ),
    (
        "dynamic_batching { priority_queue_policy { key: 1 value { max_queue_size: 1 } } }",
        "1:20 dynamic_batching.priority_queue_policy | 'priority_queue_policy' has no effect without "
        "'priority_levels' for m | set priority_levels, or remove it",
    ),
    (
        "dynamic_batching { priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 0 value { } "
        "}\npriority_queue_policy { key: 3 value { } } }",
        "1:87 dynamic_batching.priority_queue_policy[0] | priority queue policy must have priority level in range "
        "[1, 2] for m | the key is 0",
        "2:23 dynamic_batching.priority_queue_policy[3] | priority queue policy must have priority level in range "
        "[1, 2] for m | the key is 3",
    ),
    (
        "dynamic_batching { preserve_ordering: true priority_levels: 2 default_priority_level: 1 }",
        "1:20 dynamic_batching.preserve_ordering | Only one priority level is allowed when 'preserve_ordering' is "
        "true for m | remove 'preserve_ordering' or 'priority_levels'",
    ),
    (
        "dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY "
        "default_timeout_microseconds: 1 } }",
        "1:67 dynamic_batching.default_queue_policy.timeout_action | Queue policy can not have DELAY as timeout "
        "action when 'preserve_ordering' is true for m | use timeout_action: REJECT",
    ),
    (
        "dynamic_batching { preserve_ordering: true priority_levels: 1 default_priority_level: 1 "
        "priority_queue_policy { key: 1 value { timeout_action: DELAY default_timeout_microseconds: 1 } } }",
        "1:128 dynamic_batching.priority_queue_policy[1].timeout_action | Queue policy can not have DELAY as "
        "timeout action when 'preserve_ordering' is true for m | use timeout_action: REJECT",
    ),
    (
        "dynamic_batching { max_queue_delay_microseconds: 4611686018427388 }",
        "1:20 dynamic_batching.max_queue_delay_microseconds | 'max_queue_delay_microseconds' is 4611686018427388, "
        "above 4611686018427387 for m | give a smaller one",
    ),
    (
        "dynamic_batching { default_queue_policy { default_timeout_microseconds: 18446744073709551615 } }",
        "1:43 dynamic_batching.default_queue_policy.default_timeout_microseconds | 'default_timeout_microseconds' "
        "is 18446744073709551615, above 4611686018427387 for m | leave it out for no limit",
    ),
    (
        "dynamic_batching { priority_levels: 1 default_priority_level: 1 priority_queue_policy { key: 1 value { "
        "default_timeout_microseconds: 18446744073709551615 } } }",
        "1:104 dynamic_batching.priority_queue_policy[1].default_timeout_microseconds | "
        "'default_timeout_microseconds' is 18446744073709551615, above 4611686018427387 for m | leave it out for "
        "no limit",
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", SCHED)
def test_batching_that_cannot_be_is_told_with_its_place_and_hint(row):
    text, *expected = row
    assert told(text) == expected


def batching(text, size=8):
    return load(f"max_batch_size: {size} dynamic_batching {{ {text} }}").scheduler


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("", {}),
        ("preferred_batch_size: [ 4, 2, 4 ]", {"preferred_batch_sizes": (2, 4)}),
        ("max_queue_delay_microseconds: 3", {"max_queue_delay_ns": 3000}),
        ("preserve_ordering: true", {"preserve_ordering": True}),
        ("default_queue_policy { }", {}),
        ("default_queue_policy { max_queue_size: 9 }", {"queue_policy": QueuePolicy(9)}),
        ("default_queue_policy { default_timeout_microseconds: 9 }", {"queue_policy": QueuePolicy(0, 9)}),
        ("default_queue_policy { allow_timeout_override: true }", {"queue_policy": QueuePolicy(0, 0, True)}),
        ("default_queue_policy { timeout_action: DELAY }", {"queue_policy": QueuePolicy(0, 0, False, "DELAY")}),
        ("default_queue_policy { timeout_action: REJECT }", {}),
        ("priority_levels: 5 default_priority_level: 5", {"priority_levels": 5, "default_priority_level": 5}),
        (
            "priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 2 value { max_queue_size: 1 } } "
            "priority_queue_policy { key: 1 value { } }",
            {
                "priority_levels": 2,
                "default_priority_level": 1,
                "priority_policies": ((1, QueuePolicy()), (2, QueuePolicy(1))),
            },
        ),
    ],
)
def test_each_field_of_dynamic_batching_becomes_a_value(text, changed):
    expected = {"max_batch_size": 8, "dynamic": True, "preferred_batch_sizes": (8,), **changed}
    assert batching(text) == SchedulerSettings(**expected)


def test_without_batches_there_is_no_preferred_size():
    assert batching("", size=0) == SchedulerSettings(0, dynamic=True)


@pytest.mark.parametrize("size", [0, 1, 2**31 - 1])
def test_without_batching_there_is_the_size_of_a_batch_and_nothing_else(size):
    assert load(f"max_batch_size: {size}").scheduler == SchedulerSettings(max_batch_size=size)


def test_a_level_without_a_policy_has_the_default_one():
    scheduler = batching(
        "priority_levels: 3 default_priority_level: 1 default_queue_policy { max_queue_size: 7 } "
        "priority_queue_policy { key: 2 value { max_queue_size: 1 } }"
    )
    assert [scheduler.policy_of(level).max_queue_size for level in (1, 2, 3)] == [7, 1, 7]


MOST = limits.CONFIG_MICROSECONDS_MAX


def test_the_longest_times_that_there_may_be():
    assert batching(f"max_queue_delay_microseconds: {MOST}").max_queue_delay_ns == MOST * 1000 < 2**62
    policy = batching(f"default_queue_policy {{ default_timeout_microseconds: {MOST} }}").queue_policy
    assert policy.default_timeout_us == MOST


ORDERED = "preserve_ordering: true "


@pytest.mark.parametrize(
    "text",
    [
        ORDERED + "priority_levels: 1 default_priority_level: 1",
        ORDERED + "default_queue_policy { timeout_action: DELAY }",  # without a timeout nothing is delayed
        ORDERED + "default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 1 }",
    ],
)
def test_what_keeps_the_order_of_requests_is_served(text):
    assert batching(text).preserve_ordering


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            'max_batch_size: "8" dynamic_batching { preferred_batch_size: 4 }',
            "1:17 max_batch_size | 'max_batch_size' takes an int32, found string \"8\" | write max_batch_size: 8",
        ),
        (
            "dynamic_batching { priority_levels: x default_priority_level: 1 }",
            "1:37 dynamic_batching.priority_levels | 'priority_levels' takes a uint64, found 'x'",
        ),
        (
            "dynamic_batching { priority_levels: 2 default_priority_level: high }",
            "1:63 dynamic_batching.default_priority_level | 'default_priority_level' takes a uint64, found 'high'",
        ),
    ],
)
def test_a_number_that_cannot_be_read_is_told_once(text, error):
    assert told(text)[0] == error and len(told(text)) == 1
