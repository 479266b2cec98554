"""Archives: regular files into the cache, and nothing else anywhere."""

from __future__ import annotations

import errno
import gzip
import io
import os
import random
import subprocess
import sys
import tarfile
import threading
import zipfile

import pytest

from tests.storage.servers import tar_of
from tisfast import limits
from tisfast.errors import Cancelled, ConfigError
from tisfast.storage.archive import unpack
from tisfast.storage.blobs import Blobs
from tisfast.storage.store_layout import check_paths


@pytest.fixture
def blobs(tmp_path):
    found = Blobs(tmp_path / "cache")
    yield found
    found.close()


def unpacked(data, name, blobs, tmp_path, stop=None):
    path = tmp_path / "archive"
    path.write_bytes(data)
    found = unpack(path, name, blobs, stop or threading.Event())
    return {name: blobs.path(blob.sha256).read_text() for name, blob in found.items()}


@pytest.mark.parametrize("ending", [".tar.gz", ".tgz", ".tar", ".zip"])
def test_files_become_blobs(ending, blobs, tmp_path):
    files = {"a/config.pbtxt": "x", "a/1/model.py": "y" * 3_000_000, "./b/empty": ""}
    found = unpacked(tar_of(files, ending), f"m{ending}", blobs, tmp_path)
    assert found == {path.removeprefix("./"): text for path, text in files.items()}
    assert not list((tmp_path / "cache/partial").iterdir())


