"""What a server is started with: TritonConfig, life-cycle policies and the security configuration."""

from __future__ import annotations

import dataclasses
import logging
import os
import pathlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tisfast.pytriton.exceptions import PyTritonValidationError
from tisfast.types import API_CATEGORIES

log = logging.getLogger("tisfast.pytriton")

ENVIRONMENT_PREFIX: Final = "PYTRITON_TRITON_CONFIG_"
TRITON_ACCESS_HEADER: Final = "triton-access-token"
VALID_TRITON_ENDPOINTS: Final = set(API_CATEGORIES)
DEFAULT_PROTECTED_ENDPOINTS: Final = ["shared-memory", "model-repository", "statistics", "trace", "logging"]
_ACCESS_TOKEN_BYTES: Final = 32
_FALSE: Final = frozenset({"false", "0", "no", "off", ""})


@dataclass(kw_only=True)
class TritonConfig:
    """Flags of the server by the names of `tritonserver`'s, with `_` for `-`; None leaves one to the server.

    Lists repeat their flag.  Raises PyTritonValidationError when neither HTTP nor gRPC is allowed.
    """

    model_repository: pathlib.Path | None = None
    id: str | None = None
    log_verbose: int | None = None
    log_file: pathlib.Path | None = None
    exit_timeout_secs: int | None = None
    exit_on_error: bool | None = None
    strict_readiness: bool | None = None
    allow_http: bool | None = None
    http_address: str | None = None
    http_port: int | None = None
    http_header_forward_pattern: str | None = None
    http_thread_count: int | None = None
    http_restricted_api: str | None = None
    allow_grpc: bool | None = None
    grpc_address: str | None = None
    grpc_port: int | None = None
    grpc_header_forward_pattern: str | None = None
    grpc_infer_allocation_pool_size: int | None = None
    grpc_use_ssl: bool | None = None
    grpc_use_ssl_mutual: bool | None = None
    grpc_server_cert: pathlib.Path | None = None
    grpc_server_key: pathlib.Path | None = None
    grpc_root_cert: pathlib.Path | None = None
    grpc_infer_response_compression_level: str | None = None
    grpc_keepalive_time: int | None = None
    grpc_keepalive_timeout: int | None = None
    grpc_keepalive_permit_without_calls: bool | None = None
    grpc_http2_max_pings_without_data: int | None = None
    grpc_http2_min_recv_ping_interval_without_data: int | None = None
    grpc_http2_max_ping_strikes: int | None = None
    grpc_restricted_protocol: str | None = None
    allow_metrics: bool | None = None
    allow_gpu_metrics: bool | None = None
    allow_cpu_metrics: bool | None = None
    metrics_interval_ms: int | None = None
    metrics_port: int | None = None
    metrics_address: str | None = None
    allow_sagemaker: bool | None = None
    sagemaker_port: int | None = None
    sagemaker_safe_port_range: str | None = None
    sagemaker_thread_count: int | None = None
    allow_vertex_ai: bool | None = None
    vertex_ai_port: int | None = None
    vertex_ai_thread_count: int | None = None
    vertex_ai_default_model: str | None = None
    metrics_config: list[str] | None = None
    trace_config: list[str] | None = None
    cache_config: list[str] | None = None
    cache_directory: str | None = None
    buffer_manager_thread_count: int | None = None

    def __new__(cls, *args: Any, **_: Any) -> TritonConfig:
        """Raises TypeError for positional arguments."""
        if args:
            raise TypeError("TritonConfig initialization can't be used with positional arguments")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Something must be served."""
        if self.allow_http not in (True, None) and self.allow_grpc not in (True, None):
            raise PyTritonValidationError("The `http` or `grpc` endpoint has to be allowed.")

    def to_dict(self) -> dict[str, Any]:
        """All fields."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> TritonConfig:
        """Values are made what their fields are; unknown keys are logged and left out.  Raises ValueError."""
        return cls(**_known_fields(config))

    @classmethod
    def from_env(cls) -> TritonConfig:
        """Of the variables PYTRITON_TRITON_CONFIG_NAME, and NAME_0, NAME_1 and so on of lists.  Raises ValueError."""
        return cls(**_environment_fields())


