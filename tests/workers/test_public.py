"""`tisfast.backend`, which backends import: in any environment, with and without tisfast."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.workers.driver import ROOT, WORKERS

SEEN = """
import sys
sys.path += sys.argv[1:]
from tisfast_worker import public
public.offer()
import tisfast.backend
from tisfast.backend import ArrayBackend, Options, Refusal, RequestBackend, framework
from tisfast_worker import backend
assert tisfast.backend.ArrayBackend is ArrayBackend is backend.ArrayBackend
assert set(tisfast.backend.__all__) == {"ArrayBackend", "Options", "Refusal", "RequestBackend", "framework"}
print(hasattr(tisfast, "__file__"))
"""


def seen(python: str, *folders: object) -> str:
    done = subprocess.run(
        [python, "-I", "-c", SEEN, *map(str, folders)], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout.strip() or done.stderr


def test_an_environment_without_tisfast_has_it(python):
    if python == sys.executable and seen(python, WORKERS) == "True":
        pytest.skip("tisfast is installed in this environment")
    assert seen(python, WORKERS) == "False"


def test_where_tisfast_is_installed_it_is_a_module_of_it():
    assert seen(sys.executable, WORKERS, ROOT) == "True"
