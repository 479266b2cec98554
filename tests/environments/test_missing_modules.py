"""What a model lacks, and how it gets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tisfast.environments.environment import Environment, Interpreter
from tisfast.environments.missing_modules import advice

OWN = Interpreter("/usr/bin/python3")
LISTED = Interpreter("/c/env/bin/python", (), Environment("requirements", Path("/m/requirements.txt")))
VENV = Interpreter("/e/bin/python", (), Environment("folder", Path("/e"), interpreter=Path("/e/bin/python")))


@pytest.mark.parametrize(
    ("module", "interpreter", "text"),
    [
        ("six", OWN, "package 'six' is missing in the environment of model 'm' (the server's own Python, "
                     "/usr/bin/python3): /usr/bin/python3 -m pip install six, or give the model an environment: "
                     "EXECUTION_ENV_PATH"),
        ("cv2.gapi", LISTED, "package 'opencv-python-headless' (module 'cv2') is missing in the environment of model "
                             "'m' (requirements /m/requirements.txt): add 'opencv-python-headless' to "
                             "/m/requirements.txt and load the model again"),
        ("yaml", VENV, "package 'pyyaml' (module 'yaml') is missing in the environment of model 'm' (environment /e): "
                       "/e/bin/python -m pip install pyyaml"),
        ("treelite", OWN, "package 'treelite' is missing in the environment of model 'm' (the server's own Python, "
                          "/usr/bin/python3): /usr/bin/python3 -m pip install 'tisfast[trees]', or give the model an "
                          "environment: EXECUTION_ENV_PATH"),
        ("tensorflow", VENV, "package 'tensorflow-cpu' (module 'tensorflow') is missing in the environment of model "
                             "'m' (environment /e): /e/bin/python -m pip install tensorflow-cpu"),
    ],
)  # fmt: skip
def test_modules(module, interpreter, text):
    assert advice(f"ModuleNotFoundError: No module named '{module}'", module, interpreter, "m") == text


def test_libraries():
    error = "ImportError: libGL.so.1: cannot open shared object file: No such file or directory"
    assert advice(error, "", VENV, "m").startswith("library libGL.so.1 is missing in the environment of model 'm'")
    error = "ImportError: /lib/libm.so.6: version `GLIBC_2.38' not found (required by /e/lib/libx.so)"
    assert "needs GLIBC_2.38, for which this system's libraries are too old" in advice(error, "", VENV, "m")


def test_nothing_is_missing():
    assert advice("ValueError: no weights", "", VENV, "m") == ""
