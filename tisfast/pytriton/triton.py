"""Servers of this program, Triton, and servers that it joins, RemoteTriton."""

from __future__ import annotations

import functools
import logging
import os
import pathlib
import shutil
import time
from collections.abc import Sequence
from typing import Any, Final

from tisfast.errors import BadRequest, TisError
from tisfast.local_server import LocalServer
from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.client.exceptions import PyTritonClientError
from tisfast.pytriton.constants import DEFAULT_TRITON_STARTUP_TIMEOUT_S
from tisfast.pytriton.exceptions import (
    PyTritonInvalidOperationError,
    PyTritonRuntimeError,
    PyTritonValidationError,
)
from tisfast.pytriton.models import BoundModel
from tisfast.pytriton.process_models import Reports, write_model
from tisfast.pytriton.remote import RemoteTriton
from tisfast.pytriton.server_config import (
    DEFAULT_PROTECTED_ENDPOINTS,
    TRITON_ACCESS_HEADER,
    VALID_TRITON_ENDPOINTS,
    DefaultTritonLifecyclePolicy,
    TritonConfig,
    TritonLifecyclePolicy,
    TritonSecurityConfig,
    VertextAILifecyclePolicy,
    flags_of,
    in_fields,
    merged,
)
from tisfast.pytriton.triton_base import (
    MONITORING_PERIOD_S,
    WAIT_FORM_MODEL_TIMEOUT_S,
    TritonBase,
    warn_of_verbose_logs,
)
from tisfast.pytriton.utils.workspace import Workspace

__all__ = [
    "DEFAULT_PROTECTED_ENDPOINTS",
    "MONITORING_PERIOD_S",
    "TRITON_ACCESS_HEADER",
    "VALID_TRITON_ENDPOINTS",
    "WAIT_FORM_MODEL_TIMEOUT_S",
    "DefaultTritonLifecyclePolicy",
    "RemoteTriton",
    "Triton",
    "TritonBase",
    "TritonConfig",
    "TritonLifecyclePolicy",
    "TritonSecurityConfig",
    "VertextAILifecyclePolicy",
]

log = logging.getLogger("tisfast.pytriton")

INITIAL_BACKEND_SHM_SIZE: Final = 4 * 1024 * 1024
GROWTH_BACKEND_SHM_SIZE: Final = 1024 * 1024
TRITONSERVER_DIST_DIR: Final = pathlib.Path(__file__).parent
"""For programs that name them: the server sizes its memory itself, and there is no tritonserver."""
_SECRET: Final = ("http_restricted_api", "grpc_restricted_protocol")
EXIT_TIMEOUT_S: Final = 20
"""Of running inferences at `stop`, where exit_timeout_secs says nothing."""
STOP_MARGIN_S: Final = 3
"""What the server has for its own end beside that, before it is killed."""
_PRIVATE_FLAGS: Final = "private.flags"


