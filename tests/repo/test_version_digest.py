"""What a version is: the same on every machine, another one when anything that can change an answer changes."""

from __future__ import annotations

import os

import pytest

from tisfast import limits
from tisfast.errors import ConfigError
from tisfast.repo.version_digest import version_digest

CONFIG = {"name": "m", "max_batch_size": 0}


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "1"
    (place / "data").mkdir(parents=True)
    (place / "model.py").write_text("x = 1")
    (place / "data" / "weights").write_bytes(b"12345")
    return place


def of(folder, name="m", version="1", config=None):
    return version_digest(name, version, config or CONFIG, folder)


def test_times_and_caches_of_small_files_do_not_count(folder):
    before = of(folder)
    os.utime(folder / "model.py", (1, 1))
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "model.pyc").write_text("x")
    assert of(folder) == before


def test_what_counts(folder):
    seen = [of(folder), of(folder, "other"), of(folder, version="2"), of(folder, config={"max_batch_size": 4})]
    (folder / "model.py").write_text("x = 2")
    seen.append(of(folder))
    (folder / "data" / "weights").write_bytes(b"12346")
    seen.append(of(folder))
    (folder / "data" / "weights").rename(folder / "weights")
    seen.append(of(folder))
    assert len(set(seen)) == len(seen)


def test_large_files_count_by_size_and_time(folder):
    big = folder / "big"
    with big.open("wb") as file:
        file.truncate(limits.FINGERPRINT_FILE_BYTES_MAX + 1)
    before = of(folder)
    os.utime(big, (1, 1))
    assert of(folder) != before


def test_too_many_files_are_refused(folder, monkeypatch):
    monkeypatch.setattr(limits, "FINGERPRINT_FILES_MAX", 1)
    with pytest.raises(ConfigError, match="more than 1 files"):
        of(folder)


def test_a_backend_that_is_not_ours_counts(folder, tmp_path):
    backend = tmp_path / "mlp"
    backend.mkdir()
    seen = [of(folder)]
    for text in ("x = 1", "x = 2"):
        (backend / "backend.py").write_text(text)
        seen.append(version_digest("m", "1", CONFIG, folder, backend))
    assert len(set(seen)) == 3
