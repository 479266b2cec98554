"""Triton's own example clients, unchanged, against the real server.

The programs are not part of this project.  TISFAST_CLIENT_EXAMPLES names a folder that has them: src/python/examples of
a checkout of Triton's client repository.  What they do is also in test_client_flows.py, which always runs.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pytest

from tests.system.client_models import HERE, SERVED, repository
from tests.system.helpers import Server

FOLDER: Final = os.environ.get("TISFAST_CLIENT_EXAMPLES", "")
PROGRAM_SECONDS_MAX: Final = 60
FIXED_PORT: Final = ("memory_growth_test.py",)  # speak to ports 8000 and 8001 and nothing else
CLASSES: Final = ("-m", "densenet_onnx", "-s", "INCEPTION", "-c", "2")
IMAGE: Final = "IMAGE"  # among arguments: the path of a bright image


class Run(NamedTuple):
    """One run of a program.  grpc: which port it gets, when its name does not say."""

    program: str
    arguments: tuple[str, ...] = ()
    grpc: bool = False


FURTHER: Final = (
    *(Run("simple_http_infer_client.py", ("--request-compression-algorithm", name)) for name in ("gzip", "deflate")),
    *(Run("simple_http_infer_client.py", ("--response-compression-algorithm", name)) for name in ("gzip", "deflate")),
    Run("simple_http_aio_infer_client.py", ("--request-compression-algorithm", "gzip")),
    Run("simple_http_infer_client.py", ("-H", "test:1")),
    *(Run("simple_grpc_infer_client.py", ("-C", name)) for name in ("gzip", "deflate")),
    Run("simple_grpc_infer_client.py", ("-t", "10")),
    Run("reuse_infer_objects_client.py", ("-i", "grpc"), grpc=True),
    Run("image_client.py", ("-i", "grpc", *CLASSES, IMAGE), grpc=True),
    Run("image_client.py", ("-i", "grpc", "--streaming", "-a", *CLASSES, IMAGE), grpc=True),
    Run("image_client.py", ("-a", *CLASSES, IMAGE)),
    *(Run(f"simple_{name}.py", ("-d",)) for name in (
        "grpc_aio_sequence_stream_infer_client", "grpc_sequence_stream_infer_client",
        "grpc_sequence_sync_infer_client", "http_sequence_sync_infer_client")),
)  # fmt: skip
ARGUMENTS: Final = {
    "image_client.py": (*CLASSES, IMAGE),
    "grpc_image_client.py": (*CLASSES, IMAGE),
    "ensemble_image_client.py": ("-c", "2", IMAGE),
}
CONTROL: Final = {"simple_http_model_control.py": 7, "simple_grpc_model_control.py": 8}
"""Programs that load and unload models, and how many models they expect there to be."""
COMPLETED: Final = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        for name in ("INPUT0", "INPUT1"):
            config.add_input({"name": name, "data_type": "TYPE_INT32", "dims": [16]})
        for name in ("OUTPUT0", "OUTPUT1"):
            config.add_output({"name": name, "data_type": "TYPE_INT32", "dims": [16]})
        return config

    def execute(self, requests):
        return [None for request in requests]
"""
"""Of a model whose configuration may be replaced by one that says less, as those of other backends."""
MODULES: Final = {"cudashm": "cuda", "image_client.py": "attrdict"}  # what a program imports beside tritonclient


def runs() -> list[Run]:
    """Every program of the folder, and the further ways to run some of them."""
    if not FOLDER:
        return []
    names = sorted(path.name for path in Path(FOLDER).glob("*.py") if path.name not in FIXED_PORT)
    once = [Run(name, ARGUMENTS.get(name, ()), grpc="grpc" in name) for name in names if name not in CONTROL]
    return once + [run._replace(grpc=run.grpc or "grpc" in run.program) for run in FURTHER if run.program in names]


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    """One server of all models that the programs ask, as far as they are served."""
    models = repository(tmp_path_factory.mktemp("models"), SERVED)
    with tempfile.TemporaryDirectory(prefix="tf") as scratch:
        server = Server(models, ("--allow-client-shm=true", "--model-control-mode=none"), Path(scratch)).ready()
        yield server
        server.end()
        server.process.stdout.close()


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> Path:
    """A bright image."""
    from PIL import Image

    path = tmp_path_factory.mktemp("image") / "bright.png"
    Image.fromarray(np.full((30, 20, 3), 250, np.uint8)).save(path)
    return path


def execute(server: Server, run: Run, *more: str) -> str:
    """Run a program; its output, or a failure with it."""
    grpc = server.said(lambda r: r.get("event") == "ready", "ready")["grpc_port"]
    url = f"localhost:{grpc if run.grpc else server.port}"
    done = subprocess.run(
        [sys.executable, str(Path(FOLDER) / run.program), "-u", url, *run.arguments, *more],
        cwd=server.scratch,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=PROGRAM_SECONDS_MAX,
    )
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stdout[-4000:]}"
    return done.stdout


def require(program: str) -> None:
    """Skip what imports modules that are not here."""
    for part, module in MODULES.items():
        if part in program and program != "grpc_image_client.py" and importlib.util.find_spec(module) is None:
            pytest.skip(f"{program} imports {module}, which is not installed")


@pytest.mark.skipif(not FOLDER, reason="TISFAST_CLIENT_EXAMPLES names no folder with Triton's example clients")
def test_the_folder_has_the_programs() -> None:
    assert {run.program for run in FURTHER} <= {path.name for path in Path(FOLDER).iterdir()}


@pytest.mark.parametrize("run", runs(), ids=lambda run: " ".join((run.program, *run.arguments)))
def test_the_program_ends_well(run: Run, server: Server, image: Path) -> None:
    require(run.program)
    execute(server, run._replace(arguments=tuple(str(image) if each == IMAGE else each for each in run.arguments)))
    assert server.process.poll() is None


@pytest.mark.parametrize("program", CONTROL if FOLDER else [])
def test_a_program_that_controls_models_ends_well(program: str, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    others = [name for name in SERVED if name != "simple"]
    repository(folder, others[: CONTROL[program] - 1])
    shutil.copytree(HERE / "simple", folder / "simple")
    (folder / "simple/1/model.py").write_text(COMPLETED)
    with tempfile.TemporaryDirectory(prefix="tf") as scratch:
        server = Server(folder, ("--model-control-mode=explicit",), Path(scratch)).ready()
        try:
            assert "PASS: model control" in execute(server, Run(program, grpc="grpc" in program))
            assert server.process.poll() is None
        finally:
            server.end()
            server.process.stdout.close()
