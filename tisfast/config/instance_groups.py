"""Instance groups: how many workers, on which devices.  Layer 2 (config)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tisfast import limits
from tisfast.config import rate_limits
from tisfast.config.error_report import Report
from tisfast.config.rate_limits import RateLimit
from tisfast.config.resource_flags import COMPUTE_CAPABILITY_MIN
from tisfast.config.schema import Message, is_ensemble

AUTO, GPU, CPU, MODEL = range(4)  # ModelInstanceGroup.Kind
KINDS: Final = {GPU: "GPU", CPU: "CPU", MODEL: "MODEL"}
_HIDDEN: Final = (
    " that CUDA_VISIBLE_DEVICES, --min-supported-compute-capability and TRITON_SERVER_CPU_ONLY leave the server"
)


class UsableGpus(tuple[int, ...]):
    """Device ids of the GPUs that instances may use.

    capability_min: what the others lack; why: which GPUs these are, and what hides others, for messages.
    """

    capability_min: float
    why: str

    def __new__(
        cls, ids: Iterable[int] = (), capability_min: float = COMPUTE_CAPABILITY_MIN, why: str = ""
    ) -> UsableGpus:
        """See the class."""
        made = super().__new__(cls, ids)
        made.capability_min, made.why = capability_min, why
        return made


@dataclass(frozen=True)
class InstanceGroup:
    """`count` instances on each device.  kind: "CPU", "GPU" or "MODEL"; gpus: device ids, empty unless kind is GPU.

    by_free_memory: `count` instances in all, each on whichever of the devices has most memory free.
    """

    name: str
    kind: str
    count: int
    gpus: tuple[int, ...]
    rate_limit: RateLimit = field(default_factory=RateLimit)
    by_free_memory: bool = False


@dataclass(frozen=True)
class PlannedInstance:
    """One worker to start.  name: group_index, counted over the devices; device_id: 0 unless kind is GPU.

    candidates: devices of which one is chosen when the instance is loaded (models/gpu_placement.py); device_id is the
    first of them until then.
    """

    name: str
    kind: str
    device_id: int
    rate_limit: RateLimit = field(default_factory=RateLimit)
    candidates: tuple[int, ...] = ()


def normalise(message: Message, gpus: tuple[int, ...], *, on_cpu: bool = False) -> None:
    """Triton's defaults: one group named after the model; names, counts, kinds and devices where they are left open."""
    if not message.instance_group:
        message.instance_group.add(name=message.name)
    for index, group in enumerate(message.instance_group):
        group.name = group.name or f"{message.name}_{index}"
        group.count = group.count or 1
        if group.kind == AUTO:
            group.kind = GPU if gpus and not on_cpu else CPU
        if group.kind == GPU and not group.gpus:
            group.gpus.extend(gpus)


def read(
    message: Message, report: Report, gpus: tuple[int, ...], *, by_free_memory: bool = False
) -> tuple[InstanceGroup, ...]:
    """The groups of a normalised message; what is wrong goes to the report.

    by_free_memory: how `count` is to be read where the kind is GPU (config/resources.py).
    """
    if is_ensemble(message):
        return ()
    seen: dict[str, int] = {}
    for index, group in enumerate(message.instance_group):
        _check(message, index, report, gpus)
        if seen.setdefault(group.name, index) != index:
            report.wrong(
                f"instance group name '{group.name}' is given twice for {message.name}",
                ("instance_group", index, "name"), hint="give each group a name of its own, or none",
            )  # fmt: skip
    groups = tuple(
        InstanceGroup(
            g.name, KINDS[g.kind], g.count, tuple(g.gpus), rate_limits.read(message, index, report),
            by_free_memory and g.kind == GPU,
        )
        for index, g in enumerate(message.instance_group)
    )  # fmt: skip
    total = sum(group.count * (1 if group.by_free_memory else max(1, len(group.gpus))) for group in groups)
    if total > limits.INSTANCES_MAX:
        report.wrong(f"{total} instances for {message.name}, more than {limits.INSTANCES_MAX}", ("instance_group",),
                   hint="lower 'count'")  # fmt: skip
    return groups


def instances(groups: tuple[InstanceGroup, ...]) -> tuple[PlannedInstance, ...]:
    """Every worker of the groups.  Triton repeats a name on each GPU; here the numbers go on, so that names differ."""
    return tuple(
        PlannedInstance(f"{group.name}_{number}", group.kind, device, group.rate_limit, candidates)
        for group in groups
        for number, (device, candidates) in enumerate(_devices(group))
    )


def _devices(group: InstanceGroup) -> list[tuple[int, tuple[int, ...]]]:
    """(device, candidates) of each instance."""
    if group.by_free_memory:
        return [(group.gpus[0], group.gpus)] * group.count if group.gpus else []
    return [(device, ()) for _ in range(group.count) for device in group.gpus or (0,)]


def _check(message: Message, index: int, report: Report, gpus: tuple[int, ...]) -> None:
    group, path = message.instance_group[index], ("instance_group", index)
    about = f"instance group {group.name} of model {message.name}"
    if report.is_broken((*path, "kind")):
        return
    if group.count < 0:
        report.wrong(f"{about} has count {group.count}", (*path, "count"), hint="give 1 or more")
    if group.kind != GPU:
        if group.gpus:
            report.wrong(f"{about} has kind KIND_{KINDS[group.kind]} but specifies one or more GPUs", (*path, "gpus"),
                       hint="remove 'gpus', or set kind: KIND_GPU")  # fmt: skip
        return
    if not group.gpus:
        report.wrong(f"{about} has kind KIND_GPU but no GPUs are available", (*path, "kind"), hint=_hint(gpus))
    for number, gpu in enumerate(group.gpus):
        if gpu not in gpus:
            usable = ", ".join(map(str, gpus)) or "none"
            least = gpus.capability_min if isinstance(gpus, UsableGpus) else COMPUTE_CAPABILITY_MIN
            report.wrong(
                f"{about} specifies invalid or unsupported gpu id {gpu}. GPUs with at least the minimum required CUDA "
                f"compute compatibility of {least:f} are: {usable}",
                (*path, "gpus", number), hint=_hint(gpus),
            )  # fmt: skip


def _hint(gpus: tuple[int, ...]) -> str:
    """What to do where an instance cannot be on the GPU that is asked for."""
    why = gpus.why if isinstance(gpus, UsableGpus) else ""
    if gpus:
        return f"name one of these: {why}" if why else f"name a GPU of this machine{_HIDDEN}"
    where = f"the server can use a GPU: {why}" if why else f"there is a GPU{_HIDDEN}"
    return f"set kind: KIND_CPU, or start where {where}"
