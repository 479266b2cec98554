"""Fields that Triton knows and tisfast does not serve: refused by name, never ignored.  Layer 2 (config).

A key that asks for nothing (`passive: false`, an empty list) passes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tisfast.config import error_texts
from tisfast.config.backends import (
    MODULE_FILE,
    PROFILE,
    PYTHON_BASED_FILE,
    TRITONS_DIRECTORY,
    BackendInfo,
    Backends,
)
from tisfast.config.error_report import KeyPath, Report, key_text
from tisfast.config.metric_control import check_metric_control
from tisfast.config.schema import Message, is_ensemble
from tisfast.config.suggest import near

STAGE: Final = "is known, but not served yet"
ADVICE: Final = "remove it, or serve this model with a server that has it"
STRATEGY_PARAMETER: Final = "TRITON_BATCH_STRATEGY_PATH"
FORCE_CPU_PARAMETER: Final = "FORCE_CPU_ONLY_INPUT_TENSORS"

# What is refused: the key path to name, and whether the message asks for it.
_ASKS: Final[tuple[tuple[tuple[str, ...], Callable[[Message], Any]], ...]] = (
    (("model_repository_agents",), lambda m: m.model_repository_agents.agents),
    (("cc_model_filenames",), lambda m: m.cc_model_filenames),
    (("model_operations",), lambda m: m.model_operations.op_library_filename),
    (("optimization", "graph", "level"), lambda m: m.optimization.graph.level),
    (("optimization", "priority"), lambda m: m.optimization.priority),
    (("optimization", "cuda", "graphs"), lambda m: m.optimization.cuda.graphs),
    (("optimization", "cuda", "busy_wait_events"), lambda m: m.optimization.cuda.busy_wait_events),
    (("optimization", "cuda", "graph_spec"), lambda m: m.optimization.cuda.graph_spec),
    (("optimization", "cuda", "output_copy_stream"), lambda m: m.optimization.cuda.output_copy_stream),
    (("optimization", "execution_accelerators"), lambda m: _has_content(m.optimization.execution_accelerators)),
    (("optimization", "gather_kernel_buffer_threshold"), lambda m: m.optimization.gather_kernel_buffer_threshold),
    (("optimization", "eager_batching"), lambda m: m.optimization.eager_batching),
)
_OF_MODELS: Final = frozenset({"model_warmup", "optimization"})
"""Fields that no ensemble can have; config.ensemble_config reports them."""
_GROUP_ASKS: Final[tuple[tuple[str, Callable[[Message], Any]], ...]] = (
    ("secondary_devices", lambda g: g.secondary_devices),
    ("passive", lambda g: g.passive),
    ("host_policy", lambda g: g.host_policy),
)


def check(message: Message, report: Report, backends: Backends) -> None:
    """Report everything that the message asks for and tisfast does not do."""
    with report.loading():
        _check_backend(message, report, backends)
    if message.response_cache.enable and message.model_transaction_policy.decoupled:
        report.wrong(error_texts.no_cache(message.name, error_texts.DECOUPLED), ("response_cache", "enable"))
    if message.response_cache.enable and message.HasField("sequence_batching"):
        report.wrong(error_texts.no_cache(message.name, error_texts.SEQUENCES), ("response_cache", "enable"))
    backend = backends.named(message.backend)
    honoured = frozenset() if backend is None else backend.honours
    for path, asks in _ASKS:
        if asks(message) and key_text(path) not in honoured and not (path[0] in _OF_MODELS and is_ensemble(message)):
            _refuse(message, path, report)
    check_metric_control(message, report)
    for index, group in enumerate(message.instance_group):
        _check_group(message, index, group, report, PROFILE in honoured)
    _check_strategy(message, report)
    _check_force_cpu(message, report)


def _check_strategy(message: Message, report: Report) -> None:
    """Check the parameters of a custom batching strategy."""
    if STRATEGY_PARAMETER not in message.parameters:
        return
    path = ("parameters", STRATEGY_PARAMETER)
    value = message.parameters[STRATEGY_PARAMETER].string_value
    if not value.endswith(".py"):
        report.wrong(f"parameter '{STRATEGY_PARAMETER}' is '{value}' for {message.name}: a batching strategy is a "
                   "Python file here, where Triton's is a C library", path,
                   hint="see 'tisfast docs batching'")  # fmt: skip
    elif not message.HasField("dynamic_batching") or message.max_batch_size < 1:
        report.wrong(f"parameter '{STRATEGY_PARAMETER}' has no effect without dynamic batching for {message.name}",
                   path, hint="add dynamic_batching { } and max_batch_size, or remove it")  # fmt: skip


def _check_force_cpu(message: Message, report: Report) -> None:
    """`no`: inputs in GPU memory stay there, where the model's instances can take them (models/gpu_placement)."""
    if FORCE_CPU_PARAMETER not in message.parameters:
        return
    value = message.parameters[FORCE_CPU_PARAMETER].string_value
    if value not in ("", "yes", "no"):
        report.wrong(f"Incorrect value for {FORCE_CPU_PARAMETER}: {value}' for {message.name}",
                   ("parameters", FORCE_CPU_PARAMETER), hint='"yes" or "no"')  # fmt: skip


