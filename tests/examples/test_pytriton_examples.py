"""The examples of PyTriton's API say what they are to say, which is what the real PyTriton says, too."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unused_ports import closed_ports

ROOT = Path(__file__).resolve().parents[2]
SAYS = {
    "add_sub": "add [[3.0, 6.0], [9.0, 12.0]]\nsub [[-1.0, -2.0], [-3.0, -4.0]]\n",
    "optional_inputs": "['a'] [b'a']\n['b'] [b'b']\n['a', 'b'] [b'a,b']\n[11.0] [2.0]\n",
    "identity": "[0, 1, 2] ['süß']\n" * 2,
    "several_models": "Double [10.0]\nTriple [15.0]\n[0.0, 3.0, 6.0, 9.0, 12.0, 15.0, 18.0, 21.0]\n",
    "parameters_and_headers": "[1.0, 2.0]\n[2.0, 4.0]\n[3.0, 6.0]\n" * 2,
    "remote_mode": "[-3.0]\nremote: True\nserver: True remote: False\n",
    "vertex_ai": "healthy: 200\n[2.0, 4.0]\n",
}


def run(name):
    # PyTriton's clients over gRPC warn, as their timeouts are of calls.
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-W",
            "ignore::UserWarning",
            f"examples/pytriton/{name}.py",
            str(closed_ports(4)),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", SAYS)
def test_an_example_says_what_it_is_to_say(name):
    assert run(name) == SAYS[name]


def test_a_model_learns_while_it_answers():
    pytest.importorskip("sklearn")
    *steps, end = run("online_learning").splitlines()
    assert [line.split()[1] for line in steps] == ["0", "320", "640", "960"]
    assert steps[0].endswith("knew 0.00 of the next 64")
    assert float(end.split()[-1]) > 0.8


def test_a_layer_of_pytorch_is_asked_where_it_is():
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    assert run("linear_random_torch").count("[") == 5


def test_each_example_is_tested():
    names = {path.stem for path in (ROOT / "examples/pytriton").glob("*.py")}
    assert names == {*SAYS, "online_learning", "linear_random_torch"}
