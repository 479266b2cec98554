"""Models that guests serve: they come with a configuration and without a folder, and go with their guest.

Layer 4 (models).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tisfast import limits
from tisfast.config import schema
from tisfast.config.backends import PYTHON, Backends
from tisfast.config.model_config import ConfigDraft, LoadedConfig, finish, parse, parse_json_form
from tisfast.config.unsupported import STRATEGY_PARAMETER
from tisfast.config.warm_up_samples import FILE
from tisfast.errors import BadRequest, Internal, TisError, Unavailable
from tisfast.models.caching import SALT_BYTES
from tisfast.models.loader import Births, LoadContext, ModelExtras, Version, VersionFolders, assemble, gather
from tisfast.processes import machine
from tisfast.processes.guests import Guest, Seat
from tisfast.processes.worker import Birth, Worker
from tisfast.repo.layout import GIVEN_NAME, VERSION_MAX, is_given_name
from tisfast.repo.scan_result import ModelSource, VersionSource
from tisfast.repo.snapshot import Snapshot
from tisfast.types import NO_DEVICE

if TYPE_CHECKING:
    from tisfast.config.instance_groups import PlannedInstance
    from tisfast.engine.registry import Registry
    from tisfast.models.draining import DrainingCopies
    from tisfast.models.gpu_placement import Place
    from tisfast.models.lifecycle import Lifecycle
    from tisfast.models.served_model import ServedModel
    from tisfast.processes.control_socket import Message

log = logging.getLogger("tisfast.guests")
NOWHERE: Final = Path(os.devnull)
"""The folder of a model that has none: nothing lies below it."""
_RETURN = "try again: it is served when its guest has returned"
_TAKEN = "another guest serves a model of this name now"
_LEFT = "its guest has taken it away; it is served again when the guest brings it"


class LostRequests:
    """Texts for the requests of a guest that has gone (worker.DeathsFace)."""

    def advice(self, requests: Sequence[Any]) -> dict[str, list[Any]]:
        """The same text for each request."""
        return {_RETURN: list(requests)}


class GuestHost:
    """The guest's own process as a host of workers (loader.WorkerHost)."""

    def leave(self) -> None:
        """There is nothing to leave."""


class GuestModel:
    """One model of a guest, from its order to its end."""

    def __init__(self, guest: Guest, name: str, version: str, order: int) -> None:
        """order: the number of the guest's order."""
        self.guest, self.name, self.version, self.order = guest, name, version, order
        self.served: ServedModel | None = None
        self.leaving = False
        self.ending = False

    @property
    def title(self) -> str:
        """For sentences."""
        return f"model '{self.name}' version {self.version} of {self.guest.title}"