def _refuse(message: Message, path: KeyPath, report: Report) -> None:
    report.wrong(f"'{key_text(path)}' {STAGE} for {message.name}", path, hint=ADVICE)


def _has_content(message: Message) -> bool:
    return bool(message.ByteSize())


def _check_group(message: Message, index: int, group: Message, report: Report, has_profiles: bool) -> None:
    path = ("instance_group", index)
    if group.profile and not has_profiles:
        platform = f" {message.platform}" if message.platform else ""
        report.wrong(f"instance group {group.name} of model {message.name} and platform{platform} specifies profile "
                     "field which is only supported for TensorRT models", (*path, "profile"),
                     hint="remove 'profile'")  # fmt: skip
    for key, asks in _GROUP_ASKS:
        if asks(group):
            _refuse(message, (*path, key), report)


def _check_backend(message: Message, report: Report, backends: Backends) -> None:
    name, platform, backend = message.name, message.platform, message.backend
    if is_ensemble(message):
        return
    named_twice = platform == backend
    meant, known = backends.of_platform(platform), backends.named(backend)
    served = " or ".join(f'"{each}"' for each in backends.served)
    if platform and not named_twice and meant is None:
        guess = near(platform, backends.platforms)
        report.wrong(f"unexpected platform type '{platform}' for {name}", ("platform",),
                   hint=f"did you mean '{guess}'?" if guess else 'write backend: "python"')  # fmt: skip
    elif platform and backend and not named_twice and meant is not None and meant.name != backend:
        report.wrong(f"unexpected 'platform' and 'backend' pair, got:{platform}, {backend} for {name}", ("platform",),
                   hint="remove 'platform': 'backend' says enough")  # fmt: skip
    elif known is not None and known.library and not known.served:
        report.wrong(
            f"backend '{backend}' of {name} is a library in C for Triton's server ({known.library}), which tisfast "
            "cannot load", ("backend",),
            hint=f"write {_place_of(known, backends)} in its place ('tisfast docs backends'); it may open C libraries "
            "with ctypes",
        )  # fmt: skip
    elif known is not None and not known.served:
        key = "platform" if platform else "backend"
        report.wrong(f"'{key}': backend '{backend}' {STAGE} for {name}", (key,), hint=f"served here: {served}")
    elif backend and known is None and message.runtime == PYTHON_BASED_FILE:
        place = Path(backends.directory or TRITONS_DIRECTORY) / backend / PYTHON_BASED_FILE
        report.wrong(f"unable to find Python backend based backend library '{PYTHON_BASED_FILE}' for model '{name}', "
                     f"searched: '{place}'", ("backend",), hint="write it, or name --backend-directory")  # fmt: skip
    elif backend and known is None:
        guess = near(backend, backends.served)
        more = "" if backends.directory else ", and what --backend-directory has"
        hint = f"did you mean '{guess}'?" if guess else f"served here: {served}{more}"
        report.wrong(f"unable to find backend library for backend '{backend}', try specifying runtime on the model "
                   f"configuration. Model {name}", ("backend",), hint=hint)  # fmt: skip
    elif message.runtime not in ("", "model.py"):
        report.wrong(f"runtime '{message.runtime}' {STAGE} for {name}", ("runtime",), hint="remove 'runtime'")


def _place_of(library: BackendInfo, backends: Backends) -> str:
    """Where a backend.py belongs that takes the place of a C library: beside it, or where backends are looked for."""
    beside = Path(library.library).with_name(MODULE_FILE)
    if beside.parent.name == library.name:
        return str(beside)
    place = Path(backends.directory or "DIRECTORY") / library.name / MODULE_FILE
    return str(place) if backends.directory else f"{place} with --backend-directory=DIRECTORY"
