"""Instance groups: names, counts, kinds, devices and what executions take of shared resources."""

from __future__ import annotations

import pytest

from tests.config.loading import IO, load, told
from tisfast import limits
from tisfast.config.instance_groups import InstanceGroup, PlannedInstance, UsableGpus, instances
from tisfast.config.rate_limits import Demand, RateLimit

GROUPS = [
    (
        "instance_group { count: -1 }",
        "1:18 instance_group[0].count | instance group m_0 of model m has count -1 | give 1 or more",
    ),
    (
        "instance_group { kind: KIND_CPU gpus: [ 0 ] }",
        "1:33 instance_group[0].gpus | instance group m_0 of model m has kind KIND_CPU but specifies one or more "
        "GPUs | remove 'gpus', or set kind: KIND_GPU",
    ),
    (
        "instance_group { kind: KIND_MODEL gpus: 0 }",
        "1:35 instance_group[0].gpus | instance group m_0 of model m has kind KIND_MODEL but specifies one or "
        "more GPUs | remove 'gpus', or set kind: KIND_GPU",
    ),
    (
        "instance_group { kind: KIND_GPU }",
        "1:18 instance_group[0].kind | instance group m_0 of model m has kind KIND_GPU but no GPUs are available "
        "| set kind: KIND_CPU, or start where there is a GPU that CUDA_VISIBLE_DEVICES, "
        "--min-supported-compute-capability and TRITON_SERVER_CPU_ONLY leave the server",
    ),
    (
        'instance_group { name: "x" kind: KIND_GPU gpus: [ 0, 3 ] }',
        "1:51 instance_group[0].gpus[0] | instance group x of model m specifies invalid or unsupported gpu id 0. "
        "GPUs with at least the minimum required CUDA compute compatibility of 6.000000 are: none | set kind: "
        "KIND_CPU, or start where there is a GPU that CUDA_VISIBLE_DEVICES, --min-supported-compute-capability and "
        "TRITON_SERVER_CPU_ONLY leave the server",
        "1:54 instance_group[0].gpus[1] | instance group x of model m specifies invalid or unsupported gpu id 3. "
        "GPUs with at least the minimum required CUDA compute compatibility of 6.000000 are: none | set kind: "
        "KIND_CPU, or start where there is a GPU that CUDA_VISIBLE_DEVICES, --min-supported-compute-capability and "
        "TRITON_SERVER_CPU_ONLY leave the server",
    ),
    (
        'instance_group { name: "x" }\ninstance_group { name: "x" }',
        "2:18 instance_group[1].name | instance group name 'x' is given twice for m | give each group a name of "
        "its own, or none",
    ),
    (
        'instance_group { name: "m_1" }\ninstance_group { }',
        "2:16 instance_group[1].name | instance group name 'm_1' is given twice for m | give each group a name of "
        "its own, or none",
    ),
    ("instance_group { count: 1025 }", "1:1 instance_group | 1025 instances for m, more than 1024 | lower 'count'"),
    (
        "instance_group { count: 1000 }\ninstance_group { count: 25 }",
        "1:1 instance_group | 1025 instances for m, more than 1024 | lower 'count'",
    ),
    (
        "instance_group { passive: true }",
        "1:18 instance_group[0].passive | 'instance_group[0].passive' is known, but not served yet for m | remove "
        "it, or serve this model with a server that has it",
    ),
    (
        'instance_group { host_policy: "numa_0" }',
        "1:18 instance_group[0].host_policy | 'instance_group[0].host_policy' is known, but not served yet for m "
        "| remove it, or serve this model with a server that has it",
    ),
    (
        "instance_group { secondary_devices { kind: KIND_NVDLA device_id: 1 } }",
        "1:18 instance_group[0].secondary_devices | 'instance_group[0].secondary_devices' is known, but not "
        "served yet for m | remove it, or serve this model with a server that has it",
    ),
    (
        'instance_group { profile: "p" }',
        "1:18 instance_group[0].profile | instance group m_0 of model m and platform specifies profile field "
        "which is only supported for TensorRT models | remove 'profile'",
    ),
    (
        "instance_group { rate_limiter { priority: 1000001 } }",
        "1:33 instance_group[0].rate_limiter.priority | rate limiter priority 1000001 is above 1000000 for m | "
        "only the ratio of priorities counts",
    ),
    (
        "instance_group { count: -1 }\ninstance_group { count: -2 kind: KIND_CPU gpus: 1 }",
        "1:18 instance_group[0].count | instance group m_0 of model m has count -1 | give 1 or more",
        "2:18 instance_group[1].count | instance group m_1 of model m has count -2 | give 1 or more",
        "2:43 instance_group[1].gpus | instance group m_1 of model m has kind KIND_CPU but specifies one or more "
        "GPUs | remove 'gpus', or set kind: KIND_GPU",
    ),
]  # fmt: skip