class GuestModels:
    """All of a server, by name.  Event-loop thread only."""

    def __init__(
        self,
        context: LoadContext,
        registry: Registry,
        lifecycle: Lifecycle,
        leaving: DrainingCopies,
        checks: GuestChecks,
    ) -> None:
        self._context, self._registry, self._lifecycle, self._leaving = context, registry, lifecycle, leaving
        self._checks = checks
        self._models: dict[str, GuestModel] = {}
        self._loading: set[GuestModel] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    @property
    def served(self) -> list[ServedModel]:
        """Those that can be asked, or are about to be."""
        return [each.served for each in self._models.values() if each.served is not None]

    def of(self, name: str, version: str) -> ServedModel | None:
        """The runtime that serves a version, None when none does."""
        model = self._models.get(name)
        return model.served if model is not None and model.version == version else None

    def why(self, name: str) -> str:
        """Why a model of this name can neither be loaded nor unloaded by order; "" where no guest has it."""
        model = self._models.get(name)
        return "" if model is None else f"model '{name}' is served by the {model.guest.title}, and leaves with it"

    # ---- what guests want (guests.GuestModelsFace)

    async def serve(self, guest: Guest, order: Message) -> None:
        """Have the guest's model served.  Raises TisError."""
        name, version = _name(order), _version(order)
        if len(self._of(guest)) >= limits.GUEST_MODELS_MAX:
            raise Unavailable(
                f"model '{name}': the {guest.title} serves {limits.GUEST_MODELS_MAX} models, which is the limit for "
                "one guest; let one leave, or serve it in another process"
            )
        model = GuestModel(guest, name, version, order["n"])
        self._loading.add(model)
        try:
            config = await asyncio.to_thread(self._checks.read, name, order)
            async with self._lifecycle.kept_from(name):
                await self._take(model, config, take_over=order.get("take_over") is True)
        finally:
            self._loading.discard(model)

    async def leave(self, guest: Guest, name: str) -> None:
        """No longer, as the guest wishes: done when its last request is answered.  Raises TisError."""
        loading = [each for each in self._loading if each.guest is guest and each.name == name]
        if loading:
            for each in loading:
                each.leaving = True  # it is let go of when it has been loaded
            return
        model = self._models.get(name)
        if model is None or model.guest is not guest or model.served is None:
            raise BadRequest(f"model '{name}' is not served by this guest")
        model.leaving = True
        self._take_away(model, _LEFT, read=False)
        done: asyncio.Future[None] = self._context.place.loop.create_future()
        message = f"{model.title} was taken away by its guest; try again"
        self._leaving.begin(model.served, message, partial(_gone, model, done))
        await done
        log.info("%s has left", model.title, extra=_facts(model))

    def lost(self, guest: Guest, reason: str) -> None:
        """The guest has gone, in whatever way."""
        for model in self._of(guest):
            self._end(model, f"the {guest.title} {reason}; {_RETURN}")
        if guest.welcome:
            log.info("%s %s", guest.title, reason)

    async def stop(self, seconds: float, why: str) -> None:
        """At the end of the server."""
        self._stopping = True
        models = list(self._models.values())
        for model in models:
            model.leaving = True
        await asyncio.gather(*(each.served.stop(seconds, why) for each in models if each.served is not None))
        for model in models:
            if model.served is not None and self._models.pop(model.name, None) is model:
                self._registry.remove(model.served.runtime)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- parts

    def _of(self, guest: Guest) -> list[GuestModel]:
        return [each for each in self._models.values() if each.guest is guest]

    async def _take(self, model: GuestModel, config: LoadedConfig, *, take_over: bool) -> None:
        """Load it; what had the name serves until then.  Raises TisError."""
        if self._stopping:
            raise Unavailable("the server is stopping")
        before = self._models.get(model.name)
        if before is not None and not take_over:
            raise BadRequest(f"{self.why(model.name)}; choose another name")
        if before is None:
            self._models[model.name] = model
            self._registry.declare(model.name, model.version, "LOADING")
        try:
            replaced = await self._load(model, config)
        except BaseException as error:
            if before is None:
                self._failed(model, error)
            raise
        if replaced is not None and replaced.served is not None:
            self._hand_over(replaced)

    def _hand_over(self, model: GuestModel) -> None:
        """Its name is another guest's from now on: it answers what it has, and its own guest goes on."""
        model.leaving = True
        model.guest.tell({"t": "taken", "n": model.order, "name": model.name})
        served = model.served
        assert served is not None

        def gone() -> None:
            model.served = None  # as in `_gone`
            self._registry.unloaded(model.name, model.version)

        self._leaving.begin(served, f"{model.title}: {_TAKEN}; try again", gone)
        log.info("%s has lost its name to another guest", model.title, extra=_facts(model))

    async def _load(self, model: GuestModel, config: LoadedConfig) -> GuestModel | None:
        """What had the name until the end of the load: a copy that has left meanwhile is let go of already."""
        version = Version(_source(config, int(model.version)), VersionSource(int(model.version), NOWHERE, NOWHERE))
        places = VersionFolders("", "", machine.arena_use_bytes(), "")
        beside = ModelExtras([()] * len(config.outputs), None, os.urandom(SALT_BYTES), places)
        async with self._context.commons.placement.placing(config.name, config.instances) as placed:
            births = self._births(model)
            served = await assemble(self._context, version, config, beside, births, GuestHost(), placed)
        # Clients' shared memory may vanish, which raises a signal where it is read, and signals are the user's there.
        signature = served.runtime.signature
        signature.copies_regions = signature.copies_devices = True
        # A guest that is sent away lives on, so nothing on a GPU is lent to it: it would write there still.
        signature.device_inputs = signature.device_inputs_meant = signature.device_outputs = NO_DEVICE
        try:
            await gather(*(instance.load() for instance in served.instances))
            if self._stopping or any(instance.is_over for instance in served.instances):
                raise Internal(f"an instance of {model.title} has ended meanwhile, or the server is stopping")
            if model.leaving:
                raise BadRequest(f"{model.title} was taken away by its guest while it was loaded")
        except BaseException:
            await served.stop(0, "the model failed to load")
            raise
        model.served = served
        served.loaded()
        replaced = self._models.get(model.name)
        self._models[model.name] = model
        self._registry.switch(model.name, [served.runtime])
        log.info("%s is served by %d instance(s)", model.title, len(served.instances), extra=_facts(model))
        return None if replaced is model else replaced

    def _births(self, model: GuestModel) -> Births:
        told, lost = set[str](), LostRequests()

        def bear(worker: Worker) -> Seat:
            worker.ended.add_done_callback(lambda ended: self._instance_ended(model, ended.result().text))
            return Seat(worker, model.guest, model.order)

        def birth(planned: PlannedInstance, _place: Place, load: Message) -> Birth:
            return Birth(
                name=planned.name, load=load, nursery=None, planned=planned,
                load_seconds_max=self._context.settings.load_seconds_max, told=told, deaths=lost, bear=bear, once=True,
            )  # fmt: skip

        return birth

    def _failed(self, model: GuestModel, error: BaseException) -> None:
        self._models.pop(model.name, None)
        reason = str(error) if isinstance(error, TisError) else "its guest has gone"
        self._registry.declare(model.name, model.version, "UNAVAILABLE", reason, read=False)
        log.error("%s could not be loaded: %s", model.title, reason, extra=_facts(model))

    def _instance_ended(self, model: GuestModel, text: str) -> None:
        """One instance is gone: so is the model, as only the guest can start another one."""
        if model.served is not None:
            self._end(model, f"an instance {text}; {_RETURN}")

    def _end(self, model: GuestModel, reason: str) -> None:
        if model.served is None or model.ending:
            return
        model.ending = True
        if model.leaving:
            model.served.runtime.refuse(f"{model.title} is not available: {reason}")
            return
        self._take_away(model, reason, read=True)
        log.error("%s is not available any more: %s", model.title, reason, extra=_facts(model))
        task = self._context.place.loop.create_task(
            self._bury(model.served, f"{model.title} is not available: {reason}")
        )
        model.served = None  # as in `_gone`
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bury(self, served: ServedModel, message: str) -> None:
        """End a served model.  Executing requests are answered first, by their instance, then queued ones."""
        served.runtime.refuse(message)
        for instance in served.instances:
            instance.retire()
        await asyncio.gather(*(instance.left() for instance in served.instances if instance.is_over))
        await served.stop(limits.WORKER_STOP_SECONDS_MAX, message)

    def _take_away(self, model: GuestModel, reason: str, *, read: bool) -> None:
        """New requests do not find it.  read: it should be served, so the server is not ready without it."""
        if self._models.get(model.name) is model:
            del self._models[model.name]
        self._registry.switch(model.name, [])
        self._registry.declare(model.name, model.version, "UNAVAILABLE", reason, read=read)


