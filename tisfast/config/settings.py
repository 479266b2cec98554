"""The server's settings: one frozen slice for each component, checked when built.  Layer 2 (config).

Values only: `cli.py` reads the command line and the environment and builds these; nobody else does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from tisfast import defaults, limits
from tisfast.config.backends import BUILT_IN, Backends
from tisfast.config.cache_flags import CacheSettings
from tisfast.config.environments import EnvironmentSettings
from tisfast.config.metrics_settings import MetricsSettings
from tisfast.config.rate_limits import RateLimitSettings
from tisfast.config.resource_flags import COMPUTE_CAPABILITY_MIN
from tisfast.config.scheduler_hooks import SchedulerHooks
from tisfast.config.served_files import ServedFile
from tisfast.config.storage_settings import StorageSettings
from tisfast.config.tracing import TraceSettings
from tisfast.errors import ConfigError

PORT_MAX = 65535
INT32_MAX = 2**31 - 1
CONTROL_MODES = ("none", "explicit", "poll")


def _require(good: bool, flag: str, message: str) -> None:
    if not good:
        raise ConfigError(f"--{flag} {message}", key=flag)


@dataclass(frozen=True)
class ListenSettings:
    """One listening socket.  service: its name in messages; port 0 lets the system choose; unpaced_local: clients on
    this machine have TCP's reno (front/congestion_control.py)."""

    service: str
    flag: str
    enabled: bool
    address: str
    port: int
    reuse_port: bool = False
    unpaced_local: bool = True

    def __post_init__(self) -> None:
        """Raises ConfigError for a port that cannot be."""
        _require(0 <= self.port <= PORT_MAX, f"{self.flag}-port", f"must be 0 to {PORT_MAX}, not {self.port}")

    @property
    def where(self) -> str:
        """ADDRESS:PORT, as Triton's messages write it."""
        return f"{self.address}:{self.port}"


@dataclass(frozen=True)
class TlsSettings:
    """Files of a TLS port, in PEM; all "" for a port without TLS.  client_ca: whose certificates clients must show.

    flags: of cert, key and client_ca, for messages.
    """

    cert: str = ""
    key: str = ""
    client_ca: str = ""
    flags: tuple[str, str, str] = ("http-ssl-cert", "http-ssl-key", "http-ssl-client-ca")

    def __post_init__(self) -> None:
        """Raises ConfigError when a file is missing that the others need."""
        cert, key, client_ca = self.flags
        _require(bool(self.cert) or not self.key, cert, f"must be given with --{key}: the certificate of that key")
        _require(bool(self.key) or not self.cert, key, f"must be given with --{cert}: the private key of it")
        _require(bool(self.cert) or not self.client_ca, cert, f"must be given with --{client_ca}: TLS needs it")

    @property
    def enabled(self) -> bool:
        """Whether the port speaks TLS."""
        return bool(self.cert)


@dataclass(frozen=True)
class HttpSettings:
    """Settings of the HTTP port.  restricted: of --http-restricted-api; forward_pattern: "" to forward no headers."""

    max_input_bytes: int = defaults.HTTP_INPUT_BYTES_MAX
    restricted: tuple[str, ...] = ()
    forward_pattern: str = ""
    tls: TlsSettings = field(default_factory=TlsSettings)

    def __post_init__(self) -> None:
        """Raises ConfigError for a size that lets nothing in."""
        _require(
            self.max_input_bytes > 0, "http-max-input-size", f"must be more than 0 bytes, not {self.max_input_bytes}"
        )


@dataclass(frozen=True)
class VertexSettings:
    """Vertex AI's port.  The routes are the paths that it asks there.

    default_model: that predictions are for; "": the only one that is served.
    """

    listen: ListenSettings
    predict_route: str
    health_route: str
    default_model: str = ""

    def __post_init__(self) -> None:
        """Raises ConfigError for a route that is no path."""
        for variable, route in (("AIP_PREDICT_ROUTE", self.predict_route), ("AIP_HEALTH_ROUTE", self.health_route)):
            said = f"{variable} is {route[:300]!r}" if route else f"there is no {variable}"
            _require(
                route.startswith("/"),
                "allow-vertex-ai",
                f"needs two paths of the environment, AIP_PREDICT_ROUTE and AIP_HEALTH_ROUTE, and {said}",
            )


