"""Of all tests.  No clock decides whether one passes: these machines are shared, and examples take what they take."""

import logging

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")


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