GROUPS_WITH_GPUS = [
    (
        "instance_group { kind: KIND_GPU gpus: [ 1, 7 ] }",
        "1:44 instance_group[0].gpus[1] | instance group m_0 of model m specifies invalid or unsupported gpu id "
        "7. GPUs with at least the minimum required CUDA compute compatibility of 6.000000 are: 0, 1 | name a GPU "
        "of this machine that CUDA_VISIBLE_DEVICES, --min-supported-compute-capability and TRITON_SERVER_CPU_ONLY "
        "leave the server",
    ),
    (
        "instance_group { count: 513 kind: KIND_GPU }",
        "1:1 instance_group | 1026 instances for m, more than 1024 | lower 'count'",
    ),
    (
        "instance_group { gpus: 2 }",
        "1:24 instance_group[0].gpus[0] | instance group m_0 of model m specifies invalid or unsupported gpu id "
        "2. GPUs with at least the minimum required CUDA compute compatibility of 6.000000 are: 0, 1 | name a GPU "
        "of this machine that CUDA_VISIBLE_DEVICES, --min-supported-compute-capability and TRITON_SERVER_CPU_ONLY "
        "leave the server",
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", GROUPS)
def test_a_group_that_cannot_be_is_told_with_its_place_and_hint(row):
    text, *expected = row
    assert told(text) == expected


@pytest.mark.parametrize("row", GROUPS_WITH_GPUS)
def test_a_group_of_other_gpus_is_told_with_those_that_there_are(row):
    text, *expected = row
    assert told(text, gpus=(0, 1)) == expected


@pytest.mark.parametrize(
    ("text", "gpus", "groups"),
    [
        ("", (), [("m", "CPU", 1, ())]),
        ("", (0, 1), [("m", "GPU", 1, (0, 1))]),
        ("instance_group { }", (), [("m_0", "CPU", 1, ())]),
        ("instance_group { count: 3 }", (), [("m_0", "CPU", 3, ())]),
        ("instance_group { count: 0 }", (), [("m_0", "CPU", 1, ())]),
        ("instance_group { kind: KIND_CPU }", (0, 1), [("m_0", "CPU", 1, ())]),
        ("instance_group { kind: KIND_MODEL }", (0, 1), [("m_0", "MODEL", 1, ())]),
        ("instance_group { kind: KIND_AUTO count: 2 }", (3,), [("m_0", "GPU", 2, (3,))]),
        ("instance_group { kind: KIND_GPU gpus: 1 }", (0, 1), [("m_0", "GPU", 1, (1,))]),
        ('instance_group [ { name: "x" }, { } ]', (), [("x", "CPU", 1, ()), ("m_1", "CPU", 1, ())]),
    ],
)
def test_what_a_group_leaves_open_has_tritons_defaults(text, gpus, groups):
    assert load(text, gpus=gpus).instance_groups == tuple(InstanceGroup(*group) for group in groups)


@pytest.mark.parametrize(
    ("text", "planned"),
    [
        ("", [("m_0", "GPU", 0), ("m_1", "GPU", 2)]),
        ("instance_group { gpus: 2 }", [("m_0_0", "GPU", 2)]),
        (
            "instance_group { count: 2 gpus: [ 2, 0 ] }",
            [("m_0_0", "GPU", 2), ("m_0_1", "GPU", 0), ("m_0_2", "GPU", 2), ("m_0_3", "GPU", 0)],
        ),
        (
            'instance_group [ { kind: KIND_CPU count: 2 }, { name: "g" gpus: 0 } ]',
            [("m_0_0", "CPU", 0), ("m_0_1", "CPU", 0), ("g_0", "GPU", 0)],
        ),
    ],
)
def test_each_device_of_a_group_has_its_instances_and_each_instance_a_name(text, planned):
    assert load(text, gpus=(0, 2)).instances == tuple(PlannedInstance(*each) for each in planned)


FREE_MEMORY = 'parameters { key: "GPU_PLACEMENT" value { string_value: "free_memory" } } '


def test_instances_by_free_memory_may_be_on_any_gpu_of_their_group():
    config = load(FREE_MEMORY + "instance_group [ { count: 2 gpus: [ 2, 0 ] }, { kind: KIND_CPU } ]", gpus=(0, 2))
    assert [(each.name, each.device_id, each.candidates) for each in config.instances] == [
        ("m_0_0", 2, (2, 0)),
        ("m_0_1", 2, (2, 0)),
        ("m_1_0", 0, ()),
    ]


def test_by_free_memory_without_a_gpu_there_is_no_instance():
    assert instances((InstanceGroup("m", "GPU", 3, (), by_free_memory=True),)) == ()


@pytest.mark.parametrize(("text", "gpus"), [("", ()), ("", (0, 1)), (FREE_MEMORY, (0, 1))])
def test_instances_are_bounded_over_all_devices(text, gpus):
    devices = max(1, len(gpus)) if text == "" else 1
    most = limits.INSTANCES_MAX // devices
    assert len(load(f"{text}instance_group {{ count: {most} }}", gpus=gpus).instances) == limits.INSTANCES_MAX
    (error,) = told(f"{text}instance_group {{ count: {most + 1} }}", gpus=gpus)
    assert f"{(most + 1) * devices} instances for m, more than {limits.INSTANCES_MAX} | lower 'count'" in error


def test_the_least_that_a_gpu_must_be_able_to_do_is_told():
    (error,) = told("instance_group { kind: KIND_GPU gpus: 0 }", gpus=UsableGpus((1, 3), 7.5))
    assert error == (
        "1:39 instance_group[0].gpus[0] | instance group m_0 of model m specifies invalid or unsupported gpu id 0. "
        "GPUs with at least the minimum required CUDA compute compatibility of 7.500000 are: 1, 3 | name a GPU of this "
        "machine that CUDA_VISIBLE_DEVICES, --min-supported-compute-capability and TRITON_SERVER_CPU_ONLY leave the "
        "server"
    )


@pytest.mark.parametrize(
    ("ids", "group", "hint"),
    [
        ((0,), "kind: KIND_GPU gpus: 1", "name one of these: only GPU 0 is lit"),
        (
            (),
            "kind: KIND_GPU gpus: 1",
            "set kind: KIND_CPU, or start where the server can use a GPU: only GPU 0 is lit",
        ),
        ((), "kind: KIND_GPU", "set kind: KIND_CPU, or start where the server can use a GPU: only GPU 0 is lit"),
    ],
)
def test_what_hides_a_gpu_is_told(ids, group, hint):
    (error,) = told(f"instance_group {{ {group} }}", gpus=UsableGpus(ids, why="only GPU 0 is lit"))
    assert error.endswith(f" | {hint}")


def test_a_kind_that_cannot_be_read_is_told_once():
    assert told("instance_group { kind: GPUS count: -1 }") == [
        "1:24 instance_group[0].kind | unknown value 'GPUS' for 'kind' | possible: KIND_AUTO, KIND_GPU, KIND_CPU, "
        "KIND_MODEL"
    ]


def rate_limiter(text):
    return IO + f"instance_group {{ rate_limiter {{ {text} }} }}"


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("", RateLimit()),
        ("priority: 7", RateLimit((), 7)),
        (f"priority: {limits.RATE_LIMIT_PRIORITY_MAX}", RateLimit((), limits.RATE_LIMIT_PRIORITY_MAX)),
        ('resources { name: "R" count: 4 }', RateLimit((Demand("R", 4, False),))),
        ('resources { name: "R" global: true count: 1 }', RateLimit((Demand("R", 1, True),))),
        ('resources [ { name: "b" }, { name: "a" } ]', RateLimit((Demand("b", 0), Demand("a", 0)))),
    ],
)
def test_what_an_execution_takes_of_shared_resources(text, limit):
    (group,) = load(rate_limiter(text)).instance_groups
    assert group.rate_limit == limit
    assert [each.rate_limit for each in load(rate_limiter(text)).instances] == [limit]


def test_resources_of_one_group_are_bounded():
    most = limits.RATE_LIMIT_RESOURCES_MAX
    text = "".join(f'resources {{ name: "r{n}" count: 1 }} ' for n in range(most + 1))
    assert told(rate_limiter(text)) == [
        f"1:{len(IO) + 33} instance_group[0].rate_limiter.resources | {most + 1} rate limiter resources, more than "
        f"{most}, for m | join some"
    ]
    assert len(load(rate_limiter(text[: text.rindex("resources")])).instance_groups[0].rate_limit.demands) == most
