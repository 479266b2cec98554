"""Archives of every served kind, whole and damaged."""

from __future__ import annotations

import io
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tisfast import limits
from tisfast.environments.archive_reader import opened
from tisfast.environments.build_errors import EnvironmentFailed

CONTENT = bytes(range(256)) * 4096
KINDS = ("tar", "tar.gz", "tar.bz2", "tar.xz", "tar.zst", "zip")


def tar_bytes() -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, kind, target in (("lib", tarfile.DIRTYPE, ""), ("bin/python", tarfile.SYMTYPE, "python3")):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, target
            tar.addfile(entry)
        entry = tarfile.TarInfo("bin/python3")
        entry.size, entry.mode, entry.mtime = len(CONTENT), 0o755, 1e9
        tar.addfile(entry, io.BytesIO(CONTENT))
        entry = tarfile.TarInfo("lib/" + "long" * 60)
        tar.addfile(entry)
    return plain.getvalue()


def pack(folder: Path, kind: str) -> Path:
    path = folder / f"env.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
            zipped.writestr(zipfile.ZipInfo("lib/"), "")
            entry = zipfile.ZipInfo("bin/python", (2001, 9, 9, 3, 46, 40))
            entry.external_attr = (stat.S_IFLNK | 0o777) << 16
            zipped.writestr(entry, "python3")
            entry = zipfile.ZipInfo("bin/python3", (2001, 9, 9, 3, 46, 40))
            entry.external_attr = (stat.S_IFREG | 0o755) << 16
            zipped.writestr(entry, CONTENT)
            zipped.writestr("lib/" + "long" * 60, b"")
        return path
    if kind == "tar.zst":
        if shutil.which("zstd") is None:
            pytest.skip("there is no zstd")
        packed = subprocess.run(["zstd", "-q", "-c"], input=tar_bytes(), capture_output=True, check=True)
        path.write_bytes(packed.stdout)
        return path
    mode = kind.partition(".")[2]
    if not mode:
        path.write_bytes(tar_bytes())
        return path
    with tarfile.open(path, f"w:{mode}") as tar, tarfile.open(fileobj=io.BytesIO(tar_bytes())) as plain:
        for entry in plain:
            tar.addfile(entry, plain.extractfile(entry) if entry.isreg() else None)
    return path


def read(path: Path) -> dict[str, object]:
    """What an archive holds, by name: a file's content, or a link's target."""
    found: dict[str, object] = {}
    with opened(path) as archive:
        for item in archive.items:
            name = item.name.rstrip("/")
            found[name] = item.kind if item.kind != "file" else (item.mode & 0o777, item.content().read())
            if item.kind == "link":
                found[name] = item.target
            assert archive.position() >= 0
    return found


def check(found: dict[str, object]) -> None:
    assert found["lib"] == "folder" and found["bin/python"] == "python3"
    assert found["bin/python3"] == (0o755, CONTENT)
    assert found["lib/" + "long" * 60][1] == b""


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read_whatever_it_is_called(kind, tmp_path):
    path = pack(tmp_path, kind)
    check(read(path))
    check(read(path.rename(tmp_path / "env.tar.gz")))


@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz"])
def test_python_s_own_modules_do_where_there_is_no_program(kind, tmp_path, monkeypatch):
    path = pack(tmp_path, kind)
    monkeypatch.setenv("PATH", str(tmp_path))
    check(read(path))


