"""The environment for a second attempt to load a model whose own lacks what its backend needs.  Layer 4 (models)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tisfast.environments.backend_requirements import environment_of
from tisfast.processes.worker import WorkerFailed

if TYPE_CHECKING:
    from tisfast.config.environments import EnvironmentSettings
    from tisfast.environments.environment import Environment
    from tisfast.repo.scan_result import ModelSource


def backend_environment(settings: EnvironmentSettings, model: ModelSource, error: WorkerFailed) -> Environment | None:
    """The backend's environment, for a model that failed to load in the server's own; None where that is no remedy.

    A model that names an environment lacks it there by its owner's choice.  Raises WorkerFailed with what would help
    where it would, and nobody has asked for it; ConfigError for requirements that cannot be read.
    """
    backend = model.config.backends.named(model.config.backend)
    if not error.missing or model.environment is not None or backend is None:
        return None
    environment = environment_of(backend)
    own = model.config.resources.backend_environment
    if environment is None or (settings.for_backends if own is None else own):
        return environment
    raise WorkerFailed(
        f"{error.message}, or start the server with --backend-environments=auto, which installs {environment} once for "
        "all models of the backend",
        traceback=error.traceback, kind=error.kind, missing=error.missing,
    )  # fmt: skip
