"""`tisfast analyze` from the command line to its files.  Layer 5 (analyze)."""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from tisfast.analyze.aims import GPU_MEMORY, THROUGHPUT, plain
from tisfast.analyze.arguments import Given, read_all
from tisfast.analyze.checkpoint import Checkpoint
from tisfast.analyze.confirm import Finals
from tisfast.analyze.ending import Doing, Ending, Interrupted
from tisfast.analyze.explain import explained, out
from tisfast.analyze.fingerprint import files_fingerprint, folder_fingerprint
from tisfast.analyze.page import Result, page
from tisfast.analyze.ranking import Ranked, Simplicity, best_level, ranking
from tisfast.analyze.search import bayesian, brute, quick
from tisfast.analyze.servers import OwnServer, RunningServer, Server
from tisfast.analyze.space import Point
from tisfast.analyze.subject import Subject, same_tensors
from tisfast.analyze.table import about, counted, csv_text, failures, milliseconds, table
from tisfast.analyze.trials import Trial
from tisfast.analyze.tries import ASK_SECONDS, LATE, Bench, Tries, asked_of, session_of
from tisfast.analyze.variants import DEFAULT, FORMAT, Variant, canonical
from tisfast.analyze.written_files import RANK, REPORT, TABLE, check_ours, forget, make, same_reason, write
from tisfast.bench.client_side import machine
from tisfast.bench.session import Model, look_up
from tisfast.client import Client
from tisfast.errors import BadRequest, ConfigError, TisError
from tisfast.native.nvml import open_nvml
from tisfast.repo.written_folder import config_text
from tisfast.standard_streams import say

FINE: Final = 0
NONE_KEEPS: Final = 1
"""No variant keeps all bounds."""
NOT_WHOLE: Final = 2
"""It was interrupted, the server has gone, or files changed: the result is of what was measured."""
NOTHING: Final = 3
"""No variant could be measured, or none but the default."""
WRONG: Final = 99
"""The command line, no server, no such model, requests that the model refuses, files that cannot be written."""
SWITCH_SECONDS: Final = 0.0001
"""As tisfast bench's."""
AS_IN_REPOSITORY: Final = (
    "Each variant, and in the end the model as it was, is loaded from the repository of {url}: files that a load call "
    "gave instead ('file:' parameters) are lost, and are not what is measured; the server does not tell whether there "
    "are such. If there are, end this, load the model with them again, and give --model-repository instead of -u."
)
"""Told before anything is loaded there."""


def main(arguments: Sequence[str]) -> int:
    """Gives the exit code."""
    try:
        searches = read_all(arguments)
        for note in dict.fromkeys(note for given in searches for note in given.notes):
            say(note)
        sys.setswitchinterval(SWITCH_SECONDS)
        worst = FINE
        for given in searches:
            code = _analyze(given)
            worst = max(worst, code)
            if code in (NOT_WHOLE, WRONG):
                break  # Ctrl-C is for all of them; a server that is not as it was is measured no more
        return worst
    except ConfigError as error:
        say(f"Error: {error}\nTry 'tisfast analyze --help'.", error=True)
    except TisError as error:
        say(f"error: {error}", error=True)
    except KeyboardInterrupt:
        say("error: it was interrupted, and nothing more was waited for", error=True)
    return WRONG


def _analyze(given: Given) -> int:
    there = given.output.exists()
    try:
        return _served(given)
    except (BadRequest, ConfigError) as error:  # it is refused, and nothing was measured: no folder is left of it
        if not there and str(log := given.output / "server.log") not in str(error):
            with contextlib.suppress(OSError):  # something else is in it
                log.unlink(missing_ok=True)
                given.output.rmdir()
        raise


def _served(given: Given) -> int:
    server, ending = _server(given), Ending()
    code, left = WRONG, ""
    with ending.handled():
        try:
            code = _searched(given, server, ending)
        finally:
            with ending.section("The server is left as it was first; once more ends this at once.", bears=1):
                left = server.close()
            if left:
                say(f"error: {left}", error=True)
    return WRONG if left else code


