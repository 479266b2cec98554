"""What the worker and the server each write down must be the same: types, bounds, layouts."""

from __future__ import annotations

import ctypes
import re
import struct

from tisfast_worker import dtypes, limits, native

from tests.workers.driver import ROOT, library
from tisfast import limits as server_limits
from tisfast.types import DATA_TYPES


def test_data_types_are_the_servers():
    assert {t.code: (t.wire, t.config, t.size, t.numpy) for t in DATA_TYPES} == dtypes.TYPES


def test_bounds_of_one_name_have_one_value():
    shared = [name for name in vars(limits) if name.isupper() and hasattr(server_limits, name)]
    assert {"CONTROL_MESSAGE_BYTES_MAX", "OUTPUTS_MAX", "OUTPUT_WAIT_SECONDS_MAX"} <= set(shared)
    assert {name: getattr(limits, name) for name in shared} == {name: getattr(server_limits, name) for name in shared}


def test_the_server_answers_before_the_worker_no_longer_waits():
    assert server_limits.GPU_LENDING_SECONDS_MAX < limits.ANSWER_SECONDS_MAX


def test_constants_are_those_of_the_headers():
    header = (ROOT / "csrc/tf_ring.h").read_text() + (ROOT / "csrc/tf_shm.h").read_text()
    for name, value in re.findall(r"#define (TF_\w+) (\d+)u?", header) + re.findall(r"(TF_[A-Z]+) = (\d+)", header):
        assert getattr(native, name, int(value)) == int(value)
    assert f"#define TF_OUTPUT_BLOCKS_MAX {limits.OUTPUT_BLOCKS_MAX}u" in header
    assert native.SUBMIT_SLOT.size == 44 and native.COMPLETE_SLOT.size == native.SLOT_BYTES == 64


def test_ring_offsets_are_those_of_the_library():
    lib = library()
    nbytes = lib.tf_channel_bytes()
    memory = ctypes.create_string_buffer(nbytes + 64)
    base = ctypes.addressof(memory) + -ctypes.addressof(memory) % 64
    lib.tf_channel_init(base)
    raw = ctypes.string_at(base, nbytes)
    assert struct.unpack_from("<IIQ", raw) == (0x54495346, native.TF_ABI_VERSION, nbytes)
    slots = [struct.unpack_from("<II", raw, at + 128) for at in (128, 320, 512, 704)]
    assert [count for count, _ in slots] == [256, 1024, 4096, 1024]
    assert [at + count * 64 for count, at in slots] == [*(at for _, at in slots[1:]), nbytes]


def test_the_page_of_the_wire_says_the_abi_of_the_header():
    page = (ROOT / "workers/WIRE.md").read_text()
    said = re.findall(r'"abi":(\d+)', page)
    assert len(said) == 3 and set(said) == {str(native.TF_ABI_VERSION)}
    assert f"#define TF_ABI_VERSION {native.TF_ABI_VERSION}u" in (ROOT / "csrc/tf_shm.h").read_text()
