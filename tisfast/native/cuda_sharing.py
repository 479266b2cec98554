"""Whether GPU memory can be shared with other processes here (CUDA IPC), and why not.  Layer 1 (native).

What is known without a CUDA context is looked at once, when the server starts: a context takes hundreds of MB of GPU
memory.  The rest shows when a handle is first made or opened.  Each reason is logged once.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from tisfast import limits
from tisfast.native import cuda_look
from tisfast.native.cuda_faces import uuid_text

log = logging.getLogger("tisfast.gpu")
KERNEL: Final = Path("/proc/sys/kernel/osrelease")
WSL: Final = "microsoft"
"""A part of the name of WSL2's kernel."""
DOCS: Final = "'tisfast docs gpu', \"Containers, MIG, WSL2\""
OUT_OF_MEMORY: Final = "out of memory"
"""A part of the driver's text for CUDA_ERROR_OUT_OF_MEMORY."""
HOST_INSTEAD: Final = "tensors go from model to model by way of host memory"
TRIED: Final = f"CUDA regions are tried, and where the driver refuses a handle, it is said once and {HOST_INSTEAD}"
CONTAINERS: Final = (
    "Processes in several containers need one IPC and one PID namespace (docker run --ipc=host --pid=host), the same "
    f"GPU and the same user ({DOCS})"
)


class SeenGpu(NamedTuple):
    """One GPU as CUDA counts them in this process' environment; None for what the driver does not tell.

    uuid: of the GPU, or of the part of MIG that it is (`part`); ipc: whether it supports CUDA IPC; integrated: its
    memory is the processor's.
    """

    name: str
    uuid: bytes
    ipc: bool | None
    integrated: bool | None
    part: bool

    @property
    def logged(self) -> str:
        """Its UUID as nvidia-smi has it, and its name."""
        return f"{uuid_text(self.uuid, part=self.part)} ({self.name})" if self.uuid else self.name


class Unseen(NamedTuple):
    """Why the driver cannot be asked.  is_crash: it ended the process that asked it, so that no other is to ask;
    is_open: the process that asked has not said anything, so nothing is known.
    """

    reason: str
    is_crash: bool = False
    is_open: bool = False