def _searched(given: Given, server: Server, ending: Ending) -> int:
    try:
        with ending.section("", bears=0):
            _check_gpus(given)
            check_ours(given.output)
            make(given.output)
            if isinstance(server, OwnServer):
                with Doing("the server") as doing:
                    doing("it is started")
                    ending.wait_for(server.start, server.abandon)
            analysis = _Analysis(given, server, ending)
    except (Interrupted, KeyboardInterrupt):
        say("error: it was interrupted before anything was measured", error=True)
        return NOT_WHOLE
    return analysis.run()


def _check_gpus(given: Given) -> None:
    """Raises BadRequest where their memory is wanted, and this machine has none."""
    wanted = [*(name for name, _ in given.aims.objectives), *(each.metric for each in given.aims.constraints)]
    if GPU_MEMORY not in wanted:
        return
    nvml = open_nvml()
    count = 0
    if nvml is not None:
        count = nvml.count()
        nvml.close()
    if count:
        return
    raise BadRequest(
        f"{GPU_MEMORY} is not known on this machine, as NVML tells of no GPU: leave that objective or bound out"
    )


def _connect(given: Given) -> Callable[[str, float], Client]:
    options: dict[str, Any] = {"headers": dict(given.asked.headers), "shared_memory": False, "retries": 0}
    if given.asked.tls is not None:
        options["tls"] = given.asked.tls
    return lambda url, seconds: Client(url, timeout=seconds, **options)


def _server(given: Given) -> Server:
    asked = given.asked
    if given.repository is None:
        return RunningServer(asked.address, given.models, _connect(given))
    log = (given.output / "server.log").absolute()
    models = given.models
    return OwnServer(
        given.repository,
        models,
        first=models[:1] if given.formats else models,
        grpc=asked.address.grpc,
        flags=given.server_flags,
        log=log,
    )


def _files_of(given: Given) -> Mapping[str, Any]:
    """What is known of the files of models and requests: of a server that runs already nothing of the models'."""
    found: dict[str, Any] = {"input files": files_fingerprint([file for data in given.data for file in data.files])}
    if given.repository is not None:
        found["model repository"] = str(given.repository.resolve())
        found["files of the model"] = {name: folder_fingerprint(given.repository / name) for name in given.models}
    return found


