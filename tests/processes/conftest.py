"""Processes, and supervisors of models that start them."""

from tests.model_fixtures import loop, registry, run, supervise, write  # noqa: F401 - fixtures
from tests.processes.streams import streams  # noqa: F401 - a fixture
