"""What lies where a model's file should be, and is none: a pipe, a socket, a device, something endless."""

from __future__ import annotations

import os
import socket

import pytest

from tests.descriptors import open_descriptors
from tisfast import limits
from tisfast.errors import ConfigError
from tisfast.repo import layout
from tisfast.repo.scan import ScanOptions, read_draft

CONFIG = 'backend: "python"'


def pipe(path):
    os.mkfifo(path)


def bound_socket(path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def endless(path):
    path.symlink_to("/dev/zero")


def folder(path):
    path.mkdir()


@pytest.mark.parametrize("make", [pipe, bound_socket, endless, folder])
def test_what_is_no_regular_file_is_refused_by_name(tmp_path, make):
    make(tmp_path / "config.pbtxt")
    reasons = "it is not a regular file|Is a directory|No such device"
    with pytest.raises(ConfigError, match=f"config.pbtxt: ({reasons})") as wrong:
        read_draft(tmp_path, ScanOptions())
    assert str(tmp_path) in str(wrong.value)


def test_a_configuration_has_a_bound(tmp_path):
    path = tmp_path / "config.pbtxt"
    with path.open("wb") as file:
        file.truncate(limits.MODEL_CONFIG_BYTES_MAX + 1)
    with pytest.raises(ConfigError, match=f"config.pbtxt: it has more than {limits.MODEL_CONFIG_BYTES_MAX} bytes"):
        read_draft(tmp_path, ScanOptions())


def test_a_link_to_a_file_is_a_file(tmp_path):
    (tmp_path / "there").write_text(CONFIG)
    (tmp_path / "config.pbtxt").symlink_to("there")
    assert layout.read_file(tmp_path / "config.pbtxt", 100) == CONFIG.encode()
    with layout.open_file(tmp_path / "config.pbtxt") as file:
        assert file.read() == CONFIG.encode()


def test_opening_leaves_no_descriptor_behind(tmp_path):
    pipe(tmp_path / "x")
    before = open_descriptors()
    for _ in range(10):
        with pytest.raises(OSError, match="not a regular file"):
            layout.open_file(tmp_path / "x")
    assert open_descriptors() <= before
