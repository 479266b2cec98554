"""What the programs of all clients share.  Standard library only: each runs in an environment of its own."""

import contextlib
import sys
import time

WAIT_SECONDS_MAX = 60
LOOK_SECONDS = 0.05
UNKNOWN = "Request for unknown model: 'nobody' is not found"
WRONG_SHAPE = "unexpected shape for input 'A'"


def addresses():
    """HOST:PORT of HTTP, of gRPC and of the metrics."""
    return sys.argv[1:4]


def arguments():
    """What follows the addresses."""
    return sys.argv[4:]


def waiting():
    """Tell the test that the model was looked for and is not there; it is loaded then."""
    print("waiting", flush=True)


def wait(ready):
    """Look again and again until `ready()`, as people's scripts do.  The first look must say no, and not raise."""
    assert ready() is False
    waiting()
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not ready():
        assert time.monotonic() < deadline, f"not ready within {WAIT_SECONDS_MAX} s"
        time.sleep(LOOK_SECONDS)


@contextlib.contextmanager
def refused(kind, text):
    """The block must raise `kind`, with `text` in it."""
    try:
        yield
    except kind as e:
        assert text in str(e), f"{type(e).__name__}: {e}"
        return
    raise AssertionError(f"nothing was raised, where {text!r} is due")
