"""A model that callables were bound to."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import inspect
import logging
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from tisfast.pytriton.checks import check
from tisfast.pytriton.decorators import CONTEXT_ATTRIBUTE, TritonContext
from tisfast.pytriton.exceptions import PyTritonUnrecoverableError, PyTritonValidationError
from tisfast.pytriton.model_config import DeviceKind, ModelConfig, Tensor
from tisfast.pytriton.model_config.common import generate_warmup_requests
from tisfast.pytriton.model_config.generator import ModelConfigGenerator, without_nones
from tisfast.pytriton.model_config.triton_model_config import ResponseCache, TensorSpec, TritonModelConfig
from tisfast.pytriton.proxy.backend import CallableBackend
from tisfast.pytriton.proxy.types import Request

log = logging.getLogger("tisfast.pytriton")

Infer: TypeAlias = Callable[..., Any]
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


class BoundModel:
    """Its description and its callables, one for each instance."""

    def __init__(  # noqa: PLR0913, PLR0917 - what `bind` is given
        self,
        name: str,
        infer_func: Infer | Sequence[Infer],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        version: int | str,
        config: ModelConfig | None,
        strict: bool,
        processes: int = 0,
    ) -> None:
        """processes: workers that load the callable, 0 for threads of this process.  Raises PyTritonValidationError."""
        if not name:
            raise PyTritonValidationError("Model name cannot be empty")
        check("model_name", name, str)
        if not _NAME.fullmatch(name):
            raise PyTritonValidationError(
                "Model name can only contain alphanumeric characters, dots, underscores and dashes"
            )
        check("inputs", inputs, Sequence[Tensor | TensorSpec])
        check("outputs", outputs, Sequence[Tensor | TensorSpec])
        if not (isinstance(version, str) and version.isdecimal()):
            check("model_version", version, int)
        check("config", config, ModelConfig, none=True)
        check("strict", strict, bool)
        check("processes", processes, int)
        if any(tensor.optional for tensor in outputs):
            raise PyTritonValidationError("Output tensors cannot be optional.")
        if processes < 0:
            raise PyTritonValidationError(f"processes is {processes}; give 0 for threads of this process, or more")
        self.name, self.version, self.processes = name, int(version), processes
        self.callables = _callables(infer_func)
        self.config = _described(self, inputs, outputs, config or ModelConfig())
        self.strict = strict
        self.trace_config: list[str] = []
        for each in self.callables:
            give_context(each, self.config)

    def same_as(self, other: BoundModel) -> bool:
        """Whether both are one model for the server."""
        return self.name.lower() == other.name.lower() and self.version == other.version

    def server_config(self) -> dict[str, Any]:
        """The configuration for the server.  Raises PyTritonBadParameterError."""
        made: dict[str, Any] = without_nones(ModelConfigGenerator(self.config).get_config())
        made.pop("model_warmup", None)  # the callables have had it
        del made["backend"]  # the server runs nothing of it
        return made

    def with_instances(self, count: int) -> TritonModelConfig:
        """The configuration with another number of instances, and without its warm-up."""
        return dataclasses.replace(self.config, instance_group={DeviceKind.KIND_CPU: count}, model_warmup=None)

    def backends(self, unrecoverable: Callable[[PyTritonUnrecoverableError], None]) -> list[CallableBackend]:
        """One for each instance."""
        return [CallableBackend(each, self.config, self.strict, unrecoverable) for each in self.callables]

    def warm_up(self) -> None:
        """Call all callables with the requests of the warm-up; what they raise is logged."""
        warm_up(self.callables, self.config)


def warm_up(callables: Sequence[Infer], config: TritonModelConfig) -> None:
    """Call them with the requests of the warm-up; what they raise is logged.  Raises PyTritonBadParameterError."""
    requests = generate_warmup_requests(config.model_warmup or ())
    for each in callables:
        for inputs in requests:
            try:
                _call_once(each, [Request(dict(inputs))])
            except Exception:
                log.exception("model '%s': a warm-up has failed; the model is loaded all the same", config.model_name)


def _callables(infer_func: Any) -> list[Infer]:
    found = list(infer_func) if isinstance(infer_func, Sequence) else [infer_func]
    if not found or not all(callable(each) for each in found):
        raise PyTritonValidationError("inference_fn has to be either callable or sequence of callables")
    return found


def _described(
    model: BoundModel, inputs: Sequence[Tensor], outputs: Sequence[Tensor], config: ModelConfig
) -> TritonModelConfig:
    return TritonModelConfig(
        model_name=model.name,
        model_version=model.version,
        batching=config.batching,
        batcher=config.batcher if config.batching else None,
        max_batch_size=config.max_batch_size,
        decoupled=config.decoupled,
        inputs=_specs(inputs, "INPUT"),
        outputs=_specs(outputs, "OUTPUT"),
        instance_group={DeviceKind.KIND_CPU: len(model.callables)},
        response_cache=ResponseCache(True) if config.response_cache else None,
        model_warmup=config.model_warmup,
    )


def _specs(tensors: Sequence[Tensor], kind: str) -> list[TensorSpec]:
    return [
        TensorSpec(tensor.name or f"{kind}_{at}", tuple(map(int, tensor.shape)), tensor.dtype, bool(tensor.optional))
        for at, tensor in enumerate(tensors, 1)
    ]


def give_context(callable_: Any, config: TritonModelConfig) -> None:
    """What decorators ask for, on the callable or on the object of a bound method."""
    owner = getattr(callable_, "__self__", callable_)
    context = getattr(owner, CONTEXT_ATTRIBUTE, None)
    try:
        if context is None:
            context = TritonContext()
            setattr(owner, CONTEXT_ATTRIBUTE, context)
    except (AttributeError, TypeError):  # functions that are written in C have no attributes, and need no context
        return
    context.model_configs[callable_] = copy.deepcopy(config)


def _call_once(callable_: Infer, requests: list[Request]) -> None:
    """A generator is made and not begun; a coroutine runs to its end, in a thread without an event loop."""
    result = callable_(requests)
    if not inspect.isawaitable(result):
        return
    raised: list[BaseException] = []

    async def awaited() -> None:
        await result

    def run() -> None:
        try:
            asyncio.run(awaited())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="tisfast-warm-up", daemon=True)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
