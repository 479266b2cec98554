"""Starts of a server whose model has a packed environment of 2 GB: unpacked, found again, and found though touched.

    python -m perf.macro.environments                      # needs 6 GB in the temporary folder
    python -m perf.macro.environments --gigabytes 0.2

The environment is this Python with its numpy, and files of random bytes up to the size; packed as conda-pack does, but
not compressed.  A start is from the process's to the first 200 of the health route.  Each is followed by a request,
whose answer says that the model ran in the environment.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import random
import shutil
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from perf.compare import complaining
from perf.oracle.server import Server

GIGABYTES: Final = 2.0
FILE_BYTES: Final = 34_000
"""Of each file of random bytes: an environment of 2 GB has some 60,000."""
RUNS: Final = 5
SECONDS_MAX: Final = 1.0
"""Of a start that finds the environment."""
LEFT_OUT: Final = {"test", "tests", "site-packages", "__pycache__", "idlelib", "tkinter"}
MODEL: Final = """
import sys
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        told = {"prefix": sys.prefix, "numpy": np.__file__}
        return [pb_utils.InferenceResponse([], parameters=told) for _ in requests]
"""
CONFIG: Final = """
backend: "python"
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
parameters { key: "EXECUTION_ENV_PATH" value { string_value: "%s" } }
"""
BODY: Final = json.dumps({"inputs": [{"name": "A", "datatype": "FP32", "shape": [1], "data": [1]}]})


def _python_files() -> Iterator[tuple[str, Path]]:
    """This interpreter, its standard library and its numpy, by their names in an environment."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = Path(sys.base_prefix)
    yield f"bin/{version}", base / "bin" / version
    for library in (base / "lib").glob("libpython3*.so*"):
        yield f"lib/{library.name}", library
    yield from _below(base / "lib" / version, f"lib/{version}", LEFT_OUT)
    packages = Path(sysconfig.get_path("platlib"))
    for name in ("numpy", "numpy.libs"):
        yield from _below(packages / name, f"lib/{version}/site-packages/{name}", {"__pycache__"})


def _below(folder: Path, prefix: str, left_out: set[str]) -> Iterator[tuple[str, Path]]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in left_out]
        for name in names:
            path = Path(where, name)
            yield f"{prefix}/{path.relative_to(folder)}", path


def pack(archive: Path, nbytes: int) -> tuple[int, int]:
    """Write the environment; its bytes and its files."""
    size = files = 0
    chance = random.Random(0)
    with tarfile.open(archive, "w") as tar:
        name = ""
        for name, path in _python_files():
            tar.add(path, name, recursive=False)
            size, files = size + path.stat().st_size, files + 1
        link = tarfile.TarInfo("bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, f"python{sys.version_info.major}.{sys.version_info.minor}"
        tar.addfile(link)
        while size < nbytes:
            entry = tarfile.TarInfo(f"share/data/{files // 100}/{files}")
            entry.size = FILE_BYTES
            tar.addfile(entry, io.BytesIO(chance.randbytes(FILE_BYTES)))
            size, files = size + FILE_BYTES, files + 1
    return size, files


def start_seconds(repository: Path, cache: Path) -> float:
    """One start, from nothing to ready, of a server that then answers from the environment."""
    with Server("tisfast", [repository], [f"--environment-cache-dir={cache}"]) as server:
        connection = http.client.HTTPConnection("localhost", server.http, timeout=30)
        connection.request("POST", "/v2/models/m/infer", BODY)
        answer = json.loads(connection.getresponse().read())
        connection.close()
        if not all(text.startswith(str(cache)) for text in answer["parameters"].values()):
            raise RuntimeError(f"the model does not run in its environment: {answer}")
        return server.start_seconds


def _measure(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        archive, repository, cache = Path(scratch, "env.tar"), Path(scratch, "models"), Path(scratch, "cache")
        size, files = pack(archive, int(options.gigabytes * 1e9))
        (repository / "m" / "1").mkdir(parents=True)
        (repository / "m" / "1" / "model.py").write_text(MODEL)
        (repository / "m" / "config.pbtxt").write_text(CONFIG % archive)
        print(f"an environment of {size / 1e9:.2f} GB in {files} files", flush=True)
        print(f"unpacked         {start_seconds(repository, cache):6.2f} s", flush=True)
        found = sorted(start_seconds(repository, cache) for _ in range(options.runs))
        middle = found[len(found) // 2]
        print(f"found            {middle:6.2f} s, at most {found[-1]:.2f} (bar {SECONDS_MAX})", flush=True)
        os.utime(archive)
        print(f"touched          {start_seconds(repository, cache):6.2f} s: the archive is read", flush=True)
        shutil.copy(archive, Path(scratch, "copy.tar"))
        os.replace(Path(scratch, "copy.tar"), archive)
        print(f"replaced by copy {start_seconds(repository, cache):6.2f} s: the same", flush=True)
    return int(middle > SECONDS_MAX)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=GIGABYTES)
    parser.add_argument("--runs", type=int, default=RUNS)
    return parser.parse_args()


if __name__ == "__main__":
    _chosen = _options()
    sys.exit(complaining(lambda: _measure(_chosen)))
