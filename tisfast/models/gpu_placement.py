"""Which GPU an instance gets, and whether it may be loaded there.  Layer 4 (models).

`count` is Triton's: so many instances on each GPU of the group, all of this machine's when it names none.  With the
model's parameter GPU_PLACEMENT "free_memory" it is so many in all, each on the GPU of the group with most to offer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from tisfast import limits
from tisfast.config.backends import PYTHON
from tisfast.config.instance_groups import PlannedInstance, UsableGpus
from tisfast.config.settings import CPU_ONLY
from tisfast.config.unsupported import FORCE_CPU_PARAMETER
from tisfast.errors import Unavailable
from tisfast.executor import Lane
from tisfast.native.cuda_faces import uuid_text
from tisfast.native.cuda_lanes import HANGS
from tisfast.types import NO_DEVICE

if TYPE_CHECKING:
    from tisfast.config.model_config import LoadedConfig
    from tisfast.config.settings import WorkerSettings
    from tisfast.native.nvml import GpuMemory, Gpus

log = logging.getLogger("tisfast.models")

GPU_OF_NONE: Final = limits.DEVICE_MAX + 1
PART: Final = "MIG-"
UUID_PREFIXES: Final = ("GPU-", PART)
NONE_FROM_HERE: Final = ("", "-1")
"""What people write in CUDA_VISIBLE_DEVICES where no further GPU is to be seen."""


def visible_names(visible: str | None, count: int) -> tuple[str, ...]:
    """The GPUs that CUDA would show, as CUDA_VISIBLE_DEVICES names them; visible: its value, None when unset."""
    if visible is None:
        return tuple(str(number) for number in range(count))
    named = [part.strip() for part in visible.split(",")]
    shown = []
    for name in named:
        known = int(name) < count if name.isdecimal() else name.startswith(UUID_PREFIXES)
        if not known:
            break  # CUDA, too, stops at the first that is none
        shown.append(name)
    return tuple(shown)


def _found(visible: str | None, gpus: Gpus) -> tuple[str, ...]:
    """The same, of those that NVML knows, with whole UUIDs: CUDA takes as much of one as tells it from others."""
    count = gpus.count()
    found: list[str] = []
    for name in visible_names(visible, count):
        whole = name if name.isdecimal() else _whole(name, gpus, count)
        if not whole:
            break
        found.append(whole)
    named = [] if visible is None else [part.strip() for part in visible.split(",")]
    if len(found) < len(named) and named[len(found)] not in NONE_FROM_HERE:
        log.warning(
            "CUDA_VISIBLE_DEVICES=%s: '%s' is no GPU here, so it is not used, nor what follows it, as by CUDA; "
            "'nvidia-smi -L' lists the names of GPUs and of their parts", visible, named[len(found)],
        )  # fmt: skip
    return tuple(found)


def _whole(name: str, gpus: Gpus, count: int) -> str:
    """The UUID that a name in CUDA_VISIBLE_DEVICES stands for; "" when it is none, or may be several."""
    if gpus.facts(name) is not None:
        return name
    uuids = (gpus.uuid(str(number)) for number in range(count))
    like = [whole for whole in (uuid_text(each) for each in uuids if each) if whole.startswith(name)]
    return like[0] if len(like) == 1 else ""


_Looked: TypeAlias = "GpuMemory | Unavailable | None"
"""What is known of a GPU's memory: why it is not told, or None where nobody can tell."""


