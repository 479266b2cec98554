"""A user without rights, in a read-only root with a small /tmp, no /dev/shm, no HOME and Docker's seccomp filter.

Root makes such a machine.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.helpers import ROOT

ASK = """
import json, signal, subprocess, sys, urllib.request
flags = [f"--{service}-port=0" for service in ("http", "grpc", "metrics")]
server = subprocess.Popen(
    [sys.executable, "-m", "tisfast", "serve", "--model-repository", sys.argv[1], "--log-format=json", *flags],
    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
for line in server.stdout:
    print(line, end="", flush=True)
    record = json.loads(line) if line.startswith("{") else {}
    if record.get("event") == "ready":
        values = [1.0] * 500_000  # more than the small /tmp holds
        body = {"inputs": [{"name": "A", "shape": [len(values)], "datatype": "FP32", "data": values}]}
        url = f"http://127.0.0.1:{record['http_port']}/v2/models/one/infer"
        answer = json.load(urllib.request.urlopen(url, json.dumps(body).encode(), timeout=60))
        print("ANSWERED", sum(answer["outputs"][0]["data"]), flush=True)
        server.send_signal(signal.SIGTERM)
print("ENDED", server.wait(60))
"""
MACHINE = """
set -eu
ip link set lo up
mount --make-rprivate /
mount --rbind / "$root"
for folder in "$root/dev/shm" "$root/var/tmp"; do
  [ ! -d "$folder" ] || mount -t tmpfs -o size=4k,mode=000,ro none "$folder"
done
mount -t tmpfs -o size=256k,mode=1777 none "$root/tmp"
for folder in $shut; do mount -t tmpfs -o size=64k,mode=755 none "$root$folder"; done
for path in $needed; do mkdir -p "$root$path"; mount --bind "$path" "$root$path"; done
cp -r "$models" "$root/tmp/models"; chmod -R a+rX "$root/tmp/models"
[ "$writable" = yes ] || mount -o remount,ro "$root/tmp"
mount -o remount,bind,ro "$root"
exec chroot "$root" setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs \\
  --bounding-set=-all --inh-caps=-all env -i PATH=/usr/bin:/bin PYTHONPATH="$tree" PYTHONDONTWRITEBYTECODE=1 \\
  "$python" "$tree/tests/system/forbidden_calls.py" "$forbidden" "$python" -c "$ask" /tmp/models
"""


def shut() -> dict[str, str]:
    """Folders that only root may enter, and what the server needs below them: root's own may hold the interpreter."""
    needed = {Path(sys.base_prefix), Path(sys.prefix), ROOT}
    closed = {path: folder for path in needed if (folder := first_closed(path))}
    below = {path for path in needed if path.is_relative_to("/tmp")}  # where the machine has a small one of its own
    paths = sorted({*closed, *below})  # the outer ones first
    return {"shut": " ".join({str(folder) for folder in closed.values()}), "needed": " ".join(map(str, paths))}


def first_closed(path: Path) -> Path | None:
    """The outermost folder above a path that other users may not enter."""
    return next((each for each in reversed(path.parents) if not each.stat().st_mode & stat.S_IXOTH), None)


@pytest.fixture
def machine(tmp_path, write_model):
    """Start a server on such a machine and ask it; returns what was said."""
    if os.geteuid() or subprocess.run(["unshare", "-mn", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs root, and namespaces")
    write_model("one")
    (tmp_path / "root").mkdir()

    def run(*, writable: bool = True, forbidden: str = "docker") -> str:
        values = {
            "root": str(tmp_path / "root"), "models": str(tmp_path / "models"), "tree": str(ROOT),
            "python": sys.executable, "ask": ASK, "writable": "yes" if writable else "no", "forbidden": forbidden,
            **shut(),
        }  # fmt: skip
        done = subprocess.run(
            ["unshare", "-mn", "sh", "-c", MACHINE], env={**os.environ, **values}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False,
        )  # fmt: skip
        return done.stdout

    return run


def test_it_serves(machine):
    said = machine()
    assert "ANSWERED 1000000.0" in said and "ENDED 0" in said, said


def test_where_nothing_can_be_written_it_says_so_in_one_sentence(machine):
    said = machine(writable=False)
    assert "there is no folder for the control socket" in said and "ENDED 1" in said, said
    assert "Traceback" not in said


@pytest.mark.parametrize("call", ["eventfd2", "memfd_create", "pidfd_open"])
def test_a_call_that_a_stricter_container_forbids_is_named_in_one_sentence(machine, call):
    said = machine(forbidden=f"docker,{call}")
    (line,) = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert f"{call}: Operation not permitted" in line["message"], said
    assert "ENDED 1" in said and "Traceback" not in said, said
