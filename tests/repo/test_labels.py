"""Label files: line i is label i."""

from __future__ import annotations

import pytest

from tisfast.errors import ConfigError
from tisfast.limits import LABELS_BYTES_MAX
from tisfast.repo.labels import read_labels


@pytest.mark.parametrize(
    ("data", "labels"),
    [
        (b"", ()),
        (b"cat\ndog\n", (b"cat", b"dog")),
        (b"cat\n\n\ndog", (b"cat", b"", b"", b"dog")),
        (b"a b \r\n\xff\n", (b"a b \r", b"\xff")),
    ],
)
def test_lines_are_labels_byte_for_byte(tmp_path, data, labels):
    (tmp_path / "labels.txt").write_bytes(data)
    assert read_labels(tmp_path, "labels.txt") == labels


def test_no_file_is_no_labels(tmp_path):
    assert read_labels(tmp_path, "") == ()


def test_a_file_that_has_gone_or_is_too_long_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"failed to open text file for read .*gone.txt"):
        read_labels(tmp_path, "gone.txt")
    with (tmp_path / "long").open("wb") as file:
        file.truncate(LABELS_BYTES_MAX + 1)
    with pytest.raises(ConfigError, match=f"long has more than {LABELS_BYTES_MAX} bytes"):
        read_labels(tmp_path, "long")
