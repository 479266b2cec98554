"""Every deliberate difference between tisfast and Triton 2.51 over gRPC, with its reason: the one table.

A call that is not here must be answered alike (grpc_exchange.py says what that means).  A call that is here must
differ, and ours must begin as written.
"""

# ruff: noqa: E501  (a table: one call, one line)
from __future__ import annotations

from typing import Final

# fmt: off
TABLE: Final[dict[str, dict[str, str]]] = {
}
# fmt: on

BY_CALL: Final[dict[str, str]] = {name: ours for calls in TABLE.values() for name, ours in calls.items()}
