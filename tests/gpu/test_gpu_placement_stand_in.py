"""Which GPUs a server uses, and which one an instance sees: CUDA_VISIBLE_DEVICES, limits, and wrong values."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from tritonclient.utils import InferenceServerException

from tests.system.helpers import CONFIG

UUID = "57a4d140-0000-0000-0000-00000000000{}"
PART = "MIG-57a4d140-0000-0000-0000-00000000010{}"
TELLS = """
import ctypes
import os
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        cuda, count, uuid = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), (ctypes.c_ubyte * 16)()
        cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)), cuda.cuDeviceGet(ctypes.byref(ctypes.c_int()), 0)
        device = ctypes.c_int()
        cuda.cuDeviceGet(ctypes.byref(device), 0)
        cuda.cuDeviceGetUuid_v2(uuid, device)
        name = args["model_instance_name"]
        print(name, "sees", os.environ.get("CUDA_VISIBLE_DEVICES"), "which is", count.value, "of", uuid[15], flush=True)

    def execute(self, requests):
        return [pb_utils.InferenceResponse([])] * len(requests)
"""
BY_MEMORY = 'parameters { key: "GPU_PLACEMENT" value { string_value: "free_memory" } }'
ON = "instance_group [ {{ kind: KIND_GPU gpus: [ {} ] }} ]"


def beginning(line):
    """The model whose instances do this first."""
    found = TELLS.replace("        cuda, count", f"        {line}\n        cuda, count")
    assert found != TELLS
    return found


@pytest.fixture
def started(stand_in, serve, write_model, monkeypatch):
    """started(gpus, visible, *flags): a server with the model m on these GPUs, by its own CUDA_VISIBLE_DEVICES."""

    def start(gpus, visible=None, *flags):
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        write_model("m", TELLS, CONFIG + ON.format(gpus))
        return serve("--exit-on-error=false", *flags).ready()

    return start


def told_usable(record):
    """The GPUs that a refusal names."""
    return re.search(r"compatibility of [\d.]+ are: ([\d, ]*)", record["message"])[1].strip(" ,")


@pytest.mark.parametrize(
    ("gpus", "visible", "sees", "device"),
    [
        ("1", None, "1", 1),
        ("0", "1,0", "1", 1),
        ("0", f"GPU-{UUID.format(1)}", f"GPU-{UUID.format(1)}", 1),
        ("1", f"1,GPU-{UUID.format(0)}", f"GPU-{UUID.format(0)}", 0),
        ("0", f"GPU-{UUID.format(1)},GPU-57a4", f"GPU-{UUID.format(1)}", 1),
    ],
)
def test_an_instance_sees_its_gpu_only(started, gpus, visible, sees, device):
    started(gpus, visible).says(f"m_0_0 sees {sees} which is 1 of {device}")


def test_a_uuid_may_be_cut_short_where_one_gpu_has_it(started, stand_in):
    stand_in.set(devices=1)
    started("0", "GPU-57a4d140-00").says(f"m_0_0 sees GPU-{UUID.format(0)} which is 1 of 0")


def test_a_part_of_mig_is_known_by_its_name(started, stand_in):
    stand_in.describe(parts=True)
    server = started("0", f"{PART.format(1)},{PART.format(0)}")
    server.says(f"m_0_0 sees {PART.format(1)} which is 1 of 1")
    server.says("here CUDA shows a part of MIG")
    names = " (Stand-in), GPU {} of instance_group".format
    server.says(f"CUDA regions: 0 is {PART.format(1)}{names(0)}; 1 is {PART.format(0)}{names(1)}")


def test_a_part_of_mig_that_the_server_was_not_told_of_has_no_number_for_instances(started, stand_in):
    stand_in.describe(parts=True)
    said = started("0").says("CUDA regions: ")["message"]
    assert said.endswith(f": 0 is {PART.format(0)} (Stand-in); 1 is {PART.format(1)} (Stand-in)")


@pytest.mark.parametrize(
    ("visible", "wrong", "usable"),
    [
        ("0,7", "7", "0"),
        ("1,GPU-00000000", "GPU-00000000", "0"),
        (f"{PART.format(0)}", PART.format(0), ""),
        ("GPU-57a4d140", "GPU-57a4d140", ""),
        ("all", "all", ""),
    ],
)
def test_what_names_no_gpu_ends_the_list_and_is_told(started, visible, wrong, usable):
    server = started("1", visible)
    server.says(f"CUDA_VISIBLE_DEVICES={visible}: '{wrong}' is no GPU here")
    assert told_usable(server.says("specifies invalid or unsupported gpu id 1")) == usable


@pytest.mark.parametrize("visible", ["", "-1", "1,-1"])
def test_a_list_that_ends_on_purpose_is_not_worth_a_warning(started, visible):
    server = started("1", visible)
    server.says("specifies invalid or unsupported gpu id 1")
    told = [record["level"] for record in server.log if "CUDA_VISIBLE_DEVICES" in record["message"]]
    assert "warning" not in told, told


def test_a_number_of_nvidia_smi_is_refused_with_the_one_that_it_has_here(started):
    told = started("1", "1").says("specifies invalid or unsupported gpu id 1")["message"]
    assert "are: 0; name one of these: CUDA_VISIBLE_DEVICES=1 leaves the server 1 GPU, which has number 0 here" in told


def test_a_driver_whose_management_does_not_start_is_told_as_the_cause(started, stand_in):
    stand_in.fail("nvmlInit_v2", 9, times=100)
    server = started("0")
    server.says("NVML could not start (its error 9). Look whether 'nvidia-smi' works here")
    told = server.says("specifies invalid or unsupported gpu id 0")["message"]
    assert "the server finds no NVIDIA driver that works; look whether 'nvidia-smi' works here" in told


def test_gpus_beyond_the_machine_s_are_refused_with_the_usable_ones(started):
    assert told_usable(started("0, 2").says("specifies invalid or unsupported gpu id 2")) == "0, 1"


def test_a_gpu_below_the_capability_is_not_used(started, stand_in):
    stand_in.describe(capability=5.2)  # of the last one
    server = started("0, 1")
    server.says(
        f"no model is put on GPU 1 of instance_group (GPU-{UUID.format(1)}): its compute capability 5.2 is less than "
        "6.0 (--min-supported-compute-capability)"
    )
    told = server.says("specifies invalid or unsupported gpu id 1")
    assert "compatibility of 6.0" in told["message"] and told_usable(told) == "0"


@pytest.mark.parametrize("devices", [1, 2])
def test_gpus_on_which_no_model_may_be_have_numbers_for_regions(started, stand_in, devices):
    stand_in.set(devices=devices)
    stand_in.describe(capability=5.2)  # of the last one
    last = devices - 1
    gpu = f"{last} is GPU-{UUID.format(last)} (Stand-in), GPU {last} of instance_group, where no model may be"
    said = started("0").says("CUDA regions: ")["message"]
    assert said.endswith(gpu) and said.count("where no model may be") == 1


def test_the_least_capability_may_be_another(started, stand_in):
    stand_in.describe(capability=5.2)
    started("1", None, "--min-supported-compute-capability=5.0").says("m_0_0 sees 1 which is 1 of 1")


def test_nothing_is_loaded_on_a_gpu_above_its_limit(started, export):
    export(1 << 29)  # half of GPU 0
    told = started("0", None, "--model-load-gpu-limit=0:0.4").says("memory limit set for GPU 0 has exceeded")
    assert "can not create model 'm'" in told["message"]


def test_below_its_limit_it_is_loaded(started, export):
    export(1 << 29)
    started("0", None, "--model-load-gpu-limit=0:0.6").says("m_0_0 sees 0 which is 1 of 0")


def test_instances_that_are_added_are_placed_together(stand_in, serve, write_model, connect):
    """Each by itself would go to the GPU with most memory free, which is the same for all."""
    folder = write_model("m", TELLS, CONFIG + BY_MEMORY + "instance_group { kind: KIND_GPU count: 1 }")
    server = serve("--model-control-mode=explicit", "--load-model=m").ready()
    server.says("m_0_0 sees 0 which is 1 of 0")
    config = (folder / "config.pbtxt").read_text()
    (folder / "config.pbtxt").write_text(config.replace("count: 1 }", "count: 3 }"))
    connect(server).load_model("m")
    found = {re.search(r"m_0_[12] sees (\d)", server.says(f"m_0_{each} sees")["message"])[1] for each in (1, 2)}
    assert found == {"0", "1"}


@pytest.mark.parametrize("again", range(4))
def test_models_that_load_at_once_share_what_is_free(stand_in, serve, write_model, tmp_path, again):
    """What each needs is not to be seen before it has loaded, and none has before all are placed."""
    path = tmp_path / "go"
    os.mkfifo(path)
    waits = beginning(f"open({str(path)!r}).close()")
    for at in range(4):
        write_model(f"m{at}", waits, CONFIG + BY_MEMORY + "instance_group { kind: KIND_GPU count: 1 }")
    server = serve()
    told = [server.says(f"instance m{at}_0_0 goes to GPU")["message"] for at in range(4)]
    with path.open("w"):
        server.ready()
    assert sorted(re.search(r"GPU (\d)", each)[1] for each in told) == ["0", "0", "1", "1"]


def test_an_instance_that_has_loaded_counts_no_longer_while_another_of_its_model_loads(
    stand_in, serve, write_model, connect, tmp_path
):
    path = tmp_path / "go"
    os.mkfifo(path)
    waits = beginning(f"if args['model_instance_name'] == 'm_0_0': open({str(path)!r}).read()")
    for name, count in (("m", 2), ("later", 1)):
        write_model(name, waits, CONFIG + BY_MEMORY + f"instance_group {{ kind: KIND_GPU count: {count} }}")
    server = serve("--model-control-mode=explicit").ready()
    with ThreadPoolExecutor(1) as threads:
        loading = threads.submit(connect(server).load_model, "m")
        with path.open("w"):
            server.says("m_0_1 sees 1")
            server.says("instance m_0_1 is ready")
            connect(server).load_model("later")
        loading.result(60)
    server.says("instance m_0_0 goes to GPU 0")
    server.says("instance later_0_0 goes to GPU 1")


@pytest.mark.parametrize("fails", ["before it begins", "as it begins", "as one is added"])
def test_what_does_not_load_counts_no_longer(stand_in, serve, write_model, connect, tmp_path, fails):  # noqa: PLR0917
    code = beginning(f"assert not os.path.exists({str(tmp_path / 'fail')!r}), 'it does not load'")
    group = "instance_group {{ kind: KIND_GPU count: 1 {} }}"
    needs = 'rate_limiter { resources { name: "R" count: 2 } }' if fails == "before it begins" else ""
    folder = write_model("m", code, CONFIG + BY_MEMORY + group.format(needs))
    write_model("later", code, CONFIG + BY_MEMORY + group.format(""))
    server = serve("--model-control-mode=explicit", "--rate-limit=execution_count", "--rate-limit-resource=R:1").ready()
    client = connect(server)
    if fails == "as one is added":
        client.load_model("m")
        (folder / "config.pbtxt").write_text((folder / "config.pbtxt").read_text().replace("count: 1", "count: 2"))
    (tmp_path / "fail").touch()
    with pytest.raises(InferenceServerException, match="limited to 1" if needs else "it does not load"):
        client.load_model("m")
    (tmp_path / "fail").unlink()
    client.load_model("later")
    server.says("instance later_0_0 goes to GPU 0")


@pytest.mark.parametrize("fails", [False, True])
def test_an_instance_that_comes_back_is_placed_anew(  # noqa: PLR0917 - its fixtures
    stand_in, serve, write_model, connect, export, tmp_path, monkeypatch, fails
):
    """One that was taken out, or did not load on the GPU that had room then."""
    code = beginning(f"if os.path.exists({str(tmp_path / 'fail')!r}): raise RuntimeError('it does not load')")
    folder = write_model("m", code, CONFIG + BY_MEMORY + "instance_group { kind: KIND_GPU count: 1 }")
    server = serve("--model-control-mode=explicit", "--load-model=m").ready()
    client, file = connect(server), folder / "config.pbtxt"
    one, filler = file.read_text(), export(1 << 20)  # GPU 0 has less room
    file.write_text(one.replace("count: 1", "count: 2"))
    if fails:
        (tmp_path / "fail").touch()
        with pytest.raises(InferenceServerException, match="it does not load"):
            client.load_model("m")
        (tmp_path / "fail").unlink()
    else:
        client.load_model("m")
        file.write_text(one)
        client.load_model("m")
        file.write_text(one.replace("count: 1", "count: 2"))
    server.says("instance m_0_1 goes to GPU 1")
    filler.end()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    export(900 << 20)
    client.load_model("m")
    server.says("instance m_0_1 goes to GPU 0")


def test_an_instance_that_comes_back_is_held_to_the_limit_of_its_gpu(stand_in, serve, write_model, connect, export):
    file = write_model("m", TELLS, CONFIG + "instance_group { kind: KIND_GPU gpus: 0 count: 2 }") / "config.pbtxt"
    both = file.read_text()
    server = serve("--model-control-mode=explicit", "--load-model=m", "--model-load-gpu-limit=0:0.4").ready()
    client = connect(server)
    file.write_text(both.replace("count: 2", "count: 1"))
    client.load_model("m")
    export(1 << 29)  # half of GPU 0
    file.write_text(both)
    with pytest.raises(InferenceServerException, match="memory limit set for GPU 0 has exceeded"):
        client.load_model("m")
    assert client.is_model_ready("m")
