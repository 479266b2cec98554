"""Steps that do what frameworks do at their worst."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from multiprocessing.shared_memory import SharedMemory


def echo(request, folder):
    return request


def crash(request, folder):
    print("terminate called after throwing an instance of 'std::bad_alloc'", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(request, folder):
    (folder / "pid").write_text(str(os.getpid()))
    threading.Event().wait()


def leave(request, folder):
    print("LICENSE EXPIRED", flush=True)
    os._exit(7)


def fail(request, folder):
    raise RuntimeError("Unsupported operator: Foo")


def leave_without_result(request, folder):
    print("nothing more to do", flush=True)
    os._exit(request["status"])


def leave_garbage(request, folder):
    (folder / "result.json").write_text(request["text"])
    os._exit(request["status"])


def stop_the_program(request, folder):
    sys.exit(0)


SLEEPING = "import os, signal; {}; print(flush=True); signal.pause()"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
"""To what asks it to end."""
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
"""


def _left():
    """Pids of a child, one in a group and one in a session of its own, and one whose parent has ended."""
    pids = []
    for first in ("0", f"{DEAF}; os.setpgrp()", f"{DEAF}; os.setsid()"):
        child = subprocess.Popen([sys.executable, "-c", SLEEPING.format(first)], stdout=subprocess.PIPE)
        child.stdout.readline()
        pids.append(child.pid)
    command = [sys.executable, "-c", PARENT, SLEEPING.format(DEAF)]
    return [*pids, int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)]


def litter(request, folder):
    """Processes, files and shared memory, which nobody cleans up.  It gives their names."""
    _, path = tempfile.mkstemp()
    found = {"pids": _left(), "file": path, "shared": SharedMemory(create=True, size=64).name}
    if "folder" in request:
        return found
    (folder / "found").write_text(repr(found))
    threading.Event().wait()


def leave_and_crash(request, folder):
    (folder / "found").write_text(repr(_left()))
    os.kill(os.getpid(), signal.SIGSEGV)


def leave_and_hang(request, folder):
    pids = _left()
    (folder / "part").write_text(repr([*pids, os.getpid()]))
    (folder / "part").rename(folder / "found")
    threading.Event().wait()


def talk(request, folder):
    """Much more than is kept."""
    line = b"x" * (1 << 16) + b"\n"
    for _ in range(1 << 10):
        os.write(1, line)
    print("LICENSE EXPIRED", flush=True)
    os._exit(7)


def loaded(request, folder):
    """The modules that files of steps need."""
    for each in request["files"]:
        importlib.import_module(each)
    return {"modules": list(sys.modules)}