@dataclass(frozen=True)
class GrpcSettings:
    """The gRPC port beyond its socket.

    restricted: --grpc-restricted-protocol; forward_pattern: --grpc-header-forward-pattern, "" for none.
    compression: level of answers, none, low, medium or high.  0 for max_pings_without_data and max_ping_strikes: no
    limit; 0 for the ages: for ever.  answer_delay_seconds: a test's, of calls that are no inferences.
    """

    compression: str = "none"
    restricted: tuple[str, ...] = ()
    forward_pattern: str = ""
    tls: TlsSettings = field(default_factory=TlsSettings)
    keepalive_time_ms: int = 7_200_000
    keepalive_timeout_ms: int = 20_000
    keepalive_permit_without_calls: bool = False
    max_pings_without_data: int = 2
    min_ping_interval_ms: int = 300_000
    max_ping_strikes: int = 2
    max_connection_age_ms: int = 0
    max_connection_age_grace_ms: int = 0
    answer_delay_seconds: int = 0

    def __post_init__(self) -> None:
        """Raises ConfigError for figures out of range."""
        for flag, figure, least in (
            ("grpc-keepalive-time", self.keepalive_time_ms, 1),
            ("grpc-keepalive-timeout", self.keepalive_timeout_ms, 1),
            ("grpc-http2-max-pings-without-data", self.max_pings_without_data, 0),
            ("grpc-http2-min-recv-ping-interval-without-data", self.min_ping_interval_ms, 0),
            ("grpc-http2-max-ping-strikes", self.max_ping_strikes, 0),
            ("grpc-max-connection-age", self.max_connection_age_ms, 0),
            ("grpc-max-connection-age-grace", self.max_connection_age_grace_ms, 0),
        ):
            _require(least <= figure <= INT32_MAX, flag, f"must be {least} to {INT32_MAX}, not {figure}")


@dataclass(frozen=True)
class LogSettings:
    """Settings of the log.  file: "" for stdout and stderr."""

    verbose: int = 0
    info: bool = True
    warning: bool = True
    error: bool = True
    format: str = "default"
    file: str = ""

    def __post_init__(self) -> None:
        """Raises ConfigError for a negative verbose level."""
        _require(self.verbose >= 0, "log-verbose", f"must be 0 or more, not {self.verbose}")


@dataclass(frozen=True)
class RepositorySettings:
    """Settings of the model repositories and of loads.

    load_concurrency: instances that may be loading at one time.  default_max_batch_size: what auto-complete puts into a
    model that batches and states no size.  control_mode: one of CONTROL_MODES; poll_seconds: between two looks in mode
    poll, 0 for never again; load_models: those of the start in mode explicit, ("*",) for all; config_name: of
    configs/NAME.pbtxt, "" for config.pbtxt; namespacing: the same name may be in several repositories; watch: load
    models again when their files are saved; control_token_file: of bearer tokens, "" for none; backends: that models
    may name; may_be_none: models come with guests, too; files: served as they lie, beside the repositories;
    allow_pickled: load calls may bring files of backends whose files can run code.
    """

    paths: tuple[str, ...]
    auto_complete: bool = True
    load_concurrency: int = 4
    load_retries: int = 0
    default_max_batch_size: int = 4
    control_mode: str = "none"
    poll_seconds: float = 15.0
    load_models: tuple[str, ...] = ()
    config_name: str = ""
    namespacing: bool = False
    watch: bool = False
    control_token_file: str = ""
    backends: Backends = BUILT_IN
    may_be_none: bool = False
    allow_pickled: bool = False
    files: tuple[ServedFile, ...] = ()

    def __post_init__(self) -> None:
        """Raises ConfigError when no repository is named or a count is out of range."""
        _require(
            self.may_be_none or bool(self.paths) or bool(self.files),
            "model-repository", "must be given: the folder that holds the models; or name files: tisfast serve FILE",
        )  # fmt: skip
        _require(
            self.load_concurrency >= 1, "model-load-thread-count", f"must be 1 or more, not {self.load_concurrency}"
        )
        _require(self.load_retries >= 0, "model-load-retry-count", f"must be 0 or more, not {self.load_retries}")
        _require(
            not (self.files and self.namespacing),
            "model-namespacing", "does not go with files, which lie in no repository: give --model-repository",
        )  # fmt: skip
        self._check_control()

    def _check_control(self) -> None:
        _require(
            self.control_mode in CONTROL_MODES,
            "model-control-mode",
            f"must be one of {', '.join(CONTROL_MODES)}, not {self.control_mode!r:.60}",
        )
        if self.load_models and self.control_mode != "explicit":
            raise ConfigError(
                "Use of '--load-model' requires setting '--model-control-mode=explicit' as well.", key="load-model"
            )
        if "*" in self.load_models and set(self.load_models) != {"*"}:
            raise ConfigError(
                "Wildcard model name '*' must be the ONLY startup model if specified at all: --load-model also names "
                + ", ".join(name for name in self.load_models if name != "*"),
                key="load-model",
            )
        _require(
            not self.watch or self.control_mode != "explicit",
            "reload",
            "does not go with --model-control-mode=explicit, where models are loaded by order only",
        )
        if self.control_mode == "poll":
            seconds, least, most = self.poll_seconds, limits.POLL_SECONDS_MIN, limits.POLL_SECONDS_MAX
            _require(
                seconds == 0 or least <= seconds <= most,
                "repository-poll-secs",
                f"must be {least:g} to {most:g}, or 0 for no second look, not {seconds:g}",
            )
        _require(
            not self.config_name or (self.config_name[0] != "." and not set("/\\\0") & set(self.config_name)),
            "model-config-name",
            f"must be the name of a file in the folder configs, without '.pbtxt', not {self.config_name!r:.60}",
        )


