"""Steps that do what frameworks do at their worst."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from multiprocessing.shared_memory import SharedMemory


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


def litter(request, folder):
    """Processes, files and shared memory, which nobody cleans up.  It gives their names."""
    sleeping = "import os, signal; {}; print(flush=True); signal.pause()"
    pids = []
    for first in ("0", "signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setpgrp()"):
        child = subprocess.Popen([sys.executable, "-c", sleeping.format(first)], stdout=subprocess.PIPE)
        child.stdout.readline()
        pids.append(child.pid)
    _, path = tempfile.mkstemp()
    found = {"pids": pids, "file": path, "shared": SharedMemory(create=True, size=64).name}
    if "folder" in request:
        return found
    (folder / "found").write_text(repr(found))
    threading.Event().wait()