class Triton(TritonBase):
    """A server process of this program, which serves callables of this program."""

    def __init__(
        self,
        *,
        config: TritonConfig | None = None,
        workspace: Workspace | str | pathlib.Path | None = None,
        triton_lifecycle_policy: TritonLifecyclePolicy | None = None,
        security_config: TritonSecurityConfig | None = None,
    ) -> None:
        """Starts nothing, but makes the workspace.

        config: what it does not say, the environment may; else it is the server's default.  workspace: a folder that
        does not exist yet.  security_config: by default calls that change or tell what goes on need a token.
        """
        self._config = merged(config)
        self._policy = triton_lifecycle_policy or (
            VertextAILifecyclePolicy if config is not None and config.allow_vertex_ai else DefaultTritonLifecyclePolicy
        )
        self._security = security_config or TritonSecurityConfig()
        self._server: LocalServer | None = None
        self._reports: Reports | None = None  # of workers, while there are some
        super().__init__(workspace)

    def __enter__(self) -> Triton:
        """Start the server, unless the policy says that `run` does."""
        if self._policy.launch_triton_on_startup:
            self.connect()
        return self

    def run(self) -> None:
        """Start the server and load all models; returns when they can be asked.  Does nothing when it runs."""
        self.connect()

    def serve(self, monitoring_period_s: float = MONITORING_PERIOD_S) -> None:
        """Run and wait: until `stop`, Ctrl-C, or the end of the server or of a model; then everything is stopped."""
        super().serve(monitoring_period_s)

    @property
    def http_address(self) -> str | None:
        """HOST:PORT while it runs, with the port that the system chose for a 0.  Not in PyTriton."""
        return self._server.http_address if self._server is not None else None

    @property
    def grpc_address(self) -> str | None:
        """As http_address."""
        return self._server.grpc_address if self._server is not None else None

    @property
    def metrics_address(self) -> str | None:
        """As http_address."""
        return self._server.metrics_address if self._server is not None else None

    def get_access_token(self) -> str | None:
        """The token for restricted calls; None where nothing is restricted."""
        return self._security.access_token

    # ---- of TritonBase

    def _join(self) -> Any:
        server = self._server
        if server is None or not server.alive():
            began = time.monotonic()
            server = self._server = LocalServer(self._flags(), own_models=True)
            try:
                server.start(DEFAULT_TRITON_STARTUP_TIMEOUT_S)
            except TisError as error:
                if time.monotonic() - began >= DEFAULT_TRITON_STARTUP_TIMEOUT_S:
                    raise TimeoutError("Triton Inference Server is not ready after timeout.") from error
                if isinstance(error, BadRequest):
                    raise PyTritonValidationError(in_fields(str(error))) from error
                raise PyTritonRuntimeError(in_fields(str(error))) from error
            warn_of_verbose_logs(self._config.log_verbose)
        return server.guest

    def _leave(self, guest: Any) -> None:
        server, self._server = self._server, None
        reports, self._reports = self._reports, None
        if reports is not None:
            reports.close()
        if server is not None:
            if guest is not None:
                warn_of_verbose_logs(self._config.log_verbose)
            server.stop(self._exit_timeout() + STOP_MARGIN_S)

    def _interrupt(self) -> None:
        server = self._server
        if server is not None:
            server.give_up()
        super()._interrupt()

    def _reached(self, guest: Any) -> bool:
        return guest is not None and self._server is not None and self._server.alive()

    def _default_trace_config(self) -> Sequence[str]:
        settings = self._config.trace_config or ()
        return settings if "mode=opentelemetry" in settings else ()

    def _load_processes(self, model: BoundModel) -> None:
        server = self._server
        assert server is not None
        folder = server.models / model.name
        if folder.exists():
            raise PyTritonInvalidOperationError(
                f"model '{model.name}' is served by processes already, with another version; give it another name"
            )
        if self._reports is None:
            self._reports = Reports(server.models, functools.partial(self._unrecoverable, self._guest))
        try:
            write_model(server.models, model)
            self._load_folder(model)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # else it could not be bound again
            raise

    def _load_folder(self, model: BoundModel) -> None:
        server = self._server
        assert server is not None
        url = f"http://{server.http_address}" if server.http_address else f"grpc://{server.grpc_address}"
        with ModelClient(url, model.name, access_token=self._security.access_token) as client:
            try:
                client.load_model()
            except PyTritonClientError as error:
                raise PyTritonRuntimeError(f"model '{model.name}' was not loaded: {error}") from error

    def _tell_connected(self) -> None:
        server = self._server
        if server is None or server.http_address is None:
            return
        for model in self._models:
            url = f"http://{server.http_address}/v2/models/{model.name}"
            log.info(
                "model %s is served:\n  ready  %s/ready\n  config %s/config\n  infer  %s/infer\n"
                "Ctrl-C (SIGINT) ends it.",
                *(model.name, url, url, url),
            )

    # ---- parts

    def _exit_timeout(self) -> int:
        """Seconds that running inferences have when it stops."""
        given = self._config.exit_timeout_secs
        return EXIT_TIMEOUT_S if given is None else given

    def _flags(self) -> list[str]:
        """Those that hold a secret lie in a file: a command line is read by everybody on the machine."""
        config = merged(self._config)
        config.exit_timeout_secs = self._exit_timeout()
        restricted = ",".join(self._security.restricted_endpoints or ())
        if restricted:
            token = f"{restricted}:{TRITON_ACCESS_HEADER}={self._security.access_token}"
            config.http_restricted_api = config.grpc_restricted_protocol = token
        private = flags_of(TritonConfig(**{name: getattr(config, name) for name in _SECRET}))
        flags = [flag for flag in flags_of(config) if flag not in private]
        flags.append("--model-control-mode=explicit")
        if config.model_repository is not None:
            flags.append("--load-model=*")
        if self._policy.local_model_store:
            flags += [f"--guest-model={each.name}" for each in self._models if not each.processes]
        if private:
            path = self._workspace.path / _PRIVATE_FLAGS
            path.parent.mkdir(parents=True, exist_ok=True)  # it runs again after a stop
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "w") as file:
                file.write("".join(f"{flag}\n" for flag in private))
            flags.append(f"--flags-file={path}")
        return flags
