"""What backends need installed: pinned for those of ours, beside the file for others."""

from __future__ import annotations

import re

import pytest

from tisfast.config.backend_flags import read_backends
from tisfast.config.backends import BUILT_IN
from tisfast.environments.backend_requirements import PINNED, environment_named, environment_of
from tisfast.environments.requirements import read_requirements
from tisfast.errors import ConfigError

PIN = re.compile(r"[a-z0-9_.-]+(\[[a-z0-9,]+\])?==[a-z0-9.+]+( ; .+)?|--[a-z-]+ https://\S+")


@pytest.mark.parametrize("path", sorted(PINNED.iterdir()), ids=lambda path: path.stem)
def test_what_comes_with_a_backend_of_ours_is_pinned(path):
    assert BUILT_IN.named(path.stem) is not None and path.suffix == ".txt"
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    assert lines and [line for line in lines if not PIN.fullmatch(line)] == []
    assert read_requirements(path).files == (path,)


def test_a_backend_of_a_folder_has_what_lies_beside_it(tmp_path):
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "backend.py").touch()
    (tmp_path / "with/requirements.txt").write_text("six==1.17.0\n")
    backends = read_backends(str(tmp_path), [])
    environment = environment_of(backends.named("with"))
    assert environment.kind == "requirements" and environment.path == tmp_path / "with/requirements.txt"
    assert environment_of(backends.named("without")) is None
    assert environment_named("with", backends, "3.11").python == "3.11"


@pytest.mark.parametrize(("name", "said"), [("nonesuch", "there is no backend 'nonesuch'"), ("python", "has no req")])
def test_a_backend_without_is_told_with_those_that_have(name, said):
    with pytest.raises(ConfigError, match=said) as caught:
        environment_named(name, BUILT_IN)
    assert "onnxruntime" in str(caught.value)
