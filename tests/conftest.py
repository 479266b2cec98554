"""Of all tests.  No clock decides whether one passes: these machines are shared, and examples take what they take."""

import gc
import logging
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")

# nohup has it ignored by all that it starts, so that who waits for what the signal does would wait without end.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


FILES_MAX = 500
"""Open in one process of tests: `select` ends at 1024, and a test may open some hundreds."""


def first_free() -> int:
    """The number that the next file gets."""
    found = os.open(os.devnull, os.O_RDONLY)
    os.close(found)
    return found


@pytest.fixture(autouse=True)
def few_files() -> Iterator[None]:
    """What a test leaves open does not hinder the tests behind it."""
    yield
    if first_free() > FILES_MAX // 2:
        gc.collect()  # it counts objects, and knows nothing of the files that those in cycles hold open
        assert first_free() <= FILES_MAX, "a test of this process leaves files open"


@pytest.fixture
def own_log():
    """For a test that configures the server's log: those after it in the same process find it as it was."""
    logger = logging.getLogger("tisfast")
    kept = logger.propagate, logger.level, list(logger.handlers)
    yield
    for handler in [each for each in logger.handlers if each not in kept[2]]:
        logger.removeHandler(handler)
        handler.close()
    logger.propagate = kept[0]
    logger.setLevel(kept[1])