@dataclass
class TritonSecurityConfig:
    """Groups of calls that need a token.

    access_token: without one, one is made, if anything is restricted.  restricted_endpoints: None is all that changes
    or tells what goes on in the server, [] nothing.  Raises PyTritonValidationError for groups that there are not.
    """

    access_token: str | None = None
    restricted_endpoints: list[str] | None = None

    def __post_init__(self) -> None:
        """Fill in and check."""
        if self.restricted_endpoints is None:
            self.restricted_endpoints = list(DEFAULT_PROTECTED_ENDPOINTS)
        unknown = [name for name in self.restricted_endpoints if name not in VALID_TRITON_ENDPOINTS]
        if unknown:
            raise PyTritonValidationError(
                f"Invalid endpoint names: {', '.join(unknown)}. "
                f"Valid endpoints are: {', '.join(sorted(VALID_TRITON_ENDPOINTS))}"
            )
        if self.access_token is None and self.restricted_endpoints:
            self.access_token = secrets.token_urlsafe(_ACCESS_TOKEN_BYTES)


@dataclass
class TritonLifecyclePolicy:
    """When the server starts, and how it gets its models.

    launch_triton_on_startup: at the beginning of the `with` block, else by `run` or `serve`.  local_model_store: the
    server is not ready before it serves all models that are bound when it starts; else it is ready without them.
    """

    launch_triton_on_startup: bool = True
    local_model_store: bool = False


DefaultTritonLifecyclePolicy: Final = TritonLifecyclePolicy()
VertextAILifecyclePolicy: Final = TritonLifecyclePolicy(launch_triton_on_startup=False, local_model_store=True)


def merged(explicit: TritonConfig | None) -> TritonConfig:
    """What was given, and what the environment says of what was not."""
    values = _environment_fields()
    if explicit is not None:
        values |= {name: value for name, value in explicit.to_dict().items() if value is not None}
    return TritonConfig(**values)


def flags_of(config: TritonConfig) -> list[str]:
    """The flags of the server."""
    flags = []
    for name, value in config.to_dict().items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                text = str(each).lower() if isinstance(each, bool) else str(each)
                flags.append(f"--{name.replace('_', '-')}={text}")
    return flags


def in_fields(text: str) -> str:
    """What a server says of its flags, by the names of TritonConfig's fields."""
    for name in _kinds():
        text = re.sub(rf"--{name.replace('_', '-')}(?![\w-])", f"TritonConfig.{name}", text)
    return text


def _known_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Values as their fields have them; unknown keys are logged and left out."""
    known = _kinds()
    unknown = sorted(set(config) - set(known))
    if unknown:
        log.warning("TritonConfig has no field %s: it is left out", ", ".join(unknown))
    return {name: _cast(known[name], value) for name, value in config.items() if name in known}


def _environment_fields() -> dict[str, Any]:
    """What the environment says: it need not be a whole configuration, as the program may say other things."""
    known = _kinds()
    found: dict[str, Any] = {}
    lists: dict[str, list[tuple[int, str]]] = {}
    for variable, value in os.environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        base, _, number = name.rpartition("_")
        if known.get(base, "").startswith("list") and number.isdigit():
            lists.setdefault(base, []).append((int(number), value))
        else:
            found[name] = value
    return _known_fields(found | {name: [text for _, text in sorted(items)] for name, items in lists.items()})


def _kinds() -> dict[str, str]:
    """The annotation of each field, as text."""
    return {field.name: str(field.type) for field in dataclasses.fields(TritonConfig)}


def _cast(kind: str, value: Any) -> Any:
    """A value as its field has it.  kind: the annotation, as text."""
    if value is None:
        return None
    if kind.startswith("bool"):
        return value.strip().lower() not in _FALSE if isinstance(value, str) else bool(value)
    if kind.startswith("int"):
        return int(value)
    if kind.startswith("pathlib"):
        return pathlib.Path(value)
    if kind.startswith("list"):
        return [str(each) for each in (value if isinstance(value, list | tuple) else [value])]
    return str(value)
