"""A GPU, or a stand-in for one; and clients' processes with memory on it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tritonclient.grpc
import tritonclient.http

from tests.gpu.backend_calls import Caller
from tests.gpu.gpu_models import COPIES, FLOATS, GPU, MADE, NBYTES, STAYS, WHERE, ensemble, register
from tests.gpu.hardware import Hardware
from tests.gpu.stand_in_driver import StandIn, build
from tests.system.conftest import connect, directory, join, serve, serve_guests, write_model  # noqa: F401 - fixtures
from tests.system.tensorrt_plans import STAND_IN, environment, parameters
from tisfast.native.cuda import Cuda
from tisfast.native.cuda_driver import CudaMissing

READS = WHERE.replace('"A"', '"B"')


def real_gpus() -> Cuda | str:
    """This machine's GPUs, or why it has none."""
    try:
        return Cuda()
    except CudaMissing as error:
        return str(error)


@pytest.fixture(scope="session")
def stand_in_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in for the driver, built."""
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def stand_in(stand_in_library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """GPUs of a stand-in, for this process and those that it starts, also where there is a real GPU.

    Nothing of them is used after it was freed, unless a test says so.
    """
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_in_library.parent))
    monkeypatch.setenv("TISFAST_STAND_IN", str(stand_in_library.parent))
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TRITON_SERVER_CPU_ONLY"):
        monkeypatch.delenv(name, raising=False)
    driver = StandIn(stand_in_library)
    driver.reset()
    yield driver
    driver.reset()


@pytest.fixture
def cuda(request: pytest.FixtureRequest) -> Cuda:
    """This machine's GPUs, or the stand-in's."""
    found = real_gpus()
    return Cuda(str(request.getfixturevalue("stand_in").library)) if isinstance(found, str) else found


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> Hardware | StandIn:
    """This machine's GPUs, or the stand-in's, for tests that order no faults."""
    return request.getfixturevalue("stand_in") if isinstance(real_gpus(), str) else Hardware()


@pytest.fixture
def real_cuda() -> Cuda:
    """This machine's GPUs, for what a stand-in cannot show."""
    found = real_gpus()
    if isinstance(found, str):
        pytest.skip(f"no GPU: {found}")
    return found


class Exported:
    """Device memory of another process."""

    def __init__(self, nbytes: int) -> None:
        script = str(Path(__file__).parent / "exporter.py")
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([sys.executable, script, str(nbytes)], stdin=pipe, stdout=pipe, text=True)
        self.nbytes = nbytes
        self.handle = bytes.fromhex(self._line())

    def write(self, data: bytes) -> None:
        """Its first bytes."""
        self._tell(f"write {data.hex()}")
        assert self._line() == "ok"

    def read(self, nbytes: int) -> bytes:
        """Its first bytes."""
        self._tell(f"read {nbytes}")
        return bytes.fromhex(self._line())

    def free(self) -> None:
        """The client gives it back while others may use it."""
        self._tell("free")
        assert self._line() == "ok"

    def end(self) -> None:
        """The client goes, and its memory with it."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def kill(self) -> None:
        """The client crashes."""
        with self._process:
            self._process.kill()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the exporting process has ended; its stderr says why"
        return line


@pytest.fixture
def export(cuda: Cuda) -> Iterator[Callable[[int], Exported]]:
    """Make device memory of so many bytes in a process of its own."""
    made: list[Exported] = []

    def start(nbytes: int) -> Exported:
        made.append(Exported(nbytes))
        return made[-1]

    yield start
    for each in made:
        each.end()


@pytest.fixture
def region(export):
    """region(client, name, values): a client's memory that is registered."""

    def make(client, name, values=None):
        memory = export(NBYTES)
        if values is not None:
            memory.write(values.tobytes())
        register(client, name, memory)
        return memory

    return make


@pytest.fixture
def started_chain(stand_in, serve, write_model, connect):  # noqa: F811 - fixtures
    """started_chain(second): (server, client) of the ensemble m of m0, which makes a tensor on the GPU, and m1."""

    def start(second=READS, *flags, fault=""):
        write_model("m0", MADE, FLOATS + GPU)
        write_model("m1", second, FLOATS + GPU + STAYS)
        folder = write_model("m", "", ensemble("B", ("A", "x"), ("x", "B")))
        (folder / "1/model.py").unlink()
        server = serve(*flags, fault=fault).ready()
        return server, connect(server, tritonclient.http)

    return start


@pytest.fixture
def write_plan(tmp_path):
    """write_plan(name, plan, config): a model in the test's repository."""
    packages = environment(tmp_path / "with_tensorrt", STAND_IN)

    def written(name, content, config=""):
        folder = tmp_path / "models" / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.plan").write_bytes(content)
        on_gpu = "" if "instance_group" in config else GPU
        said = f'backend: "tensorrt"\n{on_gpu}\n{config}\n{parameters(EXECUTION_ENV_PATH=str(packages))}'
        (folder.parent / "config.pbtxt").write_text(said)

    return written


@pytest.fixture
def caller(stand_in, serve, connect, export):  # noqa: F811 - fixtures
    """caller(module): a Caller of a server that is started now; `copied()` what was copied since the last look."""

    def start(module=tritonclient.grpc):
        server = serve("--allow-client-shm=true").ready()
        found = Caller(connect(server, module), module, export)
        found.server, found.before = server, stand_in.counted()

        def copied():
            before, found.before = found.before, stand_in.counted()
            return [found.before[name] - before[name] for name in COPIES]

        found.copied = copied
        return found

    return start
