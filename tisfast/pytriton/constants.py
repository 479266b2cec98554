"""Defaults that PyTriton's programs import."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

DEFAULT_HTTP_PORT: Final = 8000
DEFAULT_GRPC_PORT: Final = 8001
DEFAULT_METRICS_PORT: Final = 8002
TRITON_LOCAL_IP: Final = "127.0.0.1"
DEFAULT_TRITON_STARTUP_TIMEOUT_S: Final = 120
"""Seconds until a server that was started must answer."""
CREATE_TRITON_CLIENT_TIMEOUT_S: Final = 10
"""Seconds until a server that is said to run must answer."""
TRITON_CONTEXT_FIELD_NAME: Final = "triton_context"
PYTRITON_HOME: Final = Path(
    os.environ.get("PYTRITON_HOME")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "pytriton"
)
"""Where workspaces without a path are made."""
