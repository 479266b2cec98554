"""`tisfast convert`: try the formats of a model, write the best (docs/convert.md).  Top layer (cli)."""

from __future__ import annotations

import argparse
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tisfast import limits
from tisfast.cli_arguments import SIGNALLED, Parser
from tisfast.convert.conversion import Interrupted, convert
from tisfast.convert.formats import FORMATS, PRECISIONS
from tisfast.convert.held_signals import SIGNALS
from tisfast.convert.options import Options
from tisfast.convert.report import table
from tisfast.errors import ConfigError
from tisfast.standard_streams import say

NOTHING_FITS: Final = 3
"""All formats were tried, and none is right and within the constraint."""
DESCRIBES: Final = """Make a model in all formats that this machine can serve, hold each against the source over
sample inputs, measure each, and write the best as a model folder.  `tisfast docs convert` tells the rest.

  tisfast convert net.onnx -o converted
  tisfast convert net.onnx --samples real.npz --max-latency 20 -o converted
"""
DEFAULT: Final = Options()


def main(arguments: Sequence[str]) -> int:
    """Gives the exit code.  Raises TisError with a sentence."""
    given = _parser().parse_args(arguments)
    try:
        with _heard():
            found = convert(
                given.source,
                samples=given.samples or None,
                output=given.output,
                targets=given.target,
                precisions=tuple(given.precision),
                atol=given.atol,
                rtol=given.rtol,
                max_latency_ms=given.max_latency,
                min_throughput=given.min_throughput,
                max_batch_size=given.max_batch_size,
                no_batch=given.no_batch,
                concurrency=tuple(given.concurrency),
                seconds=given.seconds,
                step_seconds=given.step_seconds,
                name=given.name,
                allow_pickled=given.allow_pickled_models,
                told=_tell,
            )
    except KeyboardInterrupt as error:
        done = error.found if isinstance(error, Interrupted) else None
        if done is not None:
            say(table(done), end="")
        model = "no model" if done is None or done.model is None else f"the model {done.model}"
        say(f"tisfast: interrupted: {model} was written", error=True)
        for each in SIGNALS:  # the process ends now; Python gives its own handlers up before that
            signal.signal(each, signal.SIG_IGN)
        return SIGNALLED + (error.args[0] if error.args else signal.SIGINT)
    say(table(found), end="")
    return 0 if found.best is not None else NOTHING_FITS


@contextmanager
def _heard() -> Iterator[None]:
    """SIGTERM and SIGHUP end it as Ctrl-C does.

    What comes while that is obeyed is not heard, also behind this, until the process has ended: it would leave files
    and processes, or end it with another exit code; a terminal that goes sends SIGHUP twice.  What the shell has had
    ignored (nohup) stays so.
    """
    last = -math.inf

    def interrupted(number: int, _: object) -> None:
        nonlocal last
        if time.monotonic() - last > limits.CONVERT_CLEAN_SECONDS_MAX:
            last = time.monotonic()
            raise KeyboardInterrupt(number)

    before = {each: signal.getsignal(each) for each in SIGNALS}
    for each, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(each, interrupted)
    try:
        yield
    finally:
        for each, handler in before.items() if last == -math.inf else ():
            signal.signal(each, handler)


def _tell(text: str) -> None:
    say(f"... {text}", error=True)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tisfast convert",
        usage="tisfast convert SOURCE -o FOLDER [options]",
        description=DESCRIBES,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("source", metavar="SOURCE", help="a model file, or MODULE:FACTORY of a torch module")
    add(
        "-o",
        "--output",
        metavar="FOLDER",
        required=True,
        help="gets NAME/, the best model, report.json and report.html",
    )
    add("--name", help="of the model; else the file's")
    add("--samples", action="append", metavar="FILE.npz",
        help="inputs by name, the batch in front; repeat it for more; else they are random")  # fmt: skip
    add("--target", type=_names, metavar="A,B", help=f"formats: {', '.join(FORMATS)}; all by default")
    add("--precision", type=_names, default=PRECISIONS, metavar="A,B", help="fp32, fp16; both by default")
    add("--atol", type=_number, metavar="X", help="a number x of an answer may differ by X + rtol * |x|; by default X "
        "is a part of the output's own scale, as the precision asks: see `tisfast docs convert`")  # fmt: skip
    add("--rtol", type=_number, metavar="X", help="see --atol; by default as the precision asks")
    add("--max-latency", type=_number, metavar="MS", help="only loads count whose p99 is within")
    add("--min-throughput", type=_number, metavar="N",
        help="take the one that answers soonest, of those with N requests a second")  # fmt: skip
    add("--max-batch-size", type=_whole, default=DEFAULT.max_batch_size, metavar="N", help="of one that batches (8)")
    add("--no-batch", action="store_true", help="the first dimension is no batch, but time or a fixed size")
    add("--concurrency", type=_wholes, default=DEFAULT.concurrency, metavar="A,B", help="requests at one time (1,8)")
    add(
        "--seconds", type=_number, default=DEFAULT.seconds, metavar="S", help="that a load takes at least (1); from 0.1"
    )
    add("--step-seconds", type=_number, default=DEFAULT.step_seconds, metavar="S",
        help=f"that a framework may take for one step ({limits.CONVERT_STEP_SECONDS:g}); from 1")  # fmt: skip
    add("--allow-pickled-models", action="store_true", help="read files that can run code when they are read")
    return parser


def _checked(kind: Callable[[str], Any], text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(f"{text!r} is no number") from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def _number(text: str) -> float:
    return float(_checked(float, text))


def _whole(text: str) -> int:
    return int(_checked(int, text))


def _wholes(text: str) -> tuple[int, ...]:
    return tuple(_whole(each) for each in text.split(","))
