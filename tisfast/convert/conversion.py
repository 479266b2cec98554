"""A conversion: the source's answers, each format's try, the best, and the folder of that.  Layer 5 (convert)."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tisfast.bench.client_side import machine
from tisfast.convert.compare import allowed, tolerance_of
from tisfast.convert.formats import FORMATS, PRECISIONS, REFERENCES, Route, missing, routes_of, shared_by
from tisfast.convert.handed_over import handed_over
from tisfast.convert.held_signals import held_signals
from tisfast.convert.onnx_fp16 import NOTE, WRONG
from tisfast.convert.options import Options, check_name, checked
from tisfast.convert.output import REPORT, check_source, left_behind, why, write_model_folder, write_reports
from tisfast.convert.output import output as output_folder
from tisfast.convert.references import ANSWERS, FEEDS
from tisfast.convert.report import document
from tisfast.convert.results import Conversion, Try, choose, failure
from tisfast.convert.results import Wanted as Constraint
from tisfast.convert.samples import Case, load_cases, read_samples, save_cases
from tisfast.convert.scales import scales_of
from tisfast.convert.signature import Signature
from tisfast.convert.source import Source, read_source
from tisfast.convert.step_nursery import StepNursery
from tisfast.convert.steps import StepFailed, run_step, written_to_scratch
from tisfast.convert.trial import Loads, ServedAs, Wanted, compared, measured, served, size_of
from tisfast.errors import BadRequest, TisError, Unavailable
from tisfast.private_directory import PrivateDirectory
from tisfast.repo.written_folder import config_text

CONFIG: Final = "config.pbtxt"
VERSION: Final = "1"
REFERENCE: Final = "reference"


class Interrupted(KeyboardInterrupt):
    """A signal has ended a conversion.

    found: what was measured until then, None where nothing was.  It has the model where that was written already.
    """

    def __init__(self, found: Conversion | None, *arguments: object) -> None:
        super().__init__(*arguments)
        self.found = found


def convert(
    source: Any, *, samples: Any = None, output: str | os.PathLike[str] | None = None, **options: Any
) -> Conversion:
    """Try all formats that this machine can serve, and write the best as a model folder with a report.

    source: a file, MODULE:FACTORY or FILE.py:FACTORY, a torch.nn.Module, or an estimator of scikit-learn; samples: .npz
    files or dictionaries of arrays by the names of the inputs, one or several: their first dimension is the batch of a
    model that batches; drawn at random where there are none and shapes are known.  output: the folder that gets NAME/,
    the model, and report.json; None: nothing is written.

    options: targets, precisions: of formats; all that there are by default.  atol, rtol: how far an answer may be from
    the source's, by default as the precision asks.  max_latency_ms: only loads count whose p99 is within.
    min_throughput: of those that answer so many requests a second the one that answers soonest is the best, else the
    one that answers most.  max_batch_size; no_batch: the first dimension is none; concurrency: requests at one time,
    one load after the other; seconds: the least of each load; step_seconds: that a framework may take for one step;
    name: of the model; allow_pickled: read files that can run code; verify: says of a format's answers to all requests,
    and of the source's, lists of arrays by name, whether they are right, in place of the tolerances; told: is told what
    is done.

    Raises BadRequest for what cannot be: no such file, samples that do not fit, an output that cannot be written;
    Interrupted, a KeyboardInterrupt, with what was measured until then.
    """
    asked = checked(options)
    if asked.name is not None:
        check_name(asked.name, "--name")
    if output is not None and not os.fspath(output):
        raise BadRequest("-o is empty: name a folder, '.' for this one")
    found = read_source(source, allow_pickled=asked.allow_pickled)
    if asked.name is not None:
        found = found._replace(name=asked.name)
    if output is not None and found.path != Path():
        check_source(Path(output), found.name, found.path)
    routes = routes_of(found.kind, asked.targets or (), asked.precisions)
    arrays = read_samples(samples)
    if lacking := missing(REFERENCES[found.kind][1]):
        raise Unavailable(f"the source {lacking}")
    run = None
    try:
        with ExitStack() as held:
            folder = None if output is None else held.enter_context(output_folder(Path(output), found.name))
            with written_to_scratch():
                scratch = PrivateDirectory()
            held.callback(scratch.remove)
            nursery = StepNursery(shared_by(found.kind), scratch.path)
            held.callback(nursery.close)
            run = _Run(found, asked, scratch.path, arrays, nursery)
            try:
                return run.all(routes, folder)
            except OSError as error:
                file = f": {error.filename}" if error.filename else ""
                raise Unavailable(f"'{run.doing}' failed: {error.strerror or error}{file}") from error
    except KeyboardInterrupt as error:  # also while the temporary folder is removed
        raise Interrupted(None if run is None else run.until_now(len(routes)), *error.args) from None


class _Run:
    """One conversion, with its files in `scratch`, and its steps of `nursery`."""

    def __init__(
        self,
        source: Source,
        asked: Options,
        scratch: Path,
        samples: Sequence[dict[str, Any]],
        nursery: StepNursery,
    ) -> None:
        self._nursery = nursery
        self._source, self._asked, self._scratch, self._samples = source, asked, scratch, samples
        self._object: dict[str, Any] = {"pickle": ""}
        if source.module is not None:
            self._object = handed_over(source.module, scratch / "module.pkl")
            if source.kind == "sklearn":  # a file like any other, which is our own
                path = Path(self._object["pickle"])
                self._source, self._asked = source._replace(path=path), replace(asked, allow_pickled=True)
        self._tries: list[Try] = []
        self._models: dict[tuple[str, str], Path] = {}  # folders of those that are right
        self._written: Conversion | None = None
        self.doing = ""

    def all(self, routes: Sequence[Route], folder: Path | None) -> Conversion:
        """Every route, one after the other: they would take each other's cores.  folder: gets the best, None: none."""
        self._reference()
        for each in routes:
            self._tries.append(self._try(each))
        result = self._conversion(*choose(tuple(self._tries), self._constraint))
        return result if folder is None else self._write(result, folder)

    def until_now(self, routes: int) -> Conversion | None:
        """What an interruption leaves.  routes: how many there were to try."""
        if self._written is not None:
            return self._written
        why = f"it was interrupted, and {len(self._tries)} of {routes} were tried"
        return self._conversion(None, why) if self._tries else None

    def _conversion(self, best: Try | None, why: str) -> Conversion:
        source, told = self._source, self._told
        notes = tuple(told["notes"])
        if told["drawn"]:
            notes += ("the samples are random numbers: real ones show more; give them with --samples",)
        signature = self._signature
        if points := [each.name for each in (*signature.inputs, *signature.outputs) if signature.is_scalar(each)]:
            notes += (f"clients see a last dimension of size 1 more than the source has: of {', '.join(points)}",)
        given = [each for each in PRECISIONS if each in self._asked.precisions]
        tolerances = {each: tolerance_of(each, self._asked.atol, self._asked.rtol) for each in given}
        scales = {name: scales.each for name, scales in self._scales.items() if any(scales.each)}
        return Conversion(
            source.text, source.kind, source.name, self._signature, told["rows"], told["drawn"], self._batch,
            self._constraint, tuple(self._tries), best, why, dict(machine()), None, notes,
            tolerances, scales,
        )  # fmt: skip

    def _tell(self, text: str) -> None:
        self.doing = text
        self._asked.told(text)

    @property
    def _constraint(self) -> Constraint:
        return Constraint(self._asked.max_latency_ms or 0.0, self._asked.min_throughput or 0.0)

    @property
    def _batch(self) -> int:
        return self._asked.max_batch_size if self._signature.batches else 0

    def _request(self, **more: Any) -> dict[str, Any]:
        source, asked = self._source, self._asked
        fixed = {"kind": source.kind, "source": str(source.path), "text": source.text, **self._object}
        judged = {"atol": asked.atol, "rtol": asked.rtol, "judged": asked.verify is not None}
        return {**fixed, **judged, "allow_pickled": asked.allow_pickled, **more}

    def _reference(self) -> None:
        asked = self._asked
        self._tell(f"asking {self._source.text} itself")
        names = list(self._samples[0]) if self._samples else []
        path = self._scratch / "samples.npz"
        if names:
            with written_to_scratch():
                save_cases(path, [Case("", dict(each)) for each in self._samples])
        request = self._request(
            samples=str(path) if names else "",
            names=names,
            no_batch=asked.no_batch,
            sample_count=len(self._samples),
            max_batch_size=asked.max_batch_size,
        )
        step = REFERENCES[self._source.kind][0]
        try:
            self._told = told = run_step(self._nursery, step, request, self._scratch / REFERENCE, asked.step_seconds)
        except StepFailed as error:
            raise BadRequest(f"{self._source.text} itself does not run: {error.message}") from None
        self._signature = signature = Signature.read(told["signature"])
        folder = self._scratch / REFERENCE
        self._feeds = load_cases(folder / FEEDS, signature.inputs, told["cases"])
        self._answers = load_cases(folder / ANSWERS, signature.outputs, told["cases"])
        self._scales = {
            each.name: scales_of([case.feeds[each.name] for case in self._answers], each.dims)
            for each in signature.outputs
        }

    def _try(self, route: Route) -> Try:
        format_ = FORMATS[route.format]
        found = Try(route.format, route.precision, format_.backend, "ok")
        self._tell(found.name)
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
        with written_to_scratch():
            (model / VERSION).mkdir(parents=True)
        target = model / VERSION / (format_.file or self._source.file)
        if route.of_fp32:
            whole = self._in_fp32(route, folder / "whole")
            told = self._step(route.of_fp32, folder / "step", target, route.precision, source=str(whole))
        else:
            told = self._step(route.step, folder / "step", target, route.precision)
        served_as = ServedAs(self._signature, wrong=told.get(WRONG, ""), unseen=told.get(NOTE, ""))
        named = "signature" in told
        if named:
            own = replace(Signature.read(told["signature"]), mixes=self._signature.mixes)
            served_as = served_as._replace(signature=own, inputs=told["inputs"], outputs=told["outputs"])
        config = served_as.signature.config(format_.backend, self._batch)
        config |= {"parameters": told["parameters"]} if named else {}
        with written_to_scratch():
            (model / CONFIG).write_text(config_text(self._source.name, config))
        return served_as

    def _in_fp32(self, route: Route, folder: Path) -> Path:
        """The file of this format in fp32.  folder: for one that is made now, as none was asked for or was right."""
        file = FORMATS[route.format].file
        if made := self._models.get((route.format, "fp32")):
            return made / VERSION / file
        self._step(route.step, folder, folder / file, "fp32")
        return folder / file

    def _step(self, step: str, folder: Path, target: Path, precision: str, **more: Any) -> dict[str, Any]:
        """What a step tells.  folder: for its files; target: what it is to write."""
        request = self._request(
            target=str(target),
            precision=precision,
            max_batch_size=self._batch,
            signature=self._signature.document(),
            reference=str(self._scratch / REFERENCE),
            cases=[each.name for each in self._feeds],
            until=time.monotonic() + self._asked.step_seconds,  # a clock that all processes share
            **more,
        )
        return run_step(self._nursery, step, request, folder, self._asked.step_seconds)

    def _served(self, route: Route, found: Try, folder: Path, served_as: ServedAs) -> Try:
        asked, name = self._asked, self._source.name
        answer = self._answers[0].feeds
        wanted = Wanted(
            self._signature, self._feeds, self._answers,
            {output: allowed(route.precision, answer[output], scales, asked.atol, asked.rtol)
             for output, scales in self._scales.items()},
            served_as, asked.step_seconds, asked.verify,
        )  # fmt: skip
        found = replace(found, note=served_as.note(self._signature), lacks=served_as.lacking(self._signature))
        began = time.monotonic()
        with served(folder / "models", folder, asked.step_seconds) as (client, url):
            found = replace(found, load_seconds=time.monotonic() - began)
            difference, longest = compared(client, name, wanted)
            found = replace(
                found,
                max_absolute=difference.absolute,
                max_relative=difference.relative,
                differs_most=difference.place,
            )
            if wrong := difference.wrong or served_as.wrong:
                return replace(found, status="wrong", reason=wrong)
            loads = Loads(asked.concurrency, asked.seconds, bool(asked.max_latency_ms), longest)
            found = replace(found, measured=measured(client, url, name, wanted, loads, asked.told))
            failed = failure(found)
            return replace(found, status="failed", reason=failed) if failed else found

    def _write(self, result: Conversion, folder: Path) -> Conversion:
        """The model and its report.  Raises BadRequest where the folder is not ours any more, Unavailable."""
        model = folder / result.name
        result = replace(result, notes=(*result.notes, *left_behind(folder, result.name)))
        try:
            with ExitStack() as last:
                if result.best is not None:
                    made = self._models[result.best.format, result.best.precision]
                    write_model_folder(made, model, lambda: last.enter_context(held_signals()))
                    result = replace(result, model=model)
                else:
                    last.enter_context(held_signals())
                    if model.exists():
                        earlier = f"{model} is of an earlier conversion, and stays"
                        result = replace(result, notes=(*result.notes, earlier))
                self._written = result
                self._tell(f"writing {folder / REPORT}")
                write_reports(document(result), folder)
        except OSError as error:
            raise Unavailable(f"-o {folder} could not be written ({why(error)}): it needs room for the model") from None
        return result
