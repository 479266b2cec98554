"""Which GPU an instance gets, of GPUs of the tests' own."""

import asyncio
import threading

import pytest

from tisfast.config.instance_groups import PlannedInstance
from tisfast.config.settings import WorkerSettings
from tisfast.errors import Unavailable
from tisfast.models.gpu_placement import GPU_OF_NONE, Placement, placement, visible_names
from tisfast.native.nvml import GpuFacts, GpuMemory

GB = 10**9


class Gpus:
    """free: gigabytes of each, of 80; capability: of each."""

    def __init__(self, *free: float, capability: tuple[float | None, ...] = ()):
        self.free, self.capability = list(free), capability or (9.0,) * len(free)

    def count(self):
        return len(self.free)

    def facts(self, name):
        return GpuFacts(name, self.capability[int(name)])

    def uuid(self, name):
        return bytes([int(name)]) * 16 if self.free[int(name)] is not None else None

    def memory(self, name):
        free = self.free[int(name)]
        return None if free is None else GpuMemory(int(free * GB), 80 * GB)


def anywhere(count: int, gpus: tuple[int, ...] = (0, 1)) -> list[PlannedInstance]:
    return [PlannedInstance(f"m_{n}", "GPU", gpus[0], candidates=gpus) for n in range(count)]


def placed(gpus, instances, model="m"):
    async def place():
        async with gpus.placing(model, instances) as places:
            return tuple(place.instance for place in places)

    return asyncio.run(place())


def devices(gpus, instances) -> list[int]:
    return [instance.device_id for instance in placed(gpus, instances)]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ("0", "1", "2")),
        ("2,0", ("2", "0")),
        ("", ()),
        ("-1", ()),
        ("0,1,2,3,4", ("0", "1", "2")),
        ("0,9,1", ("0",)),
        ("GPU-aa, GPU-bb", ("GPU-aa", "GPU-bb")),
    ],
)
def test_gpus_are_those_that_cuda_would_show(visible, expected):
    assert visible_names(visible, 3) == expected


def test_gpus_are_known_by_their_uuid_in_whatever_order_the_driver_counts():
    placed = Placement(("2", "0"), Gpus(1, 1, 1))
    assert [placed.number_of(bytes([name]) * 16, 7) for name in (0, 2)] == [1, 0]
    assert placed.number_of(bytes([1]) * 16, 7) == GPU_OF_NONE  # not visible: no instance is there


def test_where_nobody_tells_uuids_both_count_alike():
    assert [Placement(("0", "1"), None).number_of(bytes([7 + at]) * 16, at) for at in range(3)] == [0, 1, GPU_OF_NONE]
    assert Placement(("0", "1"), Gpus(1, 1)).number_of(b"", 1) == 1


def test_a_known_uuid_counts_where_another_one_is_not_known():
    placed = Placement(("0", "1"), Gpus(1, None))
    assert [placed.number_of(bytes(16), 1), placed.number_of(bytes([9]) * 16, 1)] == [0, 1]
    assert placed.number_of(bytes([9]) * 16, 0) == GPU_OF_NONE  # CUDA counts otherwise, so nobody knows


def test_instances_go_where_most_memory_is_free():
    assert devices(Placement(("0", "1"), Gpus(20, 70)), anywhere(1)) == [1]


def test_those_of_one_model_share_what_is_free():
    assert devices(Placement(("0", "1"), Gpus(80, 40)), anywhere(3)) == [0, 0, 1]


@pytest.fixture
def slow():
    """slow(*free): GPUs that have been `asked` for their memory, and tell what it was then when they may, `told`."""

    class Slow(Gpus):
        asked, told = threading.Event(), threading.Event()

        def memory(self, name):
            found = super().memory(name)
            self.asked.set()
            self.told.wait()
            return found

    yield Slow
    Slow.told.set()


def test_what_is_still_loading_counts_from_its_placement_until_it_has_loaded():
    gpus = Placement(("0", "1"), Gpus(50, 40))

    async def others():
        of_a_cpu = PlannedInstance("of a CPU", "CPU", 0)
        async with gpus.placing("other", [PlannedInstance("other_0", "GPU", 0), of_a_cpu, of_a_cpu]) as places:
            async with gpus.placing("m", anywhere(1)) as here:
                assert here[0].instance.device_id == 1
            with places[0].loading():
                async with gpus.placing("m", anywhere(1)) as here:
                    assert here[0].instance.device_id == 1
            async with gpus.placing("m", anywhere(1)) as here:
                assert here[0].instance.device_id == 0
        with places[0].loading():  # again
            async with gpus.placing("m", anywhere(1)) as here:
                assert here[0].instance.device_id == 1

    asyncio.run(others())
    assert devices(gpus, anywhere(1)) == [0]


