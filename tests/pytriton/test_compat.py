"""The second distribution, which gives the import name `pytriton`."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import importlib, pkgutil
import pytriton
from pytriton.client import ModelClient
from pytriton.triton import Triton
import pytriton.proxy.validators
import tisfast.pytriton, tisfast.pytriton.triton

assert pytriton.__version__ == "0.7.0"
assert pytriton.triton.Triton is Triton is tisfast.pytriton.triton.Triton
assert Triton.__module__ == "tisfast.pytriton.triton"
for module in pkgutil.walk_packages(tisfast.pytriton.__path__, "tisfast.pytriton."):
    ours = importlib.import_module(module.name)
    assert importlib.import_module(module.name.partition(".")[2]) is ours, module.name
    assert ours.__spec__.name == module.name
try:
    import pytriton.nothing
except ModuleNotFoundError as error:
    print(error)
"""


def test_each_module_is_the_same_under_both_names():
    path = os.pathsep.join([str(ROOT), str(ROOT / "compat/pytriton")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "No module named 'pytriton.nothing'\n"), done.stderr
