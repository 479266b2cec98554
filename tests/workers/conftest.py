"""Interpreters to run the workers under, and one nursery with its router per test that wants them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.workers.driver import LIBRARY, ROOT, WORKERS, Instance, NurseryProcess, Router
from tests.workers.pythons import has_numpy, interpreters

sys.path.append(str(WORKERS))  # where a worker's own modules are: tested in this process as well


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "python" in metafunc.fixturenames:
        names = interpreters()
        metafunc.parametrize(
            "python", names, ids=[name.split("/")[-3] if "pyenv" in name else "this" for name in names]
        )


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    assert LIBRARY.exists(), "run `python setup.py build_ext --inplace` first"


@pytest.fixture(scope="session")
def oldest_with_numpy() -> str:
    """A virtual environment of the oldest interpreter there is, with the numpy that pip finds; kept between runs."""
    python = interpreters()[0]
    if python == sys.executable:
        return python
    folder = ROOT / ".cache/worker-venv" / Path(python).parts[-3]
    made = folder / "bin/python"
    if not (made.exists() and has_numpy(str(made))):
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
        install = [str(made), "-m", "pip", "install", "-q", "numpy"]
        done = subprocess.run(install, timeout=120, check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.fail(f"pip could not install numpy for {python}, under which workers are tested: {done.stderr}")
    return str(made)


@pytest.fixture
def nursery(request: pytest.FixtureRequest):
    """`indirect` parameter "oldest": under the oldest interpreter instead of this one."""
    oldest = getattr(request, "param", "this") == "oldest"
    made = NurseryProcess(request.getfixturevalue("oldest_with_numpy") if oldest else sys.executable)
    try:
        hello, _ = made.receive()
        assert hello["t"] == "nursery"
        yield made
    finally:
        made.close()


@pytest.fixture
def router(nursery):
    made = Router(nursery.endpoint)
    yield made
    made.close()


@pytest.fixture
def serve(nursery, router, tmp_path):
    """Start an instance of a model's source in this interpreter's nursery, and check that it is ready."""

    def start(source: str, **model: object) -> Instance:
        instance = Instance(nursery, router, tmp_path, source, **model)
        reply = instance.start()
        assert reply["t"] == "ready", reply
        return instance

    return start


@pytest.fixture
def load(nursery, router, tmp_path):
    """Start an instance and return it with whatever it answers."""

    def start(source: str, role: str = "serve", **model: object) -> tuple[Instance, dict]:
        instance = Instance(nursery, router, tmp_path, source, **model)
        return instance, instance.start(role)

    return start