@pytest.mark.parametrize("ends", ["fails", "is cancelled"])
def test_what_will_not_load_counts_no_longer(ends):
    gpus = Placement(("0", "1"), Gpus(50, 40))

    async def loads(is_placed):
        async with gpus.placing("other", anywhere(1, (0,))):
            is_placed.set()
            if ends == "fails":
                raise Unavailable("it does not load")
            await asyncio.Event().wait()

    async def in_vain():
        is_placed = asyncio.Event()
        other = asyncio.ensure_future(loads(is_placed))
        await is_placed.wait()
        other.cancel()
        await asyncio.wait({other})

    asyncio.run(in_vain())
    assert devices(gpus, anywhere(1)) == [0]


def test_those_that_are_placed_at_the_same_time_share_what_is_free(slow):
    """All have asked before the first of them is placed."""
    gpus = Placement(("0", "1"), slow(80, 80))

    found = []

    async def place(all_are_placed):
        async with gpus.placing("m", anywhere(1)) as places:
            found.append(places[0].instance.device_id)
            if len(found) == 6:
                all_are_placed.set()
            await all_are_placed.wait()

    async def all_at_once():
        all_are_placed = asyncio.Event()
        tasks = [asyncio.ensure_future(place(all_are_placed)) for _ in range(6)]
        await asyncio.to_thread(slow.asked.wait)
        slow.told.set()
        await asyncio.gather(*tasks)

    asyncio.run(all_at_once())
    assert sorted(found) == [0, 0, 0, 1, 1, 1]


def test_what_has_loaded_while_memory_was_asked_for_counts_still(slow):
    """What it took may not be in the answer."""
    gpus = Placement(("0", "1"), slow(50, 40))

    async def loads_meanwhile():
        async with gpus.placing("other", [PlannedInstance("other_0", "GPU", 0)]):
            placing = gpus.placing("m", anywhere(1))
            coming = asyncio.ensure_future(placing.__aenter__())
            await asyncio.to_thread(slow.asked.wait)
        slow.told.set()
        places = await coming
        await placing.__aexit__(None, None, None)
        return places[0].instance.device_id

    assert asyncio.run(loads_meanwhile()) == 1
    assert devices(gpus, anywhere(1)) == [0]


def test_without_anybody_to_ask_gpus_are_used_in_turn():
    assert devices(Placement(("0", "1")), anywhere(4)) == [0, 1, 0, 1]


def test_a_gpu_that_does_not_tell_is_not_preferred():
    assert devices(Placement(("0", "1"), Gpus(None, 1)), anywhere(1)) == [1]


def test_instances_with_a_device_keep_it():
    fixed = (PlannedInstance("m_0", "GPU", 0), PlannedInstance("m_1", "CPU", 0))
    assert placed(Placement(("0", "1"), Gpus(1, 70)), fixed) == fixed


def test_the_limit_of_a_gpu_refuses_what_must_go_there():
    gpus = Placement(("0", "1"), Gpus(30, 79), gpu_limits={0: 0.6})
    with pytest.raises(Unavailable) as raised:
        placed(gpus, [PlannedInstance("big_0", "GPU", 0)], "big")
    assert str(raised.value) == (
        "can not create model 'big': memory limit set for GPU 0 has exceeded, model loading is rejected. "
        f"({50 * GB} of its {80 * GB} bytes are in use, --model-load-gpu-limit=0:0.6 lets {48 * GB} be; end others "
        "that use it, or raise the limit)"
    )
    assert devices(gpus, [PlannedInstance("big_0", "GPU", 1)]) == [1]
    assert placed(Placement(("0",), Gpus(33), gpu_limits={0: 0.6}), [PlannedInstance("big_0", "GPU", 0)])


def test_who_may_choose_goes_round_a_gpu_over_its_limit():
    gpus = Placement(("0", "1"), Gpus(60, 10), gpu_limits={0: 0.1})
    assert devices(gpus, anywhere(1)) == [1]


@pytest.fixture
def hung():
    """hung(number): GPUs of which this one hangs, for as long as the test takes; each is asked for a moment only."""
    go_on = threading.Event()

    class Hung(Gpus):
        hangs = 0

        def memory(self, name):
            if int(name) == self.hangs:
                go_on.wait()
            return super().memory(name)

    with pytest.MonkeyPatch.context() as short:
        short.setattr("tisfast.limits.GPU_LOOK_SECONDS_MAX", 0.05)
        yield Hung
    go_on.set()


def test_who_may_choose_goes_round_a_gpu_that_hangs(hung):
    assert devices(Placement(("0", "1"), hung(79, 10)), anywhere(2)) == [1, 1]


def test_on_a_gpu_that_hangs_nothing_is_loaded_whose_limit_it_does_not_tell(hung):
    gpus = Placement(("0", "1"), hung(79, 10), gpu_limits={0: 0.6})
    whose = r"GPU 0 of instance_group \(GPU-[0-]+\), asked for its free memory,"
    told = f"can not create model 'big': {whose} has not done a call within 0.05 s: it hangs"
    with pytest.raises(Unavailable, match=told):
        placed(gpus, [PlannedInstance("big_0", "GPU", 0)], "big")
    assert devices(gpus, [PlannedInstance("m_0", "GPU", 1)]) == [1]
    with pytest.raises(Unavailable, match=r"GPU 0 of instance_group \(GPU-[0-]+\), asked"):
        placed(Placement(("0",), hung(79)), anywhere(1, (0,)))


