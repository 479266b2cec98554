"""The fork server of one environment: warm imports, no user code, one thread (WIRE.md, "Life of an instance", 1 and 2).

It waits on its socket and on SIGCHLD.  When the server goes (end of file, or the parent-death signal), it kills its
children, removes the control directory and ends.
"""

import array
import contextlib
import fcntl
import gc
import importlib
import os
import platform
import select
import signal
import socket
import sys
import termios

from tisfast_worker import limits, msgpack, process_setup
from tisfast_worker.backend import keep_quiet
from tisfast_worker.failure import WireError, last_line
from tisfast_worker.instance import ForkOrder
from tisfast_worker.native import TF_ABI_VERSION, Library
from tisfast_worker.nursery_warm_up import rehearse
from tisfast_worker.serve import WORKERS_DIR, backend_module

LIBRARY = os.path.join(WORKERS_DIR, "libtisfast_shm.so")
_FORK_DESCRIPTORS = 9


class Nursery:
    """Forks instances on order.  `run` returns a ForkOrder in a forked child, and None when all is over."""

    def __init__(self, fd, parent_pid, imports=""):
        """`fd`: the SOCK_SEQPACKET socket to the server, whose process is `parent_pid`.

        imports: a module that all instances use, "" for none.
        """
        self._imports = imports
        self.pid = os.getpid()
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(True)
        self.library = Library(LIBRARY)
        self._children = {}  # pid: id
        self._folders = set()  # control directories
        self._ending = False
        self._wake_read, self._wake_write = os.pipe()
        self._parent_pid = parent_pid
        self._blas = ()

    def run(self):
        """Serve until the server goes."""
        self._settle()
        numpy, reason = _import_numpy()
        unshared = _import_for_all(self._imports)
        # What nearly every instance imports, once for all of them.
        backend = backend_module("python")
        import triton_python_backend_utils  # noqa: F401, PLC0415

        process_setup.keep_memory_warm()  # inherited
        self._blas = process_setup.thread_setters()
        failed = unshared or _rehearsed(self.library, backend.Backend)
        gc.collect()
        gc.freeze()  # a collection in a child would write to, and so copy, every page of what is shared
        self._send(_hello(numpy, reason))
        if failed:
            print(failed, file=sys.stderr, flush=True)
        waited = select.poll()  # not `select`: a server with 1024 open files gives the socket a number beyond its range
        for fd in (self._socket.fileno(), self._wake_read):
            waited.register(fd, select.POLLIN)
        while not self._ending:
            readable = [fd for fd, _ in waited.poll()]
            if self._wake_read in readable:
                os.read(self._wake_read, 4096)
            self._reap()
            if self._socket.fileno() in readable:
                order = self._receive()
                if order is not None:
                    return order
        self._end()
        return None

    def _settle(self):
        """Own process group, signals, no foreign descriptors; a dead parent ends us through SIGTERM, so we clean up.

        A group keeps the terminal's signals away as well as a session would.  But sessions compete for the cores as
        wholes (autogroup): in one of our own, yielding would not give the core to the server, nor the server's to us.
        """
        if os.getpgrp() != self.pid:
            os.setpgid(0, 0)
        for number in (signal.SIGTTIN, signal.SIGTTOU):  # to instances, too: we are a background group
            signal.signal(number, signal.SIG_IGN)
        _leave_terminal()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})  # the server has blocked them
        _close_foreign({0, 1, 2, self._socket.fileno(), self._wake_read, self._wake_write})
        try:
            self.library.die_with_parent(signal.SIGTERM, self._parent_pid)
        except ProcessLookupError:
            self._ending = True

    def _on_term(self, *_):
        """The kernel sends it when the server has ended.  Others send it to all processes of a server, as systemd does:
        then the server decides."""
        if os.getppid() != self._parent_pid:
            self._ending = True

    def _receive(self):
        """Handle one packet; a ForkOrder when this is now the child."""
        space = socket.CMSG_SPACE(limits.NURSERY_DESCRIPTORS_MAX * 4)
        try:
            data, ancillary, flags, _ = self._socket.recvmsg(
                limits.NURSERY_MESSAGE_BYTES_MAX, space, getattr(socket, "MSG_CMSG_CLOEXEC", 0)
            )
        except ConnectionResetError:  # the server went with packets of ours unread
            data, ancillary, flags = b"", [], 0
        fds = _descriptors(ancillary)
        if not data:
            self._ending = True
            return None
        message = {}
        try:
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                raise WireError(f"a packet of more than {limits.NURSERY_MESSAGE_BYTES_MAX} bytes or descriptors")
            message = msgpack.decode(data)
            order = _order(message, fds)
            order.blas = self._blas
            return self._fork(order, fds)
        except (msgpack.MsgpackError, WireError, OSError) as error:
            reply = {
                "t": "fork_failed",
                "id": message.get("id", "") if isinstance(message, dict) else "",
                "error": str(error),
            }
            self._send(reply)
        finally:
            if os.getpid() == self.pid:
                for fd in fds:
                    os.close(fd)
        return None

    def _fork(self, order, fds):
        self._folders.add(os.path.dirname(order.endpoint[len("ipc://") :]))
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            _close_foreign({0, 1, 2, *fds})
            return order
        self._children[pid] = order.id
        try:
            pidfd = self.library.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)  # the server will never know it; `_reap` takes what is left
            raise
        try:
            self._send({"t": "forked", "id": order.id, "pid": pid}, pidfd)
        finally:
            os.close(pidfd)
        return None

    def _reap(self):
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._send({"t": "exited", "id": self._children.pop(pid, ""), "pid": pid, "status": status})

    def _send(self, message, fd=None):
        """A server that does not read any more has gone: end."""
        rights = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        try:
            self._socket.sendmsg([msgpack.encode(message)], rights)
        except OSError:
            self._ending = True

    def _end(self):
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is still theirs
        for pid in self._children:
            os.waitpid(pid, 0)
        for folder in self._folders:
            _remove_directory(folder)