CPU_ONLY: Final = "TRITON_SERVER_CPU_ONLY"
"""A variable of the environment that leaves the server no GPU, as Triton's: whatever it is set to, also to nothing."""


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of all workers.  cuda_visible: the server's CUDA_VISIBLE_DEVICES; cpu_only: as if there were no GPU.

    gpu_limits: --model-load-gpu-limit, (GPU, fraction of its memory); cuda_pools: --cuda-memory-pool-byte-size, (GPU,
    bytes), of others the default; pinned_pool_bytes: host memory that they may pin for CUDA, altogether;
    capability_min: GPUs below are not used; memory_budget: bytes that all models' workers may take, 0 for no bound;
    strict_outputs: outputs that are not what the configuration says are errors; spin_us: how long a side that waits
    yields before it sleeps, 0 for no time; guest_directory: where guests find the server, "" for none; guest_models:
    what they are to bring before the server is ready.
    """

    interpreter: str
    execution_seconds_max: float = defaults.EXECUTION_SECONDS_MAX
    load_seconds_max: float = limits.LOAD_SECONDS_MAX
    cuda_visible: str | None = None
    cpu_only: bool = False
    gpu_limits: tuple[tuple[int, float], ...] = ()
    cuda_pools: tuple[tuple[int, int], ...] = ()
    pinned_pool_bytes: int = limits.PINNED_POOL_BYTES
    capability_min: float = COMPUTE_CAPABILITY_MIN
    memory_budget: int = 0
    strict_outputs: bool = False
    spin_us: int = defaults.SPIN_US
    guest_directory: str = ""
    guest_models: tuple[str, ...] = ()
    environments: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    hooks: SchedulerHooks = field(default_factory=SchedulerHooks)

    def __post_init__(self) -> None:
        """Raises ConfigError for limits that are not positive, and models of guests that cannot come."""
        _require(
            bool(self.guest_directory) or not self.guest_models,
            "guest-model",
            f"{', '.join(self.guest_models[:1])}: no guest can come; give --guest-directory, too",
        )
        _require(
            self.execution_seconds_max > 0,
            "execution-timeout-secs",
            f"must be more than 0, not {self.execution_seconds_max:g}",
        )
        _require(
            self.load_seconds_max > 0,
            "backend-config=python,stub-timeout-seconds",
            f"must be more than 0, not {self.load_seconds_max:g}",
        )
        most = limits.SPIN_US_MAX
        _require(0 <= self.spin_us <= most, "spin-us", f"must be 0 to {most}, not {self.spin_us}")


@dataclass(frozen=True)
class CodecSettings:
    """Processes that parse and write large texts.  processes_max: 0, the event loop does it all; bytes_min: what is
    smaller stays there."""

    processes_max: int = defaults.CODEC_PROCESSES_MAX
    bytes_min: int = defaults.CODEC_BYTES_MIN

    def __post_init__(self) -> None:
        """Raises ConfigError for numbers that mean nothing."""
        _require(
            0 <= self.processes_max <= limits.CODEC_PROCESSES_LIMIT,
            "codec-processes",
            f"must be from 0 to {limits.CODEC_PROCESSES_LIMIT}, not {self.processes_max}",
        )
        _require(
            0 <= self.bytes_min <= limits.ARENA_CAP_BYTES_MAX,
            "codec-bytes-min",
            f"must be from 0 to {limits.ARENA_CAP_BYTES_MAX}, not {self.bytes_min}",
        )


@dataclass(frozen=True)
class LifeSettings:
    """Identity, and how the server starts and ends.

    server_version: what clients are told, "" for our own; drain_delay_seconds: after the signal to end, not ready and
    still serving; exit_timeout_seconds begin then.
    """

    server_id: str = "triton"
    server_version: str = ""
    exit_timeout_seconds: int = defaults.STOP_SECONDS_MAX
    drain_delay_seconds: float = 0.0
    exit_on_error: bool = True
    strict_readiness: bool = True

    def __post_init__(self) -> None:
        """Raises ConfigError for a time that is negative or no end."""
        _require(
            self.exit_timeout_seconds >= 0, "exit-timeout-secs", f"must be 0 or more, not {self.exit_timeout_seconds}"
        )
        _require(
            0 <= self.drain_delay_seconds <= limits.DRAIN_DELAY_SECONDS_MAX,
            "drain-delay-secs",
            f"must be 0 to {limits.DRAIN_DELAY_SECONDS_MAX}, not {self.drain_delay_seconds:g}",
        )


@dataclass(frozen=True)
class ParentSettings:
    """Descriptors that the program which started this server gave it; -1 for none (tisfast.parent)."""

    pidfd: int = -1
    ready_fd: int = -1

    def __post_init__(self) -> None:
        """Raises ConfigError for what is no number of a descriptor."""
        _require(self.pidfd >= -1, "parent-pidfd", f"must be the number of a descriptor, not {self.pidfd}")
        _require(self.ready_fd >= -1, "ready-fd", f"must be the number of a descriptor, not {self.ready_fd}")


@dataclass(frozen=True)
class Settings:
    """All settings.  Components take the slice they need, never this."""

    repository: RepositorySettings
    workers: WorkerSettings
    http: ListenSettings
    grpc: ListenSettings
    metrics: ListenSettings
    http_calls: HttpSettings = field(default_factory=HttpSettings)
    shown: MetricsSettings = field(default_factory=MetricsSettings)
    trace: TraceSettings = field(default_factory=TraceSettings)
    cache: CacheSettings | None = None
    rate_limit: RateLimitSettings = field(default_factory=RateLimitSettings)
    allow_client_shm: bool = False
    life: LifeSettings = field(default_factory=LifeSettings)
    parent: ParentSettings = field(default_factory=ParentSettings)
    log: LogSettings = field(default_factory=LogSettings)
    grpc_options: GrpcSettings = field(default_factory=GrpcSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    access_log: str = ""
    codecs: CodecSettings = field(default_factory=CodecSettings)
    vertex: VertexSettings | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError when two services want one address and port."""
        vertex = () if self.vertex is None else (self.vertex.listen,)
        for one, other in combinations((self.http, self.grpc, self.metrics, *vertex), 2):
            _require_apart(one, other)
        _require(
            not (self.workers.guest_directory and self.repository.namespacing),
            "guest-directory",
            "does not go with --model-namespacing: a guest's model has no repository, and so no namespace",
        )


def _require_apart(one: ListenSettings, other: ListenSettings) -> None:
    if one.enabled and other.enabled and one.port and (one.address, one.port) == (other.address, other.port):
        raise ConfigError(
            f"The server cannot listen to {one.service} requests and {other.service} requests at the same "
            f"address and port {one.where}",
            key=f"{other.flag}-port",
            hint=f"give --{other.flag}-port another value",
        )
