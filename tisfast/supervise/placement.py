"""How many instances a model has, and on which device each one is (rows 15.35 to 15.37).  Layer 4 (supervise)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tisfast import limits
from tisfast.errors import BadRequest, Unsupported
from tisfast.supervise import machine


class Place(NamedTuple):
    """One instance to be.  kind: CPU, GPU or MODEL; device: its GPU, 0 for none."""

    instance: str
    kind: str
    device: int
    env: dict[str, str]


def places(
    model: str, groups: Sequence[Mapping[str, Any]], gpus: Sequence[int], cuda_visible: str | None
) -> list[Place]:
    """All instances of a model.  groups: `instance_group` of its config; none means one instance, KIND_AUTO.

    Raises BadRequest with Triton's texts.
    """
    found: list[Place] = []
    for index, group in enumerate(groups or [{}]):
        name = group.get("name") or f"{model}_{index}"
        count = min(int(group.get("count") or 1), limits.INSTANCES_MAX + 1)
        slots = [device for device in _devices(model, name, group, gpus) for _ in range(count)]
        if len(found) + len(slots) > limits.INSTANCES_MAX:
            raise BadRequest(f"model {model} asks for more than {limits.INSTANCES_MAX} instances")
        found += [_place(f"{name}_{i}", group, device, cuda_visible) for i, device in enumerate(slots)]
    names = [place.instance for place in found]
    if len(set(names)) != len(names):
        raise BadRequest(f"instance groups of model {model} give two instances the same name: {sorted(names)}")
    return found


def _devices(model: str, name: str, group: Mapping[str, Any], gpus: Sequence[int]) -> list[int | None]:
    """The GPUs of a group; [None] for one that uses none."""
    kind = group.get("kind", "KIND_AUTO")
    wanted = [int(gpu) for gpu in group.get("gpus") or []]
    if kind in ("KIND_CPU", "KIND_MODEL"):
        if wanted:
            raise BadRequest(f"instance group {name} of model {model} has kind {kind} but specifies one or more GPUs")
        return [None]
    if not gpus:
        if kind == "KIND_GPU":
            raise BadRequest(f"instance group {name} of model {model} has kind KIND_GPU but no GPUs are available")
        if wanted:
            raise BadRequest(
                f"instance group {name} of model {model} specifies GPUs {wanted} but no GPUs are available"
            )
        return [None]
    unknown = [gpu for gpu in wanted if gpu not in gpus]
    if unknown:
        raise BadRequest(
            f"instance group {name} of model {model} specifies invalid or unsupported gpu id {unknown[0]}. "
            f"GPUs with at least the minimum required CUDA compute compatibility of 6.000000 are: "
            + " ".join(str(gpu) for gpu in gpus)
        )
    return list(wanted or gpus)


def _place(instance: str, group: Mapping[str, Any], device: int | None, cuda_visible: str | None) -> Place:
    if group.get("passive"):
        raise Unsupported(f"instance group of {instance} is passive, which tisfast does not serve")
    if device is not None:
        # The worker sees this one GPU only, and counts it as 0 (CUDA does), so that models cannot land on another.
        return Place(instance, "GPU", 0, {"CUDA_VISIBLE_DEVICES": machine.device_name(device, cuda_visible)})
    return Place(instance, "MODEL" if group.get("kind") == "KIND_MODEL" else "CPU", 0, {})