def test_gpus_below_the_least_capability_are_not_there(caplog):
    gpus = Placement(("0", "1", "2"), Gpus(1, 1, 1, capability=(5.2, 7.0, None)), capability_min=6.0)
    assert gpus.usable == (1, 2) and gpus.usable.capability_min == 6.0
    weak = "GPU 0 of instance_group (GPU-00000000-0000-0000-0000-000000000000)"
    assert f"no model is put on {weak}: its compute capability 5.2 is less than 6.0" in caplog.text


def test_a_part_of_mig_is_named_as_one(caplog):
    class Parts(Gpus):
        def facts(self, name):
            return GpuFacts(name, 5.2)

        def uuid(self, name):
            return bytes([1]) * 16

    part = "MIG-01010101-0101-0101-0101-010101010101"
    Placement((part,), Parts(1), capability_min=6.0)
    assert f"no model is put on GPU 0 of instance_group ({part}): " in caplog.text


def test_a_worker_sees_its_gpu_by_the_name_that_the_server_s_variable_gives_it():
    gpus = Placement(("GPU-aa", "GPU-bb"))
    assert gpus.variables(PlannedInstance("m_0", "GPU", 1)) == {"CUDA_VISIBLE_DEVICES": "GPU-bb"}
    assert gpus.variables(PlannedInstance("m_0", "CPU", 0)) == {}
    named = Placement(("0",), Gpus(1)).variables(PlannedInstance("m_0", "GPU", 0))
    assert named == {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_a_limit_of_a_gpu_that_is_not_there_is_told(caplog):
    placement(WorkerSettings("/usr/bin/python3", cuda_visible=None, gpu_limits=((1, 0.5), (2, 0.8))), Gpus(1, 1), 0)
    assert [record.getMessage() for record in caplog.records] == [
        "--model-load-gpu-limit=2:0.8 limits nothing: there is no GPU 2 (this machine has 2 GPUs, which have the "
        "numbers 0 to 1)"
    ]


def test_a_pool_of_a_gpu_that_is_not_there_is_told(caplog):
    placement(WorkerSettings("/usr/bin/python3", cuda_visible=None, cuda_pools=((1, 8), (9, 1048576))), Gpus(1, 1), 0)
    assert [record.getMessage() for record in caplog.records] == [
        "--cuda-memory-pool-byte-size=9:1048576 lends nothing: there is no GPU 9 (this machine has 2 GPUs, which have "
        "the numbers 0 to 1)"
    ]


@pytest.mark.parametrize(
    ("visible", "gpus", "why"),
    [
        (None, Gpus(1), "this machine has 1 GPU, which has number 0"),
        (None, Gpus(), "this machine has no GPU"),
        ("0", Gpus(), "this machine has no GPU"),
        ("1", Gpus(1, 1), "CUDA_VISIBLE_DEVICES=1 leaves the server 1 GPU, which has number 0 here"),
        ("1,0", Gpus(1, 1), "CUDA_VISIBLE_DEVICES=1,0 leaves the server 2 GPUs, which have the numbers 0 to 1 here"),
        ("", Gpus(1, 1), "CUDA_VISIBLE_DEVICES= leaves the server no GPU"),
        (None, None, "the server finds no NVIDIA driver that works; look whether 'nvidia-smi' works here"),
        ("1", None, "the server finds no NVIDIA driver that works; look whether 'nvidia-smi' works here"),
        (
            None,
            Gpus(1, 1, capability=(5.2, 9.0)),
            "this machine has 2 GPUs, which have the numbers 0 to 1; --min-supported-compute-capability=6 leaves out "
            "GPU 0",
        ),
    ],
)
def test_what_makes_these_the_gpus_of_the_server_is_told(visible, gpus, why):
    settings = WorkerSettings("/usr/bin/python3", cuda_visible=visible)
    assert placement(settings, gpus, 0).usable.why == why


def test_a_server_that_uses_no_gpu_says_so():
    settings = WorkerSettings("/usr/bin/python3", cuda_visible=None, cpu_only=True)
    why = "TRITON_SERVER_CPU_ONLY is set, and any value of it leaves the server no GPU; unset it"
    assert placement(settings, Gpus(1), 1).usable.why == why


def test_the_machine_s_gpus_come_from_the_library_or_else_from_the_driver():
    settings = WorkerSettings("/usr/bin/python3", cuda_visible=None)
    assert placement(settings, Gpus(1, 1), 5).usable == (0, 1)
    assert placement(settings, None, 3).usable == (0, 1, 2)
    assert placement(WorkerSettings("/usr/bin/python3", cpu_only=True), Gpus(1, 1), 5).usable == ()
