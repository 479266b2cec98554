"""Supervisors of models, with real workers."""

from tests.model_fixtures import loop, registry, run, supervise, write  # noqa: F401 - fixtures