class Place:
    """Where an instance goes.  begun, over: how many instances have begun to load on each GPU so far, and ended it."""

    def __init__(self, instance: PlannedInstance, begun: Counter[int], over: Counter[int]) -> None:
        self.instance = instance
        self._begun, self._over = begun, over
        self._counts = False

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """While it loads, for the first time or again."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def begin(self) -> None:
        """Its need is not known until it has loaded: others are placed as if it were there.  Once is enough."""
        if self.instance.kind == "GPU" and not self._counts:
            self._counts = True
            self._begun[self.instance.device_id] += 1

    def end(self) -> None:
        """It has loaded, or will not.  Once is enough."""
        if self._counts:
            self._counts = False
            self._over[self.instance.device_id] += 1


class Placement:
    """The GPUs that models may use, by number as CUDA counts what is visible."""

    def __init__(
        self,
        names: Sequence[str],
        gpus: Gpus | None = None,
        *,
        capability_min: float = 0.0,
        gpu_limits: Mapping[int, float] | None = None,
        why: str = "",
    ) -> None:
        """names: what is visible; gpus: None without NVML: then all are taken to be good and empty.

        capability_min: GPUs below get no instances; gpu_limits: by a GPU's number, the fraction of its memory that may
        be in use when a model is loaded (--model-load-gpu-limit); why: these names and no others, for messages.
        """
        self._names = tuple(names)
        self._gpus = gpus
        # They stay the same, and asking may hang as a GPU does.
        self.uuids = tuple(None if gpus is None else gpus.uuid(name) for name in self._names)
        self._limits = dict(gpu_limits or {})
        self._lanes: dict[int, Lane] = {}
        self._begun: Counter[int] = Counter()
        self._over: Counter[int] = Counter()
        # NVML counts GPUs in the order of the bus, CUDA its own way, unless it is told so.
        self._order = {} if gpus is None else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        usable = [number for number in range(len(self._names)) if self._is_able(number, capability_min)]
        if weak := [str(number) for number in range(len(self._names)) if number not in usable]:
            text = f"--min-supported-compute-capability={capability_min:g} leaves out GPU {', '.join(weak)}"
            why = f"{why}; {text}" if why else text
        self.usable = UsableGpus(usable, capability_min, why)

    @property
    def are_visible(self) -> bool:
        """Whether there is any, also where models may use none."""
        return bool(self._names)

    @contextlib.asynccontextmanager
    async def placing(self, model: str, instances: Sequence[PlannedInstance]) -> AsyncIterator[tuple[Place, ...]]:
        """Give each instance its device: those that may choose go where most memory is free.

        They count there from the choice on, each until it has loaded, and none when this is left.  Raises Unavailable
        where so much of a GPU is in use that --model-load-gpu-limit lets nothing be loaded, and where it is not told
        how much, as the GPU hangs.
        """
        over = Counter(self._over)  # before the question: what ends meanwhile may not be in the answer
        looked = await self._look(instances)
        places = self._places(model, instances, looked, over)
        try:
            yield places
        finally:
            for place in places:
                place.end()

    def _places(
        self, model: str, instances: Sequence[PlannedInstance], looked: Mapping[int, _Looked], over: Counter[int]
    ) -> tuple[Place, ...]:
        """They are chosen and begin to count in one turn of the loop, so that no other choice is made between."""
        coming = self._begun - over
        placed = tuple(self._placed(instance, looked, coming) for instance in instances)
        for instance, planned in zip(placed, instances, strict=True):
            found = looked.get(instance.device_id) if instance.kind == "GPU" else None
            if isinstance(found, Unavailable):
                raise Unavailable(f"can not create model '{model}': {found.message}")
            if self._is_over_limit(instance.device_id, found):
                raise Unavailable(
                    f"can not create model '{model}': memory limit set for GPU {instance.device_id} has exceeded, "
                    f"model loading is rejected. {self._usage(instance.device_id, found)}".rstrip()
                )
            if planned.candidates:
                log.info("instance %s goes to GPU %d: most memory is free there", instance.name, instance.device_id)
        places = tuple(Place(instance, self._begun, self._over) for instance in placed)
        for place in places:
            place.begin()
        return places

    def variables(self, instance: PlannedInstance) -> dict[str, str]:
        """The environment variables by which a worker sees its GPU only."""
        if instance.kind != "GPU":
            return {}
        return {"CUDA_VISIBLE_DEVICES": self._names[instance.device_id]} | self._order

    def uuid_text(self, number: int) -> str:
        """The UUID of a GPU, or of a part of MIG, as nvidia-smi has it; "" where it is not known."""
        uuid = self.uuids[number]
        return "" if uuid is None else uuid_text(uuid, part=self._names[number].startswith(PART))

    def number_of(self, uuid: bytes, otherwise: int) -> int:
        """The number of a GPU by its UUID, as the server's driver may count in another order than workers do.

        Asks nobody.  One that is none of these has a number that no instance has; otherwise: CUDA's number, which it
        has where neither its UUID nor that of the GPU with this number is known.
        """
        if uuid in self.uuids:
            return self.uuids.index(uuid)
        nobody_tells = otherwise < len(self.uuids) and self.uuids[otherwise] is None
        return otherwise if not uuid or nobody_tells else GPU_OF_NONE

    async def _look(self, instances: Iterable[PlannedInstance]) -> dict[int, _Looked]:
        """Memory of the GPUs that they may be on, or why it is not known, where it decides something."""
        wanted = {each for instance in instances for each in instance.candidates}
        wanted |= {each.device_id for each in instances if each.kind == "GPU" and each.device_id in self._limits}
        if self._gpus is None or not wanted:
            return {}
        devices = sorted(wanted)
        return dict(zip(devices, await asyncio.gather(*map(self._memory, devices)), strict=True))

    async def _memory(self, device: int) -> _Looked:
        """A GPU that hangs may hang whoever asks for its memory: each has a thread of its own."""
        assert self._gpus is not None
        if device not in self._lanes:
            whose = f"{self._text_of(device)}, asked for its free memory,"
            self._lanes[device] = Lane(limits.GPU_CALLS_WAITING_MAX, f"tisfast-gpu-{device}-memory", whose, HANGS)
        try:
            work = partial(self._gpus.memory, self._names[device])
            return await self._lanes[device].call(work, limits.GPU_LOOK_SECONDS_MAX)
        except Unavailable as error:
            return error

    def _placed(
        self, instance: PlannedInstance, looked: Mapping[int, _Looked], coming: Counter[int]
    ) -> PlannedInstance:
        """coming: instances that load and are not seen in what was looked at, by device, with those placed so far."""
        if not instance.candidates:
            return instance

        def room(device: int) -> tuple[int, float, int]:
            return *self._room(device, looked.get(device), coming[device]), -device

        device = max(instance.candidates, key=room)
        coming[device] += 1
        return replace(instance, device_id=device, candidates=())

    def _room(self, device: int, found: _Looked, coming: int) -> tuple[int, float]:
        """How open a device is, and memory for one more instance: a share, as those that are coming will need some."""
        if isinstance(found, Unavailable):
            return -1, -float(coming)
        share = -float(coming) if found is None else found.free / (1 + coming)
        return int(not self._is_over_limit(device, found)), share

    def _is_over_limit(self, device: int, memory: GpuMemory | None) -> bool:
        limit = self._limits.get(device)
        return limit is not None and memory is not None and memory.total - memory.free > memory.total * limit

    def _usage(self, device: int, memory: GpuMemory | None) -> str:
        limit = self._limits[device]
        if memory is None:
            return ""
        return (
            f"({memory.total - memory.free} of its {memory.total} bytes are in use, "
            f"--model-load-gpu-limit={device}:{limit:g} lets {int(memory.total * limit)} be; end others that use it, "
            "or raise the limit)"
        )

    def _text_of(self, device: int) -> str:
        """A GPU in texts: CUDA may have another number for it."""
        uuid = self.uuid_text(device)
        return f"GPU {device} of instance_group" + (f" ({uuid})" if uuid else "")

    def _is_able(self, device: int, capability_min: float) -> bool:
        facts = None if self._gpus is None else self._gpus.facts(self._names[device])
        if facts is None or facts.capability is None or facts.capability >= capability_min:
            return True
        log.warning(
            "no model is put on %s: its compute capability %.1f is less than %.1f "
            "(--min-supported-compute-capability)", self._text_of(device), facts.capability, capability_min,
        )  # fmt: skip
        return False


def device_inputs(config: LoadedConfig, instances: Iterable[PlannedInstance]) -> int:
    """The GPU where a model takes its inputs: all its instances are there, and a Python model has asked for it."""
    said = config.parameters.get(FORCE_CPU_PARAMETER) or ("yes" if config.backend == PYTHON else "no")
    return device_outputs(config, instances) if said == "no" else NO_DEVICE


def device_outputs(config: LoadedConfig, instances: Iterable[PlannedInstance]) -> int:
    """The GPU that a model's workers write outputs to: all its instances are there, and can leave tensors there."""
    gpus = {instance.device_id if instance.kind == "GPU" else NO_DEVICE for instance in instances}
    backend = config.backends.named(config.backend)
    can = config.backend == PYTHON or (backend is not None and backend.on_gpu)
    return gpus.pop() if can and len(gpus) == 1 else NO_DEVICE


