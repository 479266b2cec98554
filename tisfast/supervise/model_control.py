"""What models ask about models: is_model_ready, load_model, unload_model (row 16.22).  Layer 4 (supervise)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tisfast.errors import TisError

if TYPE_CHECKING:
    from tisfast.engine.registry import Registry
    from tisfast.supervise.control import Message

NOT_EXPLICIT = "explicit model load / unload is not allowed if polling is enabled"
"""Row 6.03: what the real server answers where its control mode is not EXPLICIT, as it is not here."""


def answer(registry: Registry, message: Message) -> Message:
    """The answer to a worker's message of type "model" (workers/WIRE.md)."""
    reply: Message = {"t": "answer", "n": message.get("n")}
    if message.get("do") != "ready":
        return {**reply, "error": NOT_EXPLICIT}
    try:
        runtime = registry.resolve(str(message.get("name", "")), str(message.get("version", "")))
    except TisError:
        return {**reply, "ready": False}
    return {**reply, "ready": bool(runtime.ready)}
