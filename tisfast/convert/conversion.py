"""A conversion: the source's answers, each format's try, the best, and the folder of that.  Layer 5 (convert)."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tisfast import limits
from tisfast.bench.client_side import machine
from tisfast.bench.files import write_text
from tisfast.convert.compare import scale_of, tolerance_of
from tisfast.convert.formats import FORMATS, PRECISIONS, REFERENCES, Route, missing, routes_of
from tisfast.convert.references import ANSWERS, FEEDS
from tisfast.convert.report import SCHEMA, document
from tisfast.convert.report_page import page
from tisfast.convert.results import Conversion, Try, choose, failure
from tisfast.convert.results import Wanted as Constraint
from tisfast.convert.samples import Case, load_cases, read_samples, save_cases
from tisfast.convert.signature import Signature
from tisfast.convert.source import Source, read_source
from tisfast.convert.steps import StepFailed, run_step
from tisfast.convert.trial import Loads, ServedAs, Verify, Wanted, compared, measured, served, size_of
from tisfast.errors import BadRequest, TisError, Unavailable
from tisfast.private_directory import PrivateDirectory
from tisfast.repo.written_folder import config_text, written_folder

REPORT: Final = "report.json"
PAGE: Final = "report.html"
CONFIG: Final = "config.pbtxt"
VERSION: Final = "1"
REFERENCE: Final = "reference"


@dataclass(frozen=True)
class Options:
    """Of a conversion; see `convert`."""

    targets: Sequence[str] = ()
    precisions: Sequence[str] = PRECISIONS
    atol: float | None = None
    rtol: float | None = None
    max_latency_ms: float = 0.0
    min_throughput: float = 0.0
    max_batch_size: int = 8
    concurrency: Sequence[int] = (1, 8)
    seconds: float = 1.0
    step_seconds: float = limits.CONVERT_STEP_SECONDS
    name: str = ""
    allow_pickled: bool = False
    verify: Verify | None = None
    told: Callable[[str], None] = field(default=lambda _: None)


def convert(
    source: Any, *, samples: Any = None, output: str | os.PathLike[str] | None = None, **options: Any
) -> Conversion:
    """Try all formats that this machine can serve, and write the best as a model folder with a report.

    source: a file, MODULE:FACTORY or FILE.py:FACTORY, or a torch.nn.Module; samples: .npz files or dictionaries of
    arrays by the names of the inputs, one or several: their first dimension is the batch of a model that batches; drawn
    at random where there are none and shapes are known.  output: the folder
    that gets NAME/, the model, and report.json; None: nothing is written.

    options: targets, precisions: of formats; all that there are by default.  atol, rtol: how far an answer may be from
    the source's, by default as the precision asks.  max_latency_ms: only loads count whose p99 is within.
    min_throughput: of those that answer so many requests a second the one that answers soonest is the best, else the
    one that answers most.  max_batch_size; concurrency: requests at one time, one load after the other; seconds: the
    least of each load; step_seconds: that a framework may take for one step; name: of the model; allow_pickled: read
    files that can run code; verify: says of a format's answers to all requests, and of the source's, lists of arrays by
    name, whether they are right, in place of the tolerances; told: is told what is done.

    Raises BadRequest for what cannot be: no such file, samples that do not fit, an output that cannot be written.
    """
    asked = _checked(options)
    found = read_source(source, allow_pickled=asked.allow_pickled)
    if asked.name:
        found = found._replace(name=asked.name)
    routes = routes_of(found.kind, asked.targets, asked.precisions)
    arrays = read_samples(samples)
    if lacking := missing(REFERENCES[found.kind][1]):
        raise Unavailable(f"the source {lacking}")
    with ExitStack() as held:
        folder = None if output is None else held.enter_context(_output(Path(output), found.name))
        scratch = PrivateDirectory()
        held.callback(scratch.remove)
        try:
            run = _Run(found, asked, scratch.path, arrays)
            result = run.all(routes)
        except OSError as error:
            raise Unavailable(
                f"the temporary folder {scratch.path.parent} could not be written to ({error.strerror or error}): the "
                "formats need room there; set TMPDIR to a folder that has it"
            ) from None
        return result if folder is None else run.write(result, folder)


def _checked(options: dict[str, Any]) -> Options:
    """Raises BadRequest, which names the option."""
    known = Options.__dataclass_fields__
    unknown = [each for each in options if each not in known]
    if unknown:
        raise BadRequest(f"convert has no option {unknown[0]!r}; it has {', '.join(known)}")
    asked = Options(**options)
    bounds = (
        ("--atol", asked.atol, 0), ("--rtol", asked.rtol, 0), ("--max-latency", asked.max_latency_ms, 0),
        ("--min-throughput", asked.min_throughput, 0), ("--max-batch-size", asked.max_batch_size, 1),
        ("--seconds", asked.seconds, 0.1), ("--step-seconds", asked.step_seconds, 1),
    )  # fmt: skip
    for name, value, least in bounds:
        if value is not None and not value >= least:  # nan, too
            raise BadRequest(f"{name} is {value:g}, and must be {least:g} at least")
    most = limits.CONVERT_CONCURRENCY_MAX
    if not asked.concurrency or not all(1 <= each <= most for each in asked.concurrency):
        raise BadRequest(f"--concurrency is {list(asked.concurrency)}: give numbers from 1 to {most}")
    return asked


@contextmanager
def _output(folder: Path, name: str) -> Iterator[Path]:
    """The folder, made if need be; one that was made goes again where nothing is written.

    Raises BadRequest where it may not be written to, or has another model.
    """
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".tisfast.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise BadRequest(
            f"-o {folder} cannot be written to ({error.strerror}): name a folder in one that exists and may be written"
        ) from None
    if (folder / name).exists() and not _ours(folder / REPORT):
        raise BadRequest(
            f"-o {folder} has a folder '{name}' that tisfast convert has not written; remove it, or give another --name"
        )
    try:
        yield folder
    finally:
        if made:
            with suppress(OSError):
                folder.rmdir()


def _ours(report: Path) -> bool:
    try:
        return bool(json.loads(report.read_text()).get("schema") == SCHEMA)
    except (OSError, ValueError, AttributeError):
        return False


def _pickled(module: Any, path: Path) -> str:
    """A file of the object, for other processes.  Raises BadRequest, Unavailable."""
    try:
        cloudpickle: Any = importlib.import_module("cloudpickle")
    except ModuleNotFoundError:
        raise Unavailable("a module is handed over by cloudpickle, which is missing: pip install cloudpickle") from None
    try:
        path.write_bytes(cloudpickle.dumps(module))
    except Exception as error:  # each object that refuses has its own way
        raise BadRequest(f"the module cannot leave this process: {type(error).__name__}: {error}") from error
    return str(path)


class _Run:
    """One conversion, with its files in `scratch`."""

    def __init__(self, source: Source, asked: Options, scratch: Path, samples: Sequence[dict[str, Any]]) -> None:
        self._source, self._asked, self._scratch, self._samples = source, asked, scratch, samples
        self._pickle = "" if source.module is None else _pickled(source.module, scratch / "module.pkl")
        self._models: dict[tuple[str, str], Path] = {}  # folders of those that are right

    def all(self, routes: Sequence[Route]) -> Conversion:
        """Every route, one after the other: they would take each other's cores."""
        source, asked = self._source, self._asked
        told = self._reference()
        self._signature = signature = Signature.read(told["signature"])
        folder = self._scratch / REFERENCE
        self._feeds = load_cases(folder / FEEDS, signature.inputs, told["cases"])
        self._answers = load_cases(folder / ANSWERS, signature.outputs, told["cases"])
        self._scales = {
            each.name: scale_of(case.feeds[each.name] for case in self._answers) for each in signature.outputs
        }
        tries = tuple(self._try(each) for each in routes)
        constraint = Constraint(asked.max_latency_ms, asked.min_throughput)
        best, why = choose(tries, constraint)
        notes = tuple(told["notes"])
        tolerances = {
            each: tolerance_of(each, asked.atol, asked.rtol) for each in PRECISIONS if each in asked.precisions
        }
        if told["drawn"]:
            notes += ("the samples are random numbers: real ones show more; give them with --samples",)
        return Conversion(
            source.text, source.kind, source.name, signature, told["rows"], told["drawn"], self._batch, constraint,
            tries, best, why, dict(machine()), None, notes, tolerances,
            {name: scale for name, scale in self._scales.items() if scale},
        )  # fmt: skip

    @property
    def _batch(self) -> int:
        return self._asked.max_batch_size if self._signature.batches else 0

    def _request(self, **more: Any) -> dict[str, Any]:
        source = self._source
        fixed = {"kind": source.kind, "source": str(source.path), "text": source.text, "pickle": self._pickle}
        return {**fixed, "allow_pickled": self._asked.allow_pickled, **more}

    def _reference(self) -> dict[str, Any]:
        asked = self._asked
        asked.told(f"asking {self._source.text} itself")
        names = list(self._samples[0]) if self._samples else []
        path = self._scratch / "samples.npz"
        if names:
            save_cases(path, [Case("", dict(each)) for each in self._samples])
        request = self._request(
            samples=str(path) if names else "",
            names=names,
            sample_count=len(self._samples),
            max_batch_size=asked.max_batch_size,
            atol=asked.atol,
            rtol=asked.rtol,
        )
        step = REFERENCES[self._source.kind][0]
        try:
            return run_step(step, request, self._scratch / REFERENCE, asked.step_seconds)
        except StepFailed as error:
            raise BadRequest(f"{self._source.text} itself does not run: {error.message}") from None

    def _try(self, route: Route) -> Try:
        format_ = FORMATS[route.format]
        found = Try(route.format, route.precision, format_.backend, "ok")
        self._asked.told(found.name)
        lacking = missing((*format_.needs, *route.needs))
        if lacking:
            return replace(found, status="skipped", reason=lacking)
        began = time.monotonic()
        folder = self._scratch / f"{route.format}-{route.precision}"
        model = folder / "models" / self._source.name
        try:
            served_as = self._make(route, folder, model)
            found = replace(found, convert_seconds=time.monotonic() - began, nbytes=size_of(model / VERSION))
            found = self._served(route, found, folder, served_as)
        except TisError as error:
            found = replace(found, status="failed", reason=error.message)
        if found.status == "ok":
            self._models[route.format, route.precision] = model
        else:
            shutil.rmtree(folder, ignore_errors=True)
        return found

    def _make(self, route: Route, folder: Path, model: Path) -> ServedAs:
        format_ = FORMATS[route.format]
        (model / VERSION).mkdir(parents=True)
        request = self._request(
            target=str(model / VERSION / (format_.file or self._source.file)),
            precision=route.precision,
            max_batch_size=self._batch,
            signature=self._signature.document(),
            reference=str(self._scratch / REFERENCE),
            cases=[each.name for each in self._feeds],
        )
        told = run_step(route.step, request, folder / "step", self._asked.step_seconds)
        served_as = ServedAs(self._signature)
        if told:
            own = replace(Signature.read(told["signature"]), mixes=self._signature.mixes)
            served_as = ServedAs(own, told["inputs"], told["outputs"])
        config = served_as.signature.config(format_.backend, self._batch)
        config |= {"parameters": told["parameters"]} if told else {}
        (model / CONFIG).write_text(config_text(self._source.name, config))
        return served_as

    def _served(self, route: Route, found: Try, folder: Path, served_as: ServedAs) -> Try:
        asked, name = self._asked, self._source.name
        tolerance = tolerance_of(route.precision, asked.atol, asked.rtol)
        wanted = Wanted(
            self._signature, self._feeds, self._answers,
            {name: tolerance.of(scale or 1.0) for name, scale in self._scales.items()},
            served_as, asked.step_seconds, asked.verify,
        )  # fmt: skip
        found = replace(found, note=served_as.note)
        began = time.monotonic()
        with served(folder / "models", folder, asked.step_seconds) as (client, url):
            found = replace(found, load_seconds=time.monotonic() - began)
            difference = compared(client, name, wanted)
            found = replace(found, max_absolute=difference.absolute, max_relative=difference.relative)
            if difference.wrong:
                return replace(found, status="wrong", reason=difference.wrong)
            loads = Loads(asked.concurrency, asked.seconds)
            found = replace(found, measured=measured(client, url, name, wanted, loads, asked.told))
            failed = failure(found)
            return replace(found, status="failed", reason=failed) if failed else found

    def write(self, result: Conversion, folder: Path) -> Conversion:
        """The model and its report.  Raises Unavailable."""
        try:
            if result.best is not None:
                model = folder / result.name
                with written_folder(model) as made:
                    shutil.copytree(self._models[result.best.format, result.best.precision], made, dirs_exist_ok=True)
                result = replace(result, model=model)
            elif (folder / result.name).exists():
                old = f"{folder / result.name} is of an earlier conversion, and stays as it is"
                result = replace(result, notes=(*result.notes, old))
            told = document(result)
            write_text(folder / REPORT, json.dumps(told, indent=1, allow_nan=False) + "\n")
            write_text(folder / PAGE, page(told))
        except OSError as error:
            raise Unavailable(
                f"-o {folder} could not be written ({error.strerror or error}): it needs room for the model"
            ) from None
        return result
