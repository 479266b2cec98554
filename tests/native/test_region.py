"""Regions: bounds, clients that take their memory away, and what is left behind (nothing)."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.descriptors import open_descriptors
from tests.native.helpers import HostDevice, ShmFile
from tisfast.errors import BadRequest, Internal, TisError
from tisfast.native.region import DeviceRegion, Regions, SystemRegion

DATA = bytes(range(256)) * 64
READS_MAX = 20_000


@pytest.fixture
def shm():
    with ShmFile(DATA) as file:
        yield file


def region(shm, offset=0, nbytes=16384):
    return SystemRegion("r", shm.key, shm.open(), offset, nbytes)


def mappings(shm):
    with open("/proc/self/maps") as maps:
        return sum(shm.path.name in line for line in maps)


@pytest.mark.parametrize("offset", [0, 1, 64, 4096, 4097])
def test_a_region_is_a_window_on_the_file_wherever_it_starts(shm, offset):
    mapped = region(shm, offset, 1000)
    assert mapped.fetch(3, 10) == DATA[offset + 3 : offset + 13]
    mapped.store(990, b"0123456789")
    assert shm.data[offset + 990 : offset + 1001] == b"0123456789" + DATA[offset + 1000 : offset + 1001]


@pytest.mark.parametrize(
    ("offset", "nbytes"), [(0, len(DATA) + 1), (1, len(DATA)), (2**64 - 8, 16), (2**64 - 1, 2**64 - 1), (0, 0), (5, 0)]
)
def test_a_region_beyond_the_file_is_refused_and_leaves_nothing(shm, offset, nbytes):
    before = open_descriptors()
    with pytest.raises(BadRequest, match=r"failed to register shared memory region 'r': invalid args \(offset"):
        region(shm, offset, nbytes)
    assert open_descriptors() <= before and mappings(shm) == 0


@given(
    st.integers(1, 64),
    st.one_of(st.integers(0, 80), st.integers(0, 2**64 - 1)),
    st.one_of(st.integers(0, 80), st.integers(0, 2**64 - 1)),
)
def test_what_is_read_lies_within_the_region_or_is_refused(nbytes, offset, wanted):
    with ShmFile(DATA[:200]) as shm:
        mapped = region(shm, 100, nbytes)
        if offset < nbytes and wanted <= nbytes - offset:
            assert mapped.fetch(offset, wanted) == DATA[100 + offset : 100 + offset + wanted]
            return
        with pytest.raises(BadRequest) as refused:
            mapped.fetch(offset, wanted)
    text = str(refused.value)
    if offset >= nbytes:
        assert text.startswith("Invalid offset for shared memory region: 'r'")
    elif offset + wanted >= 2**64:
        assert text.startswith(f"Integer overflow detected: byte_size ({wanted}) + offset ({offset}) exceeds")
    else:
        assert text.startswith("Invalid offset + byte size for shared memory region: 'r'")


@pytest.mark.parametrize("value", [2**64 - 1, 2**63, 2**63 - 1])
def test_large_numbers_are_told_as_the_client_has_sent_them(shm, value):
    mapped = region(shm)
    with pytest.raises(BadRequest, match=rf"^Invalid offset for .* 'r' \(offset {value}, the region has"):
        mapped.fetch(value, 1)
    with pytest.raises(BadRequest, match=rf"^Invalid offset \+ byte size for .* \(offset 0 \+ byte_size {value}, the"):
        mapped.fetch(0, value)
    text = rf"region 'r': invalid args \(offset {value} \+ byte_size 1; the file of key .* there are none behind the"
    with pytest.raises(BadRequest, match=text):
        SystemRegion("r", shm.key, shm.open(), value, 1)


def test_a_truncated_file_is_an_error_of_the_request_and_good_again_when_it_has_grown(shm):
    mapped = region(shm)
    shm.truncate(1000)
    text = re.escape(f"(the file of key '{shm.key}' has shrunk to 1000 bytes, 1001 are needed)")
    with pytest.raises(BadRequest, match=text):
        mapped.fetch(0, 1001)
    with pytest.raises(BadRequest, match="has shrunk to 1000 bytes"):
        mapped.store(len(DATA) - 1, b"x")
    assert mapped.fetch(0, 1000) == DATA[:1000]
    shm.truncate(len(DATA))
    assert mapped.fetch(0, 1001) == DATA[:1000] + b"\0"


def test_a_deleted_file_lives_as_long_as_the_region(shm):
    mapped = region(shm)
    shm.path.unlink()
    assert mapped.fetch(0, 3) == DATA[:3]


def test_memory_that_goes_away_during_the_copy_is_an_error_too():
    toggle = "import os, sys\nwhile True: os.truncate(sys.argv[1], 0); os.truncate(sys.argv[1], int(sys.argv[2]))"
    size = 4 << 20
    with ShmFile(bytes(size)) as shm:
        mapped = region(shm, 0, size)
        with subprocess.Popen([sys.executable, "-c", toggle, str(shm.path), str(size)]) as other:
            found = set()
            for _ in range(READS_MAX):
                try:
                    mapped.fetch(0, size)
                except TisError as error:
                    found.add(type(error))
                    if isinstance(error, Internal):
                        assert "could not be read: its memory went away during the copy" in str(error)
                        break
            other.kill()
        assert Internal in found


@pytest.mark.parametrize("handler", ["", "faulthandler.enable()"])
def test_any_other_bus_error_ends_the_process_as_ever(shm, handler):
    code = f"""
import faulthandler, mmap, os, sys
{handler}
from tisfast.native.region import SystemRegion
path = {str(shm.path)!r}
SystemRegion("r", "k", os.open(path, os.O_RDWR), 0, 10)
file = open(path, "r+b")
taken = mmap.mmap(file.fileno(), 8192)
os.truncate(path, 0)
print("here", flush=True)
taken[4096]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("here\n", -signal.SIGBUS)
    assert ("Bus error" in done.stderr) == bool(handler)


def test_thousands_of_regions_leave_no_descriptor_and_no_mapping(shm):
    before = open_descriptors()
    for _ in range(3000):
        region(shm, 4095, 100)
    assert open_descriptors() <= before and mappings(shm) == 0


def test_a_region_lives_until_its_last_user_is_gone(shm):
    table = Regions()
    table.add(region(shm))
    user = table.get("r")
    table.remove("r")
    assert (len(table), table.get("r"), table.all()) == (0, None, [])
    assert user.fetch(0, 2) == DATA[:2]
    del user
    assert mappings(shm) == 0


def test_device_memory_is_copied_through_its_own_face():
    device = HostDevice(a=b"0123456789")
    mapped = DeviceRegion("d", device.open(device.handle("a"), 0), 0, device.handle("a"), 8)
    assert mapped.fetch(2, 6) == b"234567"
    mapped.store(0, b"ab")
    assert device.memories["a"] == b"ab23456789"
    with pytest.raises(BadRequest, match=r"Invalid offset \+ byte size for shared memory region: 'd'"):
        mapped.fetch(4, 5)
    del mapped
    assert device.open_count == 0


@pytest.mark.parametrize("nbytes", [0, 11])
def test_device_memory_smaller_than_announced_is_refused(nbytes):
    device = HostDevice(a=b"0123456789")
    with pytest.raises(BadRequest, match=r"invalid args \(byte_size"):
        DeviceRegion("d", device.open(device.handle("a"), 0), 0, device.handle("a"), nbytes)
    assert device.open_count == 0
