"""Which flags go with `--service-kind openai`.  Layer 5 (bench)."""

from __future__ import annotations

from typing import Any, Final

from tisfast.bench.flags import OTHER_SERVERS
from tisfast.errors import ConfigError

NOT_OPENAI: Final = (
    "model_version",
    "bls_composing_models",
    "collect_metrics",
    "zero",
    "data_directory",
    "shape",
    "string_data",
    "request_parameter",
    "num_of_sequences",
    "sequence_length",
    "sequence_length_variation",
    "sequence_id_range",
    "serial_sequences",
)
"""They say something of a model's tensors, sequences or statistics; by their names in the parsed command line."""
TYPED: Final = {"model_version": "-x", "zero": "-z"}


def check_openai(given: Any) -> None:
    """Raises ConfigError."""
    if given.service_kind not in ("triton", "openai"):
        raise ConfigError(f"--service-kind {given.service_kind} is not served: {OTHER_SERVERS}; it is triton or openai")
    if given.service_kind == "triton":
        return  # an endpoint is without effect there, as with perf_analyzer
    if not given.endpoint.strip("/"):
        raise ConfigError("--service-kind openai needs --endpoint, such as v1/chat/completions")
    if given.protocol.lower() != "http":
        raise ConfigError("--service-kind openai is HTTP: leave -i grpc out")
    if given.batch_size != 1:
        raise ConfigError(f"-b {given.batch_size}: --service-kind openai has one prompt in a request; leave it out")
    if given.shared_memory != "none":
        raise ConfigError("--shared-memory belongs to tensors, and --service-kind openai has none; leave it out")
    name = next((each for each in NOT_OPENAI if getattr(given, each)), None)
    if name is not None:
        typed = TYPED.get(name, "--" + name.replace("_", "-"))
        raise ConfigError(f"{typed} says nothing of --service-kind openai: leave it out")
    kind = next((each for each in given.input_data if each in ("random", "zero")), None)
    if kind is not None:
        raise ConfigError(
            f"--input-data {kind} makes tensors; with --service-kind openai name a JSON file, or leave it out"
        )