def tar_with(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for member in members:
            tar.addfile(member)
    return out.getvalue()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_special_files_are_refused(kind, blobs, tmp_path):
    member = tarfile.TarInfo("a/link")
    member.type, member.linkname = kind, "/etc/passwd"
    with pytest.raises(ConfigError, match="m.tar: 'a/link' is a link or a special file.*--dereference"):
        unpacked(tar_with(member), "m.tar", blobs, tmp_path)


def test_a_link_in_a_zip_is_refused(blobs, tmp_path):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as zipped:
        member = zipfile.ZipInfo("a/link")
        member.external_attr = 0o120777 << 16
        zipped.writestr(member, "/etc/passwd")
    with pytest.raises(ConfigError, match="is a link"):
        unpacked(out.getvalue(), "m.zip", blobs, tmp_path)


@pytest.mark.parametrize("path", ["../../evil", "/evil"])
@pytest.mark.parametrize("ending", [".tar", ".zip"])
def test_paths_that_leave_the_folder_are_seen_before_anything_is_shown(path, ending, blobs, tmp_path):
    found = unpacked(tar_of({path: "x"}, ending), f"m{ending}", blobs, tmp_path)
    with pytest.raises(ConfigError, match="cannot be a file's path"):
        check_paths(found, "m")
    assert not list(tmp_path.parent.glob("**/evil"))


@pytest.mark.parametrize("ending", [".tar.gz", ".tar", ".zip"])
def test_half_an_archive_is_none(ending, blobs, tmp_path):
    data = tar_of({"a/1/model.py": "\n".join(map(str, range(50_000)))}, ending)
    with pytest.raises(ConfigError, match="is no archive that can be read"):
        unpacked(data[: len(data) // 2], f"m{ending}", blobs, tmp_path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("damage", ["cut behind an entry", "cut in a header", "header", "last header"])
def test_a_tar_without_its_end_is_none(damage, pack, blobs, tmp_path):
    """What comes before is whole, so half a model would be served."""
    data = bytearray(tar_of({"a/config.pbtxt": "x", "a/1/model.py": "y", "a/1/weights": "z"}, ".tar"))
    if damage == "cut behind an entry":
        del data[2048:]
    elif damage == "cut in a header":
        del data[2048 + 100 :]
    else:
        data[(1024 if damage == "header" else 2048) + 10] ^= 0xFF
    with pytest.raises(ConfigError, match="is no archive that can be read: it ends without its end mark, or a header"):
        unpacked(pack(data), "m.tar.gz" if pack is gzip.compress else "m.tar", blobs, tmp_path)


def test_one_block_is_end_mark_enough(blobs, tmp_path):
    data = tar_of({"a": "x"}, ".tar")
    assert unpacked(data[: 1024 + 512], "m.tar", blobs, tmp_path) == {"a": "x"}


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_member_of_a_zip_is_not_taken_for_the_cache_s_fault(method, blobs, tmp_path):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as zipped:
        zipped.writestr("a/1/model.py", random.Random(1).randbytes(2000))
    data = bytearray(out.getvalue())
    for at in range(80, 140):
        data[at] ^= 0xFF
    with pytest.raises(ConfigError, match=r"m.zip.* (is damaged|is no archive that can be read): .+; pack it again"):
        unpacked(data, "m.zip", blobs, tmp_path)
    assert not list((tmp_path / "cache/partial").iterdir())


def test_a_zip_whose_table_leads_nowhere_is_none(blobs, tmp_path):
    data = bytearray(tar_of({"a": "x"}, ".zip"))
    at = data.index(b"PK\x05\x06") + 16  # where the table begins
    data[at : at + 4] = (int.from_bytes(data[at : at + 4], "little") + 100).to_bytes(4, "little")
    with pytest.raises(ConfigError, match="m.zip.* (is damaged|is no archive that can be read)"):
        unpacked(data, "m.zip", blobs, tmp_path)


def test_a_disk_that_cannot_be_read_is_no_damage_of_the_archive(blobs, tmp_path, monkeypatch):
    def failing(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(zipfile.ZipExtFile, "read", failing)
    with pytest.raises(OSError, match="Input/output error"):
        unpacked(tar_of({"a": "x"}, ".zip"), "m.zip", blobs, tmp_path)


def test_a_file_twice_is_refused(blobs, tmp_path):
    with pytest.raises(ConfigError, match="'a' is in the archive twice"):
        unpacked(tar_with(tarfile.TarInfo("a"), tarfile.TarInfo("a")), "m.tar", blobs, tmp_path)


def test_what_expands_beyond_the_limit_is_refused(blobs, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "STORAGE_ARCHIVE_BYTES_MAX", 1_000_000)
    with pytest.raises(ConfigError, match="1000000 bytes"):
        unpacked(tar_of({"a": "0" * 1_000_001}), "m.tar.gz", blobs, tmp_path)


def test_folders_count_and_are_not_kept_in_memory(blobs, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "STORAGE_FILES_MAX", 10)
    folders = []
    for number in range(11):
        folder = tarfile.TarInfo(f"{number}")
        folder.type = tarfile.DIRTYPE
        folders.append(folder)
    assert unpacked(tar_with(*folders[:10]), "m.tar", blobs, tmp_path) == {}
    with pytest.raises(ConfigError, match="more than 10 files and folders"):
        unpacked(tar_with(*folders), "m.tar", blobs, tmp_path)


def test_a_header_that_would_fill_the_memory_is_refused(blobs, tmp_path):
    long = tarfile.TarInfo("name")
    long.type, long.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    with pytest.raises(ConfigError, match="a header of more than 8388608 bytes"):
        unpacked(gzip.compress(long.tobuf() + bytes(16 << 20)), "m.tar.gz", blobs, tmp_path)


def test_it_stops_when_told(blobs, tmp_path):
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        unpacked(tar_of({"a": "x"}), "m.tar.gz", blobs, tmp_path, stop)


def test_a_python_without_xz_reads_other_archives_and_says_what_it_lacks(tmp_path):
    for name, compression in (("deflated", zipfile.ZIP_DEFLATED), ("packed", zipfile.ZIP_LZMA)):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w", compression) as zipped:
            zipped.writestr("model.py", "x")
    program = f"""
import sys, threading
sys.modules["_lzma"] = None  # a CPython that was compiled without the library
import tisfast.cli
from pathlib import Path
from tisfast.storage.archive import unpack
from tisfast.storage.blobs import Blobs
folder = Path({str(tmp_path)!r})
for name in ("deflated.zip", "packed.zip"):
    print(list(unpack(folder / name, name, Blobs(folder / "cache"), threading.Event())))
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout == "['model.py']\n"
    assert "packed.zip is no archive that can be read: Compression requires the (missing) lzma module" in done.stderr