class GuestChecks:
    """Reads the configurations that guests bring.  gpus, backends: as repo.scan.ScanOptions has them."""

    def __init__(self, gpus: tuple[int, ...], backends: Backends) -> None:
        self._gpus, self._backends = gpus, backends

    def read(self, name: str, order: Message) -> LoadedConfig:
        """In a thread.  Raises ConfigErrors, BadRequest."""
        text, form, instances = order.get("config"), order.get("form"), order.get("instances", 0)
        if not isinstance(text, str) or form not in ("json", "pbtxt") or not isinstance(instances, int):
            raise BadRequest(f"model '{name}': a guest's order has no configuration in a form that is known")
        if len(text) > limits.CONFIG_BYTES_MAX:
            raise BadRequest(
                f"model '{name}': its configuration has {len(text)} characters; {limits.CONFIG_BYTES_MAX} are the limit"
            )
        draft = (parse if form == "pbtxt" else parse_json_form)(text, f"configuration of guest's model '{name}'")
        _prepare(draft, name, instances)
        config = finish(draft, name, gpus=self._gpus, backends=self._backends)
        if len(config.instances) > limits.GUEST_INSTANCES_MAX:
            raise BadRequest(
                f"model '{name}' asks for {len(config.instances)} instances; {limits.GUEST_INSTANCES_MAX} are the "
                "limit for a guest's model, whose instances are threads; ask for fewer"
            )
        return config