def seen_gpus(
    script: str = cuda_look.__file__,
    seconds: float = limits.GPU_LOOK_SECONDS_MAX,
    start: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen,
) -> list[SeenGpu] | Unseen:
    """All of them.  Takes as long as the driver to begin, or twice `seconds`; start: makes the process.

    script: told this process' id, as it ends with it.
    """
    try:
        command = [sys.executable, "-I", script, str(os.getpid())]
        process = start(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return Unseen(_given_up(process, seconds), is_open=True)
        if process.returncode:
            text, crashed = f"a trial of it ended with exit status {process.returncode}", process.returncode < 0
            return Unseen(text, is_crash=crashed, is_open=not crashed)
        found = json.loads(output)
    except (OSError, ValueError) as error:
        return Unseen(f"a trial of it failed: {error}", is_open=True)
    if "error" in found:
        return Unseen(str(found["error"]))
    return [_seen(gpu) for gpu in found["gpus"]]


def _given_up(process: subprocess.Popen[bytes], seconds: float) -> str:
    """What is said of a trial that has not ended.  One that waits in the driver cannot be killed: it is left behind."""
    process.kill()
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        if process.stdout is not None:
            process.stdout.close()
        return (
            f"the driver does not answer: a trial of it, process {process.pid}, has not ended within {seconds:g} s, "
            f"nor within {seconds:g} s after it was killed"
        )
    return f"a trial of it has not ended within {seconds:g} s"


def _seen(gpu: dict[str, Any]) -> SeenGpu:
    ipc, integrated = (None if gpu[key] is None else bool(gpu[key]) for key in ("ipc", "integrated"))
    return SeenGpu(gpu["name"], bytes.fromhex(gpu["uuid"]), ipc, integrated, gpu["part"])


def is_wsl(kernel: Path = KERNEL) -> bool:
    """Whether this is WSL2."""
    try:
        return WSL in kernel.read_text().lower()
    except OSError:
        return False


class InstanceGpus(Protocol):
    """The GPUs of instances, by their numbers in `instance_group`."""

    @property
    def uuids(self) -> tuple[bytes | None, ...]:
        """None: not known."""

    @property
    def usable(self) -> tuple[int, ...]:
        """Those that models may be on."""

    def uuid_text(self, number: int) -> str:
        """As nvidia-smi has it; "" where it is not known."""

    def number_of(self, uuid: bytes, otherwise: int) -> int:
        """The number of the GPU that CUDA counts as `otherwise`; more than limits.DEVICE_MAX where it is none."""


def sentences(seen: list[SeenGpu] | Unseen, *, wsl: bool, instances: InstanceGpus | None = None) -> list[str]:
    """What is to be said of CUDA IPC here, a sentence for each reason: which GPUs, why, what follows, what to do."""
    if isinstance(seen, Unseen) and seen.is_open:
        return [f"it is not known whether the CUDA driver can be used ({seen.reason}). {TRIED} ({DOCS})"]
    if isinstance(seen, Unseen):
        return [
            f"the CUDA driver cannot be used ({seen.reason}): CUDA regions are refused, and {HOST_INSTEAD}. Look "
            f"whether 'nvidia-smi' works here ({DOCS})"
        ]
    about: dict[str, list[str]] = {}
    for number, gpu in enumerate(seen):
        if said := _said(gpu, wsl=wsl):
            about.setdefault(said, []).append(f"{number} ({gpu.name})")
    found = [f"GPU {', '.join(gpus)}: {said}" for said, gpus in about.items()]
    return found if instances is None else [*found, *_apart(seen, instances)]


def _apart(seen: list[SeenGpu], instances: InstanceGpus) -> list[str]:
    """What is to be said where the server sees other GPUs than instances."""
    here = [
        f"{at} ({gpu.name})"
        for at, gpu in enumerate(seen)
        if gpu.ipc is not False and not gpu.part and instances.number_of(gpu.uuid, at) > limits.DEVICE_MAX
    ]
    if not here or None in instances.uuids:  # else it may be the one that is not known
        return []
    there = ", ".join(f"{number} ({gpu})" for number, gpu in _unseen(seen, instances))
    there = f". It does not see GPU {there} of instance_group, where {HOST_INSTEAD}" if there else ""
    return [
        f"GPU {', '.join(here)}: the server sees it and instances do not, so all tensors in CUDA regions on it are "
        f"copied{there}. Most likely CUDA counts different GPUs in another order than nvidia-smi, and the numbers of "
        "CUDA_VISIBLE_DEVICES are CUDA's for the server, and nvidia-smi's for instances. Start the server with "
        "CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by their UUIDs in CUDA_VISIBLE_DEVICES ('tisfast docs gpu', "
        '"What is copied")'
    ]


def _unseen(seen: list[SeenGpu], instances: InstanceGpus) -> list[tuple[int, str]]:
    """GPUs of instances that CUDA does not show the server: number and UUID.  Of whole GPUs whose UUIDs are known."""
    if any(gpu.part or not gpu.uuid for gpu in seen):
        return []
    shown = {gpu.uuid for gpu in seen}
    known = enumerate(instances.uuids)
    return [(at, instances.uuid_text(at)) for at, uuid in known if uuid is not None and uuid not in shown]


def _said(gpu: SeenGpu, *, wsl: bool) -> str:
    if gpu.ipc is False:
        return (
            f"its driver supports no CUDA IPC here: CUDA regions on it are refused, and {HOST_INSTEAD}. Clients can "
            f"use system shared memory ({DOCS})"
        )
    if gpu.part:
        return (
            "here CUDA shows a part of MIG. Unless CUDA_VISIBLE_DEVICES=MIG-... names the part to the server, all "
            "tensors go by way of host memory, those in CUDA regions too. CUDA IPC does not work across GPU instances "
            "of MIG: client and models must be on the same one, best named to both in this way. "
            f"{TRIED} ({DOCS})"
        )
    if wsl:
        return (
            f"this is WSL2, where CUDA IPC is not reliable, whatever the driver. {TRIED}. Clients can use system "
            f"shared memory ({DOCS})"
        )
    if gpu.integrated:
        return (
            "its memory is the processor's, and Tegra shares that by CUDA IPC only from Jetson Thor and CUDA 13.0 on. "
            f"{TRIED}. Clients can use system shared memory ({DOCS})"
        )
    return ""


class CudaSharing:
    """What the server knows of CUDA IPC, and what it has said of it.  From any thread."""

    def __init__(self, instances: InstanceGpus | None = None) -> None:
        """Nothing has been looked at: everything may work."""
        self._instances = instances
        self._seen: list[SeenGpu] = []
        self._crashed = ""
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def look(self) -> None:
        """Look at the machine's GPUs, and log which they are, and what is to be said, a line for each.

        For a thread beside the start.
        """
        seen = seen_gpus()
        if not isinstance(seen, Unseen):
            self._seen = seen
            if seen:
                which = "; ".join(f"{at} is {gpu.logged}{self._for_instances(at, gpu)}" for at, gpu in enumerate(seen))
                hidden = [] if self._instances is None else _unseen(seen, self._instances)
                which += "".join(f"; the server does not see {gpu}, GPU {at} of instance_group" for at, gpu in hidden)
                log.info("GPUs by CUDA's numbers, which are the device_id of CUDA regions: %s", which)
        elif seen.is_crash:
            self._crashed = f"the CUDA driver cannot be used: {seen.reason}"
        if said := sentences(seen, wsl=is_wsl(), instances=self._instances):  # who reads it can rely on what it says
            log.warning("sharing GPU memory with other processes: %s", "; ".join(said))

    def _for_instances(self, number: int, gpu: SeenGpu) -> str:
        """Its number for them, in the log; "" where its UUID is none of theirs."""
        instances = self._instances
        there = number if instances is None else instances.number_of(gpu.uuid, number)
        if there > limits.DEVICE_MAX:
            return ""
        may = "" if instances is None or there in instances.usable else ", where no model may be"
        return f", GPU {there} of instance_group{may}"

    def refusal(self, number: int) -> str:
        """Why no handle of this GPU, as CUDA counts them, can work; "" where one may."""
        seen = self._seen
        refused = 0 <= number < len(seen) and seen[number].ipc is False
        return _NONE.format(number) if refused else self._crashed

    def refusal_of(self, uuid: bytes) -> str:
        """The same of the GPU with this UUID."""
        return next((self.refusal(at) for at, gpu in enumerate(self._seen) if gpu.uuid == uuid), self._crashed)

    def failed(self, what: str, reason: str, follows: str, *, of_client: bool = False, once: str = "") -> None:
        """Log what failed, the driver's reason, and what follows; with the remedy, where handles do not work.

        of_client: the memory is; once: of which kind each reason is logged once, "": of `what`.
        """
        key = f"{once or what}: {reason}"[: limits.TOLD_ONCE_CHARS_MAX]
        with self._lock:
            if key in self._told or len(self._told) >= limits.TOLD_ONCE_MAX:
                return
            self._told.add(key)
        again = ". The log says this once for each reason" if once else ""
        log.warning("%s (%s): %s%s%s", what, reason, follows, _remedy(reason, of_client=of_client), again)


def _remedy(reason: str, *, of_client: bool) -> str:
    """The likeliest cause first."""
    if OUT_OF_MEMORY in reason:
        return ""  # who has failed says what to free
    if "cuIpcOpen" in reason and of_client:
        return f". Most likely the client has freed this memory, or has ended. Else: {CONTAINERS}"
    return f". {CONTAINERS}" if "cuIpc" in reason else ""


_NONE: Final = (
    "the NVIDIA driver says that GPU {} does not support CUDA IPC, by which processes share its memory. Clients can "
    "use system shared memory"
)
