"""Steps that do what frameworks do at their worst."""

from __future__ import annotations

import os
import signal
import sys
import threading


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
