"""Requests of models about models: is_model_ready, load_model, unload_model.  Layer 4 (models)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from tisfast import limits
from tisfast.errors import TisError
from tisfast.models.lifecycle import Lifecycle
from tisfast.repo.load_override import LoadOrder
from tisfast.types import NO_DEVICE

if TYPE_CHECKING:
    from tisfast.engine.registry import Registry
    from tisfast.processes.control_socket import Message

log = logging.getLogger("tisfast.models")
FILE = "file:"


class ModelOrders:
    """Answers workers' messages of type "model" (workers/WIRE.md)."""

    def __init__(self, registry: Registry, lifecycle: Lifecycle, loop: asyncio.AbstractEventLoop) -> None:
        self._registry = registry
        self._lifecycle = lifecycle
        self._loop = loop
        self._orders: set[asyncio.Task[None]] = set()

    def answer(self, message: Message, reply: Callable[[Message], None]) -> None:
        """Answer one message, now or when what it asks for is done."""
        number = message.get("n")
        if message.get("do") == "ready":
            reply({"t": "answer", "n": number, "ready": self._ready(message)})
            return
        if message.get("do") == "takes_gpu":
            reply({"t": "answer", "n": number, "takes": self._takes_memory(message)})
            return
        if len(self._orders) >= limits.MODEL_ORDERS_MAX:
            error = f"{limits.MODEL_ORDERS_MAX} loads and unloads asked for by models are not done yet; try again later"
            reply({"t": "answer", "n": number, "error": error})
            return
        task = self._loop.create_task(self._order(message, reply))
        self._orders.add(task)
        task.add_done_callback(self._orders.discard)

    def _ready(self, message: Message) -> bool:
        try:
            runtime = self._registry.resolve(str(message.get("name", "")), str(message.get("version", "")))
        except TisError:
            return False
        return bool(runtime.ready)

    def _takes_memory(self, message: Message) -> bool | None:
        """Whether a model takes inputs in memory of the GPU of who asks; None: there is no such model."""
        try:
            runtime = self._registry.resolve(str(message.get("name", "")), str(message.get("version", "")))
        except TisError:
            return None
        signature, gpu = runtime.signature, message["gpu"]
        return gpu != NO_DEVICE and bool(signature.device_inputs == gpu) and not signature.copies_devices

    async def _order(self, message: Message, reply: Callable[[Message], None]) -> None:
        answer: Message = {"t": "answer", "n": message.get("n")}
        try:
            await self._carry_out(message)
        except TisError as error:
            answer["error"] = error.message
        except Exception as error:  # a bug of ours: the model's thread is not to wait for ever
            log.critical("what a model asked about models met a bug of the server", exc_info=error)
            answer["error"] = f"unexpected {type(error).__name__} in the server; see its log"
        reply(answer)

    async def _carry_out(self, message: Message) -> None:
        name = str(message.get("name", ""))
        if message.get("do") == "unload":
            await self._lifecycle.unload(name, dependents=bool(message.get("dependents")))
            return
        config = message.get("config")
        files = {str(path).removeprefix(FILE): bytes(data) for path, data in dict(message.get("files") or {}).items()}
        await self._lifecycle.load(LoadOrder(name, str(config) if config else None, files))