class _Analysis:
    """One search, on a server that serves."""

    def __init__(self, given: Given, server: Server, ending: Ending) -> None:
        self._given, self._server, self._ending = given, server, ending
        self._lost: list[Trial] = []  # formats that the server does not load, or that do not answer
        self._first_seen = 0.0  # seconds of the slowest first request
        self._most = 0  # variants; 0: not known yet
        self._numbers: dict[str, int] = {}  # of the variants, in the order in which they are measured
        self._models = self._looked_up()
        unknown = next((name for name, model in self._models.items() if not model.config), None)
        if unknown is not None:
            raise BadRequest(
                f"the server does not tell the configuration of model '{unknown}', so no variant of it can "
                "be made; it is an extension of Triton's that tisfast and Triton have"
            )
        configs = {name: dict(model.config) for name, model in self._models.items()}
        self._subject = Subject(configs, given.formats)
        self._space = self._subject.space(given.space, given.automatic)
        self._made_with = self._setup()
        self._checkpoint = Checkpoint.opened(given.output, self._made_with, given.checkpoint)
        if given.first_seconds:
            self._checkpoint.forget(lambda trial: LATE in trial.failure)
        self._known = len(self._rows()) - len(self._lost)
        variants = self._space.variants
        self._count = variants if given.search != "bayesian" else min(given.trials, variants)
        if isinstance(server, RunningServer):
            say(AS_IN_REPOSITORY.format(url=given.asked.address))
            with Doing(given.asked.model) as doing:
                doing("it is loaded as it is")
                ending.wait_for(server.try_load, server.abandon)
        bench = Bench(server, _connect(given), given.asked, self._subject, self._checkpoint, self._told, ending)
        bench.first_seconds, bench.first_seen = given.first_seconds, self._first_seen
        bench.loaded = {name: canonical(config) for name, config in configs.items()}
        # One level shows what a variant gives at most, but not how fast it answers where that alone is wanted.
        every_level = given.search == "brute" or THROUGHPUT not in {plain(name) for name, _ in given.aims.objectives}
        self._tries = Tries(bench, given.load, given.aims, every_level)
        nearest = self._space.variant(self._space.start(self._subject.in_force))
        self._most = self._count + (self._tries.same(nearest) != DEFAULT)
        self._base: Trial | None = None
        self._tried = set[Variant]()
        self._ended = ""

    def run(self) -> int:
        """Search, rank, write.  Raises TisError when nothing can be begun, or a file cannot be written."""
        say(f"*** {self._plan()} ***")
        whole, failed = True, None
        try:
            with self._ending.section("Waiting for in-flight inferences to complete.", bears=1):
                self._search()
            self._ended = self._done()
        except (Interrupted, KeyboardInterrupt):
            whole, self._ended = False, "It was interrupted; this is what was measured until then."
            if not any(not each.failure for each in self._rows()):
                self._ended = "It was interrupted before anything was measured."
        except TisError as error:
            whole, self._ended = False, f"It ended early: {error.message}"
            failed = error
            say(f"error: {error}", error=True)
        if changed := self._changed():
            whole, self._ended = False, f"{self._ended} {changed}"
            say(f"error: {changed}", error=True)
        ranked = self._ranked()
        try:
            self._write(ranked, "It ended early, as the error says." if failed is not None else self._ended)
        except TisError as error:
            if failed is None:
                raise
            if not same_reason(error, failed):
                say(f"error: {error}", error=True)
            return WRONG
        if not whole:
            return NOT_WHOLE
        if not ranked:
            return NOTHING
        if all(each.trial.variant == DEFAULT for each in ranked):
            why = (
                "the lines with 'failed:' have the reasons"
                if failures(self._rows())
                else "what is searched has no other configuration: name more values"
            )
            say(f"error: no variant but the default could be measured; {why}", error=True)
            return NOTHING
        if ranked[0].broken:
            say(f"No variant keeps all bounds; of the one that is nearest {'; '.join(ranked[0].broken)}.")
        return NONE_KEEPS if ranked[0].broken else FINE

    # ---- before

    def _looked_up(self) -> Mapping[str, Model]:
        """Also whether the models answer what would be sent: one request of each."""
        given, address = self._given, self._server.address()
        with _connect(given)(str(address), ASK_SECONDS) as client:
            names = self._served() if isinstance(self._server, OwnServer) and given.formats else given.models
            found = {name: look_up(client, replace(given.asked, model=name)) for name in names}
            if given.formats:
                same_tensors({name: model.metadata for name, model in found.items()})
        for name in list(found)[: 1 if given.asked.mix else None]:
            try:
                self._probe(name)
            except TisError as error:
                if not given.formats or name == given.models[0]:
                    raise
                del found[name]
                self._lost.append(self._not_served(name, f"it failed: {self._mended(list(found), error)}"))
        return found

    def _probe(self, name: str) -> None:
        given, address = self._given, self._server.address()
        with (
            _connect(given)(str(address), ASK_SECONDS) as client,
            session_of(client, asked_of(given.asked, address, [name])) as session,
            Doing(f"the first request of {name}") as doing,
        ):
            doing("it is waited for")
            session.stop = self._ending.stop
            session.probe_seconds = given.first_seconds or session.probe_seconds
            session.probe()
            if self._ending.stop.requested:
                raise Interrupted
            self._first_seen = max(self._first_seen, session.probed_seconds)

    def _mended(self, served: Sequence[str], error: TisError) -> str:
        """What failed, in words, when there is a server again that has these formats."""
        ended = self._ending.wait_for(self._server.mend, self._server.abandon)
        for each in served[1:] if ended else ():  # it was started again with the first one
            self._ending.wait_for(partial(self._server.load, each, None), self._server.abandon)
        return f"{ended}: {error.message}" if ended else error.message

    def _served(self) -> list[str]:
        """The formats that a server of our own loads, behind the first: one that it does not load is a row."""
        first, *others = self._given.models
        found = [first]
        for name in others:
            try:
                self._ending.wait_for(partial(self._server.load, name, None), self._server.abandon)
                found.append(name)
            except TisError as error:
                self._lost.append(self._not_served(name, f"it could not be loaded: {self._mended(found, error)}"))
        return found

    def _not_served(self, name: str, why: str) -> Trial:
        load = self._given.load
        found = Trial(Variant(((FORMAT, name),)), load.mode, load.levels[0], why)
        self._told(found)
        return found

    def _setup(self) -> Mapping[str, Any]:
        """What rows are measured with: others are not comparable."""
        given = self._given
        return {
            "model": given.asked.model,
            "default configuration": canonical(self._subject.configs),
            "machine": dict(machine()),
            "server": next(iter(self._models.values())).server,
            "kind of server": "its own" if given.repository is not None else str(given.asked.address),
            "versions of the model": {name: list(model.metadata.versions) for name, model in self._models.items()},
            **_files_of(given),
            "server flags": list(given.server_flags),
            "flags of bench": dict(given.bench),
            **({"requests of the models": [asdict(share) for share in given.asked.mix]} if given.asked.mix else {}),
            "search space": {axis.name: list(axis.values) for axis in self._space.axes},
            "load": {given.load.mode: list(given.load.levels)},
            "search": given.search,
        }

    def _plan(self) -> str:
        given, levels = self._given, len(self._given.load.levels)
        every = self._tries.every_level
        again = (min(given.best, self._count) + 1) * (given.confirm + (0 if every else levels))
        most = self._count * (levels if every else 1) + again
        axes = ", ".join(f"{axis.name} ({len(axis.values)})" for axis in self._space.axes)
        known = counted(self._known, "measurement")
        known = f"; {known} {'is' if self._known == 1 else 'are'} taken from {given.output}" if self._known else ""
        seconds = 3 * given.asked.settings.window_ms / 1000
        trials = f" of {counted(given.trials, 'trial')}" if given.search == "bayesian" else ""
        at_most = "" if given.search == "brute" else "at most "
        default = " and the default" if self._most > self._count else ""
        return (
            f"{given.asked.model}: {at_most}{counted(self._count, 'variant')} of {axes}{default}, at up to "
            f"{counted(levels, 'level')} of {given.load.mode.replace('_', ' ')}, search {given.search}{trials}; "
            f"a measurement takes {seconds:g} s or more, so about {about(most * seconds)} for all that there "
            f"can be{known}"
        )

    def _done(self) -> str:
        """How a search has come to its end: not each one looks at all variants."""
        count, tried = self._space.variants, len(self._tried)
        if tried >= count:
            return f"All of the search was done: {counted(count, 'variant')}."
        how = "The climb came to its end" if self._given.search == "quick" else "All trials were made"
        return f"{how}: {tried} of {counted(count, 'variant')} were tried."

    def _changed(self) -> str:
        """Whether files are others than before the search: a sentence, or ""."""
        try:
            now = _files_of(self._given)
        except TisError as error:
            return f"Files were changed meanwhile, and cannot be looked at any more: {error.message}"
        names = [name for name, found in now.items() if self._made_with[name] != found]
        if not names:
            return ""
        return (
            f"The {' and the '.join(names)} changed while they were measured, so the figures are not all of the same: "
            "measure again with --checkpoint new."
        )

    # ---- the search

    def _search(self) -> None:
        given, tries, space = self._given, self._tries, self._space
        self._base = best_level(tries.rows(DEFAULT), given.aims, None)
        self._base = self._base and best_level(tries.rows(DEFAULT), given.aims, self._base)
        start = space.start(self._subject.in_force)
        if given.search == "brute":
            brute(space, self._score)
        elif given.search == "quick":
            quick(space, start, self._score, given.aims.alike)
        else:
            bayesian(space, start, self._score, given.trials)
        simple = Simplicity(space)
        firsts = ranking([each.first for each in self._rows()], given.aims, simple)  # also where turns were made before
        for variant in [*(each.trial.variant for each in firsts[: given.best]), DEFAULT]:
            if given.search != "brute":
                tries.sweep(variant)
            tries.refine(variant)
        finals = Finals(self._rows, tries.bench.again, tries.refine, given.aims, simple)
        finals.confirm(given.best, given.confirm)

    def _score(self, point: Point) -> float:
        variant = self._space.variant(point)
        self._tried.add(variant)
        if self._base is None:  # the default has no row that is good: the first variant that has one takes its place
            self._base = best_level(self._tries.rows(variant), self._given.aims, None)
        return self._tries.score(variant, self._base)

    def _told(self, trial: Trial) -> None:
        text = trial.failure or (
            f"{trial.throughput:.4g} inferences/s, p99 {milliseconds(trial, 'p99')}"
            + ("" if trial.stable else ", not stable")
        )
        place = ""
        if self._most:
            number = self._numbers.setdefault(trial.variant.text, len(self._numbers) + 1)
            place = f"{number} of {max(number, self._most)}: "
        say(f"  {place}{trial.variant.text}, {trial.load}: {text}")

    # ---- the result

    def _rows(self) -> list[Trial]:
        """Of this search; an earlier one whose checkpoint it extends may have had others."""
        found = self._checkpoint.trials.values()
        measured = [
            each for each in found if self._space.has(each.variant) and self._given.load.has(each.mode, each.level)
        ]
        return [*measured, *self._lost]

    def _ranked(self) -> list[Ranked]:
        return ranking(self._rows(), self._given.aims, Simplicity(self._space))

    def _write(self, ranked: list[Ranked], ended: str) -> None:
        """Say it, and write all files; then raises for the first one that could not be written."""
        given, trials, folder = self._given, self._rows(), self._given.output
        said = explained(ranked, trials, given.aims, self._subject, given.confirm)
        say(f"\n{ended}" + (f"\n\n{table(ranked).rstrip()}" if ranked else ""))
        for line in failures(trials):
            say(f"failed: {line}")
        if given.explain:
            say("\n" + "\n".join(said))
        failed: list[TisError] = []
        written = set[Path]()
        for path, text in self._files(ranked, said, trials):
            try:
                written.add(path)
                write(path, text)
            except TisError as error:
                failed.append(error)
        try:
            forget(folder, written)
        except TisError as error:
            failed.append(error)
        if failed:
            raise failed[0]
        if ranked:
            best = min(given.best, len(ranked))
            to = "and" if best == 2 else "to"
            places = "a configuration in best/1" if best == 1 else f"configurations in best/1 {to} best/{best}"
            say(f"\nWritten to {folder}: report.html, results.csv, {places}")

    def _files(self, ranked: list[Ranked], said: list[str], trials: list[Trial]) -> Iterator[tuple[Path, str]]:
        given, folder = self._given, self._given.output
        name = given.asked.model
        result = Result(name, ranked, trials, given.aims, said, self._ended, self._about(), self._diff(ranked))
        yield folder / REPORT, page(result)
        failed = out(ranked, trials).values()
        yield folder / TABLE, csv_text(given.asked.batch_size, self._subject, ranked, failed)
        for place, each in enumerate(ranked[: given.best], 1):
            trial, best = each.trial, folder / "best" / str(place)
            what = (
                f"{trial.variant.text}, {trial.throughput:.4g} inferences/s at {trial.load}, p99 "
                f"{milliseconds(trial, 'p99')}"
            )
            if each.broken:
                what += f"\n# It does not keep all bounds: {'; '.join(each.broken)}"
            for model, config in self._subject.configured(trial.variant).items():
                inner = best / model if self._subject.several else best
                yield inner / "config.pbtxt", f"{RANK}{place} of tisfast analyze: {what}\n{config_text(model, config)}"

    def _diff(self, ranked: list[Ranked]) -> list[str]:
        """Lines of config.pbtxt that the best variant takes away and adds."""
        found: list[str] = []
        for name, config in self._subject.configured(ranked[0].trial.variant).items() if ranked else ():
            before, after = (config_text(name, each).splitlines() for each in (self._subject.configs[name], config))
            lines = difflib.unified_diff(before, after, lineterm="")
            changed = [each for each in lines if not each.startswith(("---", "+++"))]
            found += [f"{name}:", *changed] if changed and len(self._models) > 1 else changed
        return found

    def _about(self) -> Mapping[str, str]:
        setup, aims = self._made_with, self._given.aims
        wanted = {
            "objectives": ", ".join(f"{name} ({weight:g})" for name, weight in aims.objectives),
            "bounds": ", ".join(each.text for each in aims.constraints) or "none",
            "margin": f"{aims.margin:g} %",
        }
        settings = {
            f"setting {name.replace('_', ' ')}": str(value)
            for name, value in asdict(self._given.asked.settings).items()
        }
        told = {name: str(value) for name, value in setup.items() if name not in ("default configuration", "machine")}
        return {**wanted, **told, **{name: str(value) for name, value in machine().items()}, **settings}