def _leave_terminal():
    """Models have no terminal: one that asks for a password there would be stopped, or take the server's keys."""
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return  # there is none
    try:
        fcntl.ioctl(fd, termios.TIOCNOTTY)
    except OSError:
        pass  # it went in between
    finally:
        os.close(fd)


def _order(message, fds):
    if not isinstance(message, dict) or message.get("t") != "fork":
        raise WireError(f"expected a fork message, got {repr(message)[:100]}")
    if len(fds) != _FORK_DESCRIPTORS:
        raise WireError(f"a fork order needs {_FORK_DESCRIPTORS} descriptors, got {len(fds)}")
    try:
        return ForkOrder(message, fds)
    except KeyError as error:
        raise WireError(f"the fork order lacks {error}") from None


def _descriptors(ancillary):
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return list(fds)


def _close_foreign(keep):
    """Close every descriptor that is not in `keep`."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd not in keep:
            with contextlib.suppress(OSError):  # the listing's own descriptor, closed by now
                os.close(fd)


def _import_numpy():
    """(version or None, why not): a broken numpy is reported, and only models that need it will fail."""
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", str(limits.BLAS_SPIN_TICKS_LOG2))  # read when it is loaded
    try:
        with _single_threaded():
            import numpy  # noqa: PLC0415
    except ModuleNotFoundError:
        return None, ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
    return numpy.__version__, ""


def _import_for_all(name):
    """Why not, or "".  What is not there, the instance that needs it will tell, and how to get it."""
    # Read when a framework loads its OpenMP: threads that spin for their next work take the server's cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        with _single_threaded():
            if name:
                keep_quiet(name)
                importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = f"{name}.".startswith(f"{error.name}.")
        return "" if missing else f"{name} cannot be imported: {last_line(error)}"
    except Exception as error:
        return f"{name} cannot be imported: {last_line(error)}"
    return ""


@contextlib.contextmanager
def _single_threaded():
    """Threads do not survive a fork: what is imported must start none here (process_setup.py sets the number later)."""
    said = {name: os.environ.get(name) for name in process_setup.THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(said, "1"))
    try:
        yield
    finally:
        for name, value in said.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _rehearsed(library, backend_class):
    """Why not, or "": an environment in which the rehearsal cannot be held serves all the same, with slower loads."""
    try:
        rehearse(library, backend_class)
    except Exception as error:
        return f"instances will load more slowly, as the rehearsal failed: {last_line(error)}"
    return ""


def _hello(numpy, reason):
    hello = {"t": "nursery", "pid": os.getpid(), "python": platform.python_version(), "abi": TF_ABI_VERSION}
    hello.update({"numpy": numpy, "threads": len(os.listdir("/proc/self/task"))})
    if reason:
        hello["numpy_error"] = reason
    return hello


def _remove_directory(folder):
    """Remove a control directory: its sockets, load calls' files, and the folder when nothing else is in it."""
    overrides = os.path.join(folder, "overrides")
    if os.path.isdir(overrides):
        import shutil  # noqa: PLC0415 - it imports compression, which instances need not inherit

        shutil.rmtree(overrides, ignore_errors=True)
    try:
        for entry in os.scandir(folder):
            if not entry.is_dir(follow_symlinks=False) and not entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)
        os.rmdir(folder)
    except OSError:
        pass  # the server, or another nursery, was faster; or somebody keeps files there, which are theirs