@pytest.mark.parametrize("programs", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_archive_is_told(kind, programs, tmp_path, monkeypatch):
    path = pack(tmp_path, kind)
    os.truncate(path, path.stat().st_size * 2 // 3)
    if not programs and kind != "tar.zst":
        monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFailed, match=f"{path} is damaged, or not whole: .+; copy it again"):
        read(path)


def test_a_tar_that_is_cut_between_entries_is_told(tmp_path):
    path = tmp_path / "env.tar"
    path.write_bytes(tar_bytes()[:1024])
    with pytest.raises(EnvironmentFailed, match="is damaged, or not whole: it ends without its end mark"):
        read(path)


@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz", "tar.zst", "zip"])
def test_a_changed_byte_is_told(kind, tmp_path):
    path = pack(tmp_path, kind)
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 0x55
    path.write_bytes(data)
    with pytest.raises(EnvironmentFailed, match="is damaged"):
        read(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_member_of_a_zip_is_told_however_it_is_packed(method, tmp_path):
    path = tmp_path / "env.zip"
    with zipfile.ZipFile(path, "w", method) as zipped:
        zipped.writestr("bin/python3", CONTENT)
    data = bytearray(path.read_bytes())
    for at in range(80, 140):
        data[at] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(EnvironmentFailed, match="is damaged"):
        read(path)


def test_the_checksum_behind_the_tar_file_counts(tmp_path):
    path = pack(tmp_path, "tar.gz")
    data = bytearray(path.read_bytes())
    data[-6] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(EnvironmentFailed, match="is damaged"):
        read(path)


def test_what_is_no_archive_is_told(tmp_path):
    path = tmp_path / "env.tar.gz"
    path.write_bytes(b"<html>404 Not Found</html>")
    with pytest.raises(EnvironmentFailed, match="is no archive: it begins with b'<html>40'; served are tar"):
        read(path)


@pytest.mark.parametrize(
    ("kind", "extension", "cure"),
    [("tar.zst", "_zstd", "zstd; install the program zstd"), ("tar.xz", "_lzma", "xz; install the program xz")],
)
def test_what_cannot_be_unpacked_here_is_told(kind, extension, cure, tmp_path):
    path = pack(tmp_path, kind)
    program = f"""
import sys
sys.modules[{extension!r}] = None  # a CPython that was compiled without the library
from tests.environments.test_archive_reader import read
from pathlib import Path
read(Path({str(path)!r}))
"""
    without = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, env=without, capture_output=True, text=True, timeout=60
    )
    what, _, hint = cure.partition("; ")
    assert f"EnvironmentFailed: {path} is packed with {what}, which this Python cannot unpack; {hint}" in done.stderr


def test_a_zip_file_that_cannot_be_unpacked_here_is_told(tmp_path):
    path = tmp_path / "env.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as zipped:
        zipped.writestr("lib/a", b"x")
    program = f"""
import sys
sys.modules["_lzma"] = None
from tests.environments.test_archive_reader import read
from pathlib import Path
read(Path({str(path)!r}))
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    assert f"EnvironmentFailed: {path} is packed in a way that is not read here: Compression requires" in done.stderr


def test_a_header_that_would_fill_the_memory_is_refused(tmp_path):
    entry = tarfile.TarInfo("pax")
    entry.type, entry.size = tarfile.XHDTYPE, limits.ENVIRONMENT_HEADER_BYTES_MAX + 1
    path = tmp_path / "env.tar"
    path.write_bytes(entry.tobuf() + bytes(limits.ENVIRONMENT_HEADER_BYTES_MAX + 10240))
    with pytest.raises(EnvironmentFailed, match="a header of more than 8388608 bytes"):
        read(path)


def test_an_encrypted_zip_is_refused(tmp_path):
    path = pack(tmp_path, "zip")
    data = path.read_bytes()
    at = data.index(b"PK\x01\x02") + 8
    path.write_bytes(data[:at] + b"\x01" + data[at + 1 :])
    with pytest.raises(EnvironmentFailed, match="is encrypted: 'lib/'"):
        read(path)


def test_a_zip_that_is_packed_in_an_unknown_way_is_told(tmp_path):
    path = pack(tmp_path, "zip")
    data = bytearray(path.read_bytes())
    for sign, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = data.index(sign, data.index(sign) + 1)
        data[at + offset] = 98
    path.write_bytes(data)
    with pytest.raises(EnvironmentFailed, match="is packed in a way that is not read here: .*; pack it as .tar.gz"):
        read(path)


def test_devices_and_pipes_are_named(tmp_path):
    path = tmp_path / "env.tar"
    with tarfile.open(path, "w") as tar:
        for name, kind in (("device", tarfile.CHRTYPE), ("pipe", tarfile.FIFOTYPE)):
            entry = tarfile.TarInfo(name)
            entry.type = kind
            tar.addfile(entry)
    with opened(path) as archive:
        assert [(item.kind, item.about) for item in archive.items] == [("other", "a device"), ("other", "a pipe")]
