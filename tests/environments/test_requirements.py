"""Which files say what is installed."""

from __future__ import annotations

import pytest

from tests.environments.wheels import write_wheel
from tisfast import limits
from tisfast.environments.requirements import files_of, read_requirements
from tisfast.errors import ConfigError


def test_includes_count_and_change_the_digest(tmp_path):
    (tmp_path / "requirements.txt").write_text("-r more/base.txt\n--constraint=pins.txt\nnumpy # -r no.txt\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more/base.txt").write_text("-c ../pins.txt\n-rlast.txt\n")
    (tmp_path / "more/last.txt").write_text("-r base.txt\n")
    (tmp_path / "pins.txt").write_text("numpy==1.26\n")
    before = read_requirements(tmp_path / "requirements.txt")
    assert sorted({str(file.resolve().relative_to(tmp_path)) for file in before.files}) == [
        "more/base.txt", "more/last.txt", "pins.txt", "requirements.txt",
    ]  # fmt: skip
    assert not before.hashed and not before.locked
    (tmp_path / "pins.txt").write_text("numpy==1.25\n")
    assert read_requirements(tmp_path / "requirements.txt").digest != before.digest


def test_local_packages_count(tmp_path):
    wheel = write_wheel(tmp_path)
    for line in (
        f"./{wheel.name}", str(wheel), f"greeting @ file://{wheel}", f"file:{wheel}", wheel.name,
        f"greeting @ file://{wheel}#sha256=00", f"./{wheel.name}[more]", f"./{wheel.name} ; python_version > '3'",
        f"{wheel.name};python_version>'3'",
    ):  # fmt: skip
        (tmp_path / "r.txt").write_text(line + "\n")
        assert read_requirements(tmp_path / "r.txt").files[1].samefile(wheel), line


def test_a_package_by_url_is_none_of_ours(tmp_path):
    (tmp_path / "r.txt").write_text("greeting @ https://example.org/greeting-1.0.whl\nhttps://example.org/a-1.tar.gz\n")
    assert files_of(tmp_path / "r.txt") == (tmp_path / "r.txt",)


def test_the_content_of_packages_counts_and_is_not_kept_in_memory(tmp_path, monkeypatch):
    wheel = write_wheel(tmp_path)
    (tmp_path / "r.txt").write_text(wheel.name)
    before = read_requirements(tmp_path / "r.txt")
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"?")
    assert read_requirements(tmp_path / "r.txt").digest != before.digest
    monkeypatch.setattr(limits, "REQUIREMENTS_TEXT_BYTES_MAX", 100)
    assert wheel.stat().st_size > 100 and read_requirements(tmp_path / "r.txt")
    monkeypatch.setattr(limits, "REQUIREMENTS_PACKAGE_BYTES_MAX", 100)
    with pytest.raises(ConfigError, match="more than 100"):
        files_of(tmp_path / "r.txt")


def test_hashes_and_locks_are_seen(tmp_path):
    (tmp_path / "r.txt").write_text("numpy==1.26 \\\n    --hash=sha256:00\n")
    assert read_requirements(tmp_path / "r.txt").hashed
    (tmp_path / "pylock.toml").write_text('lock-version = "1.0"\n-r nothing.txt\n')
    assert read_requirements(tmp_path / "pylock.toml").locked


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("numpy\n-e .\n", "r.txt:2: '-e .' is editable, and so may change"),
        ("--editable=./a\n", "r.txt:1: '--editable=./a' is editable"),
        ("./folder\n", "folder' is a folder, whose content the cache of environments cannot tell"),
        ("-r https://example.org/r.txt\n", "r.txt:1: .* includes what lies elsewhere and may change"),
        ("-r none.txt\n", "r.txt: cannot read '.*none.txt': No such file or directory"),
    ],
)
def test_what_cannot_be_cached_is_refused(tmp_path, text, why):
    (tmp_path / "folder").mkdir()
    (tmp_path / "r.txt").write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_requirements(tmp_path / "r.txt")


def test_includes_are_bounded(tmp_path, monkeypatch):
    for number in range(limits.REQUIREMENTS_FILES_MAX + 1):
        (tmp_path / f"{number}.txt").write_text(f"-r {number + 1}.txt\n")
    with pytest.raises(ConfigError, match="more than 64 files are included"):
        read_requirements(tmp_path / "0.txt")
    monkeypatch.setattr(limits, "REQUIREMENTS_TEXT_BYTES_MAX", 3)
    with pytest.raises(ConfigError, match="more than 3"):
        read_requirements(tmp_path / "0.txt")
