"""Vertex AI's flags and the variables that it sets in its containers.  Layer 2 (config)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tisfast.config.settings import ListenSettings, VertexSettings
from tisfast.errors import ConfigError

SERVICE: Final = "Vertex AI"
PORT: Final = 8080


def read_vertex(given: Mapping[str, Any], environ: Mapping[str, str]) -> VertexSettings | None:
    """None where it is not allowed.  given: values of flags.  Raises ConfigError."""
    allowed = given["allow_vertex_ai"]
    if not (environ.get("AIP_MODE") == "PREDICTION" if allowed is None else allowed):
        return None
    return VertexSettings(
        ListenSettings(SERVICE, "vertex-ai", True, given["http_address"], _port(given["vertex_ai_port"], environ)),
        environ.get("AIP_PREDICT_ROUTE", ""),
        environ.get("AIP_HEALTH_ROUTE", ""),
        given["vertex_ai_default_model"],
    )


def _port(given: int | None, environ: Mapping[str, str]) -> int:
    if given is not None:
        return given
    text = environ.get("AIP_HTTP_PORT") or str(PORT)
    if not text.isdecimal():
        raise ConfigError(f"the environment's AIP_HTTP_PORT is no port: {text[:60]!r}", key="vertex-ai-port")
    return int(text)