def _prepare(draft: ConfigDraft, name: str, instances: int) -> None:
    """Check that a guest states only what it may, and nothing that needs a folder.  Raises BadRequest."""
    message = draft.message
    if schema.is_ensemble(message):
        raise BadRequest(f"model '{name}' is an ensemble, which has no instances: put it into a model repository")
    needed = [output.label_filename for output in message.output if output.label_filename]
    needed += [each.input_data_file for warm in message.model_warmup for each in warm.inputs.values()
               if each.WhichOneof("input_data_type") == FILE]  # fmt: skip
    needed += [initial.data_file for state in message.sequence_batching.state for initial in state.initial_state
               if initial.data_file]  # fmt: skip
    needed += [key for key in (STRATEGY_PARAMETER, "EXECUTION_ENV_PATH") if key in message.parameters]
    if needed:
        raise BadRequest(
            f"model '{name}' has no folder, as it is a guest's, and its configuration asks for files in it: "
            f"{', '.join(needed[: limits.NAMES_TOLD_MAX])}; leave them out, or put the model into a repository"
        )
    message.backend, message.platform = PYTHON, ""
    if instances > 0:
        del message.instance_group[:]
        group = message.instance_group.add()
        group.count, group.kind = min(instances, limits.GUEST_INSTANCES_MAX + 1), type(group).KIND_CPU


def _source(config: LoadedConfig, version: int) -> ModelSource:
    return ModelSource(
        name=config.name, repository=NOWHERE, folder=NOWHERE, config=config,
        versions=(VersionSource(version, NOWHERE, NOWHERE),), environment=None, may_complete=False, notes=(),
        snapshot=Snapshot(()),
    )  # fmt: skip


def _name(order: Message) -> str:
    name = str(order["name"])
    if not is_given_name(name):
        raise BadRequest(f"'{name:.300}' is no name of a model: {GIVEN_NAME}")
    return name


def _version(order: Message) -> str:
    version = order.get("version", 1)
    if not isinstance(version, int) or isinstance(version, bool) or not 0 <= version <= VERSION_MAX:
        raise BadRequest(f"{version!r:.60} is no version of a model: it is a whole number from 0 to {VERSION_MAX}")
    return str(version)


def _facts(model: GuestModel) -> dict[str, Any]:
    return {"facts": {"model": model.name, "version": model.version}}


def _gone(model: GuestModel, done: asyncio.Future[None]) -> None:
    model.served = None  # its workers know the model, and memory is not to wait for the garbage collector
    if not done.done():
        done.set_result(None)
