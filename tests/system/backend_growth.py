"""Models that are loaded, replaced and unloaded again and again while clients ask, and what the server holds then."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from perf.macro.growth import Held, growth
from tests.system.array_calls import infer
from tests.system.helpers import Server, until

ROUNDS, WARM_ROUNDS, UNLOAD_EVERY = 100, 20, 4
FLAGS = ("--model-control-mode=explicit", "--load-model=m", "--load-model=steady")
ROWS = np.array([[1], [2], [3]], np.float32)
GONE = ("is not ready", "is not found", "Request for unknown model", "is unloading", "has no available versions")


class Adder(NamedTuple):
    """A model that adds a number to its one input, a column of FP32.

    write(folder, n): writes its files, for the number n; answer(n): what it makes of ROWS.
    """

    file: str
    write: Callable[[Path, int], object]
    answer: Callable[[int], np.ndarray]
    config: str


def sides(output: str) -> str:
    """The tensors of an Adder's config."""
    return f"""
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 1 ] }} ]
output [ {{ name: "{output}" data_type: TYPE_FP32 dims: [ 1 ] }} ]
"""


class Asker(threading.Thread):
    """A client that asks one model without pause.  wrong: what it was told that it should not have been."""

    def __init__(self, server: Server, model: str, tensor: str, is_right: Callable[[np.ndarray], bool]) -> None:
        super().__init__(daemon=True)
        self.asked, self.wrong, self.over = 0, [], threading.Event()
        self._address = f"127.0.0.1:{server.says('is ready after')['grpc_port']}"
        self._model, self._tensor, self._is_right = model, tensor, is_right

    def run(self) -> None:
        """Until it is over."""
        with contextlib.closing(grpcclient.InferenceServerClient(self._address)) as client:
            while not self.over.is_set():
                try:
                    (found,) = infer(client, self._model, **{self._tensor: ROWS}).values()
                    if not self._is_right(found):
                        self.wrong.append(str(found))
                except InferenceServerException as error:
                    if self._model == "steady" or not any(text in str(error) for text in GONE):
                        self.wrong.append(str(error))
                self.asked += 1


@contextlib.contextmanager
def asked(*askers: Asker) -> Iterator[None]:
    """While clients ask."""
    for each in askers:
        each.start()
    try:
        yield
    finally:
        for each in askers:
            each.over.set()
        for each in askers:
            each.join()
    assert [each.wrong[:3] for each in askers] == [[]] * len(askers)
    assert all(each.asked > ROUNDS for each in askers)


def put(adder: Adder, folder: Path, n: int) -> None:
    """Write a version of the model, and have it take the place of the one before in one step."""
    new = folder.parent / f"{folder.name}.new"
    (new / "1").mkdir(parents=True)
    (new / "config.pbtxt").write_text(adder.config)
    adder.write(new / "1", n)
    if folder.exists():
        old = folder.rename(folder.parent / f"{folder.name}.old")
        new.rename(folder)
        shutil.rmtree(old)
    else:
        new.rename(folder)


def _mapped(process: psutil.Process) -> list[tuple[str, int]]:
    """Path and proportional bytes, but for libraries and programs: its share of these grows when other tests end."""
    program = process.exe()
    return [(each.path, each.pss) for each in process.memory_maps() if ".so" not in each.path and each.path != program]


def held(server: Server) -> Held:
    """What the server and its processes hold now."""
    mapped = [each for maps in server.of_family(_mapped) for each in maps]
    names = {path for path, _ in mapped if path.startswith("/dev/shm")}
    pss = sum(nbytes for _, nbytes in mapped)
    return Held(pss, sum(server.of_family(psutil.Process.num_fds)), len(server.family()), len(names))


def no_more_than(before: Held, server: Server) -> None:
    """Wait until it holds no more than before: the last copies drain, and what they held goes with them."""
    until(lambda: growth(before, held(server)) == [], lambda: f"{growth(before, held(server))} is over")


def left(*folders: Path) -> list[str]:
    """Files that lie there."""
    return sorted(str(path) for folder in folders for path in folder.rglob("*"))


def nothing_grows(serve: Any, adder: Adder, tensor: str, repository: Path, flags: tuple[str, ...] = ()) -> None:
    """Load, replace and unload model `m` while clients ask it, and another one that stays as it is."""
    for name in ("m", "steady"):
        put(adder, repository / name, 0)
    server = serve(*FLAGS, *flags, repository=repository).ready()
    main = grpcclient.InferenceServerClient(f"127.0.0.1:{server.says('is ready after')['grpc_port']}")
    numbers = [adder.answer(n) for n in range(ROUNDS + 1)]
    steady = Asker(server, "steady", tensor, lambda found: np.allclose(found, numbers[0]))
    changing = Asker(server, "m", tensor, lambda found: any(np.allclose(found, each) for each in numbers))
    processes, before, files = len(server.family()), None, []
    with contextlib.closing(main), asked(steady, changing):
        for n in range(1, ROUNDS + 1):
            put(adder, repository / "m", n)
            if n % UNLOAD_EVERY == 0:
                main.unload_model("m")
                until(lambda: not server.model_ready("m"), "the model is unloaded")
            main.load_model("m")
            (found,) = infer(main, "m", **{tensor: ROWS}).values()
            assert np.allclose(found, numbers[n]), n
            if n == WARM_ROUNDS:
                until(lambda: len(server.family()) == processes, f"{processes} processes")
                before, files = held(server), left(server.scratch)
    assert before is not None
    warm = before
    no_more_than(warm, server)
    assert left(server.scratch) == files
    assert server.end() == 0
    assert left(server.scratch) == []
