"""An installed tisfast, used from outside: no source tree on its path, an empty home, another working folder."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

SECONDS_MAX: Final = 300  # of a command, under QEMU on a busy machine, too: no bar of speed
SERVE_FLAGS: Final = (
    "--log-format=json",
    "--http-address=127.0.0.1",
    "--http-port=0",
    "--grpc-port=0",
    "--metrics-port=0",
)
_SIZES: Final = """
import importlib.metadata, json
sizes = {}
for found in importlib.metadata.distributions():
    files = (found.locate_file(file) for file in found.files or [] if file.suffix != ".pyc")
    sizes[f"{found.name} {found.version}"] = sum(file.stat().st_size for file in files if file.is_file())
print(json.dumps({name: size for name, size in sizes.items() if name.split()[0] not in ("pip", "setuptools")}))
"""
_HTTP2_LIBRARIES: Final = """
import json
import tisfast.native.http2
print(json.dumps(sorted({line.split()[-1] for line in open("/proc/self/maps") if "libnghttp2" in line})))
"""


HELP_IMPORTS: Final = """
import sys
before = set(sys.modules)
from tisfast.cli import main
main(["--help"])
new = set(sys.modules) - before
known = {*sys.stdlib_module_names, "tisfast"}
print("\\n", len(new), *sorted(name for name in new if name.partition(".")[0] not in known))
"""
"""Prints in its last line how many modules `tisfast --help` imports, and which of them are of other packages."""
_HELP_MODULES_MAX: Final = 110  # 77 with CPython 3.11


def imports_little(said: str) -> bool:
    """Whether what HELP_IMPORTS printed are few modules, of the standard library of that Python and of tisfast."""
    count, *foreign = said.splitlines()[-1].split()
    return int(count) <= _HELP_MODULES_MAX and not foreign


class Installed:
    """tisfast in a virtual environment."""

    def __init__(self, venv: Path, home: Path, models: Path) -> None:
        """models: a repository that has `add_sub`."""
        home.mkdir()
        self.models = models
        self._bin, self._home = venv / "bin", home
        self._environ = {"PATH": f"{self._bin}:{os.defpath}", "HOME": str(home), "LANG": "C.UTF-8"}

    def run(self, *command: str) -> str:
        """Output of a program of the environment.  Fails when it fails, or says anything on stderr."""
        done = self._start(*command)
        out, errors = done.communicate(timeout=SECONDS_MAX)
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{out}{errors}"
        assert not errors, f"{command} said:\n{errors}"
        return out

    def sizes(self) -> dict[str, int]:
        """Bytes of each installed package as it was shipped (bytecode is made later), largest first."""
        sizes: dict[str, int] = json.loads(self.run("python", "-c", _SIZES))
        return dict(sorted(sizes.items(), key=lambda item: -item[1]))

    def http2_libraries(self) -> list[Path]:
        """The files of nghttp2 that a process of the gRPC front has mapped."""
        return [Path(path) for path in json.loads(self.run("python", "-c", _HTTP2_LIBRARIES))]

    def serves(self) -> None:
        """Serve, answer an inference, end on SIGTERM with code 0."""
        server = self._start("tisfast", "serve", f"--model-repository={self.models}", *SERVE_FLAGS)
        errors = answers(server, lambda: server.send_signal(signal.SIGTERM))
        assert not errors, f"tisfast serve said on stderr:\n{errors}"

    def _start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self._bin / command[0]), *command[1:]],
            cwd=self._home,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def answers(server: subprocess.Popen[str], stop: Callable[[], None]) -> str:
    """Wait until a server with SERVE_FLAGS is ready, ask `add_sub`, and stop it; it is to end with code 0.

    Returns what it said on stderr.
    """
    try:
        said, port = _until_ready(server)
        _ask(port)
        stop()
        rest, errors = server.communicate(timeout=SECONDS_MAX)
        assert server.returncode == 0, f"the server ended with {server.returncode}:\n{said}{rest}{errors or ''}"
        return errors or ""
    finally:
        server.kill()
        server.communicate()


def _until_ready(server: subprocess.Popen[str]) -> tuple[str, int]:
    assert server.stdout is not None
    said = ""
    for line in server.stdout:
        said += line
        if not line.startswith("{"):  # what make says of the set-up, which takes minutes
            print(line, end="", flush=True)
            continue
        record = json.loads(line)
        if record.get("event") == "ready":
            return said, int(record["http_port"])
    raise AssertionError(f"the server ended before it was ready:\n{said}{server.communicate()[1] or ''}")


def _ask(port: int) -> None:
    sent = {"INPUT0": [1, 2, 3, 4], "INPUT1": [1, 1, 1, 1]}
    tensors = [{"name": name, "shape": [4], "datatype": "FP32", "data": data} for name, data in sent.items()]
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)
    client.request("POST", "/v2/models/add_sub/infer", json.dumps({"inputs": tensors}))
    answer = client.getresponse()
    outputs = {output["name"]: output["data"] for output in json.loads(answer.read())["outputs"]}
    client.close()
    assert outputs == {"OUTPUT0": [2, 3, 4, 5], "OUTPUT1": [0, 1, 2, 3]}, (answer.status, outputs)