def placement(settings: WorkerSettings, gpus: Gpus | None, fallback: int) -> Placement:
    """The placement of this machine.  gpus: None without NVML; fallback: GPUs that the driver shows elsewhere then."""
    if settings.cpu_only:
        why = f"{CPU_ONLY} is set, and any value of it leaves the server no GPU; unset it"
        return Placement((), why=why)
    names = visible_names(settings.cuda_visible, fallback) if gpus is None else _found(settings.cuda_visible, gpus)
    why = _why(names, settings.cuda_visible, gpus, fallback)
    limited = [(number, f"--model-load-gpu-limit={number}:{limit:g} limits") for number, limit in settings.gpu_limits]
    lent = [(number, f"--cuda-memory-pool-byte-size={number}:{nbytes} lends") for number, nbytes in settings.cuda_pools]
    for number, what in [*limited, *lent]:
        if number >= len(names):
            log.warning("%s nothing: there is no GPU %d (%s)", what, number, why)
    return Placement(
        names,
        gpus,
        capability_min=settings.capability_min,
        gpu_limits=dict(settings.gpu_limits),
        why=why,
    )


def _why(names: Sequence[str], visible: str | None, gpus: Gpus | None, fallback: int) -> str:
    """What made these the GPUs of this server."""
    if gpus is None and not names and not fallback:
        return "the server finds no NVIDIA driver that works; look whether 'nvidia-smi' works here"
    who, here = "this machine has", ""
    if visible is not None and (gpus is None or gpus.count()):
        who, here = f"CUDA_VISIBLE_DEVICES={visible:.60} leaves the server", " here"
    if len(names) > 1:
        return f"{who} {len(names)} GPUs, which have the numbers 0 to {len(names) - 1}{here}"
    return f"{who} 1 GPU, which has number 0{here}" if names else f"{who} no GPU"
