"""Parameters by which a model says what it needs of the machine (docs/resources.md).  Layer 2 (config).

tisfast's own: ModelConfig has no fields for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from tisfast import limits
from tisfast.config.error_report import Report
from tisfast.config.schema import Message
from tisfast.config.whole_numbers import whole_number

CPU_THREADS: Final = "CPU_THREADS"
RETRY: Final = "OUT_OF_MEMORY_RETRY"
PLACEMENT: Final = "GPU_PLACEMENT"
KEEP_AWAKE: Final = "KEEP_AWAKE"
EXECUTION_SECONDS: Final = "EXECUTION_TIMEOUT_SECONDS"
STRICT_OUTPUTS: Final = "STRICT_OUTPUTS"
BACKEND_ENVIRONMENT: Final = "BACKEND_ENVIRONMENT"
THREAD_VARIABLES: Final = (  # as workers/tisfast_worker/process_setup.py has them
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "BLIS_NUM_THREADS",
)  # fmt: skip
NEVER: Final = "never"
RETRIES: Final = (NEVER, "once", "halves")
EVERY_GPU, FREE_MEMORY = PLACEMENTS = ("every_gpu", "free_memory")
_BOOLEANS: Final = {"true": True, "false": False}
_SWITCHES: Final = {"auto": True, "off": False}


@dataclass(frozen=True)
class Resources:
    """Resources that a model's parameters ask for.

    cpu_threads: of each instance, 0 for its share of the cores; retry: of an execution that ran out of memory, one of
    RETRIES; free_memory: `count` is of all GPUs together; keep_awake: --model-memory-budget leaves it be;
    execution_seconds_max: None for the server's own; strict_outputs: outputs that are not what the configuration says
    are errors, None for what the server's flag says; backend_environment: --backend-environments, in the same manner.
    """

    cpu_threads: int = 0
    retry: str = NEVER
    free_memory: bool = False
    keep_awake: bool = False
    execution_seconds_max: float | None = None
    strict_outputs: bool | None = None
    backend_environment: bool | None = None


def read(message: Message, report: Report) -> Resources:
    """Read the parameters of a normalised message; errors go to the report."""
    retry = _choice(message, report, RETRY, RETRIES)
    if retry != NEVER and (message.HasField("sequence_batching") or message.model_transaction_policy.decoupled):
        kind = "sequences" if message.HasField("sequence_batching") else "decoupled answers"
        report.wrong(
            f"parameter {RETRY} '{retry}' of {message.name}: a model with {kind} cannot be executed again, as a "
            "part may be done already", ("parameters", RETRY), hint="remove it",
        )  # fmt: skip
    return Resources(
        cpu_threads=_threads(message, report),
        retry=retry,
        free_memory=_choice(message, report, PLACEMENT, PLACEMENTS) == FREE_MEMORY,
        keep_awake=_choice(message, report, KEEP_AWAKE, tuple(reversed(_BOOLEANS))) == "true",
        execution_seconds_max=_execution_seconds(message, report),
        strict_outputs=_BOOLEANS.get(_choice(message, report, STRICT_OUTPUTS, ("", *_BOOLEANS))),
        backend_environment=_SWITCHES.get(_choice(message, report, BACKEND_ENVIRONMENT, ("", *_SWITCHES))),
    )


def thread_variables(resources: Resources) -> dict[str, str]:
    """Variables of a worker whose model says how many threads it wants: they win over those of the server."""
    return dict.fromkeys(THREAD_VARIABLES, str(resources.cpu_threads)) if resources.cpu_threads else {}


def _choice(message: Message, report: Report, key: str, choices: tuple[str, ...]) -> str:
    """The parameter's value; the first choice where there is none."""
    if key not in message.parameters:
        return choices[0]
    value = str(message.parameters[key].string_value)
    if value not in choices:
        report.wrong(
            f"parameter {key} of {message.name} is '{value}'",
            ("parameters", key),
            hint=f"give {', '.join(filter(None, choices))}",
        )
        return choices[0]
    return value


def _threads(message: Message, report: Report) -> int:
    if CPU_THREADS not in message.parameters:
        return 0
    value = str(message.parameters[CPU_THREADS].string_value)
    number = whole_number(value, limits.CPU_THREADS_MAX)
    if not number:
        report.wrong(
            f"parameter {CPU_THREADS} of {message.name} is '{value:.60}'", ("parameters", CPU_THREADS),
            hint=f"give a whole number from 1 to {limits.CPU_THREADS_MAX}",
        )  # fmt: skip
        return 0
    return number


def _execution_seconds(message: Message, report: Report) -> float | None:
    value = str(message.parameters[EXECUTION_SECONDS].string_value) if EXECUTION_SECONDS in message.parameters else ""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < inf:
        report.wrong(
            f"parameter {EXECUTION_SECONDS} of {message.name} is '{value}'", ("parameters", EXECUTION_SECONDS),
            hint="give a number of seconds above 0",
        )  # fmt: skip
        return None
    return seconds
