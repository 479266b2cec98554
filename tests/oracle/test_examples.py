"""Equivalents of the example models of Triton's Python backend: both servers give equal answers."""

from __future__ import annotations

import itertools
import queue
import re
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

from perf.oracle.server import Server
from tests.oracle.servers import EXAMPLES, HERE

REPOSITORIES: Final = [
    *(EXAMPLES.parent / name for name in ("models", "decoupled", "custom_metrics", "rescheduling")),
    HERE / "example_models",
]
TYPES: Final = {"f": "FP32", "i": "INT32", "I": "UINT32", "O": "BYTES"}
SECONDS_MAX: Final = 60
Both = tuple[Server, Server]


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    with Server("triton", REPOSITORIES) as theirs, Server("tisfast", REPOSITORIES) as ours:
        yield theirs, ours


def infer(server: Server, model: str, inputs: dict[str, np.ndarray], **more: Any) -> Any:
    """Outputs by name, or the error's text.  As a list, so that == compares."""
    given = []
    for name, array in inputs.items():
        given.append(http_client.InferInput(name, array.shape, TYPES[array.dtype.char]))
        given[-1].set_data_from_numpy(array)
    with http_client.InferenceServerClient(f"localhost:{server.http}") as client:
        try:
            answer = client.infer(model, given, **more)
        except http_client.InferenceServerException as error:
            return error.message()
        return {each["name"]: answer.as_numpy(each["name"]).tolist() for each in answer.get_response()["outputs"]}


def stream(server: Server, model: str, inputs: dict[str, np.ndarray]) -> list[Any]:
    """All responses of a decoupled model up to the final one."""
    given = []
    for name, array in inputs.items():
        given.append(grpc_client.InferInput(name, array.shape, TYPES[array.dtype.char]))
        given[-1].set_data_from_numpy(array)
    said: queue.Queue[Any] = queue.Queue()
    found: list[Any] = []
    with grpc_client.InferenceServerClient(f"localhost:{server.grpc}") as client:
        client.start_stream(lambda result, error: said.put((result, error)))
        client.async_stream_infer(model, given, enable_empty_final_response=True)
        while True:
            result, error = said.get(timeout=SECONDS_MAX)
            if error is not None:
                return [*found, error.message()]
            response = result.get_response()
            outputs = {each.name: result.as_numpy(each.name).tolist() for each in response.outputs}
            found.append(outputs)
            if response.parameters["triton_final_response"].bool_param:
                return found


def alike(both: Both, ask: Any, *arguments: Any, **more: Any) -> Any:
    """The answer of both, which is the same."""
    theirs, ours = (ask(server, *arguments, **more) for server in both)
    assert ours == theirs
    return ours


def row(*values: Any, dtype: str = "f4") -> np.ndarray:
    return np.array([values], dtype)


def test_add_sub(both: Both) -> None:
    found = alike(both, infer, "add_sub", {"INPUT0": np.float32([1, 2, 3, 4]), "INPUT1": np.float32([5, 6, 7, 8])})
    assert found == {"OUTPUT0": [6, 8, 10, 12], "OUTPUT1": [-4, -4, -4, -4]}


def test_async_execute(both: Both) -> None:
    found = alike(both, infer, "async_add_sub", {"A": row(1, 2), "B": row(3, 4)})
    assert found == {"SUM": [[4, 6]], "DIFFERENCE": [[-2, -2]]}
    assert "a negative A" in alike(both, infer, "async_add_sub", {"A": row(-1, 2), "B": row(3, 4)})

    def many(server: Server) -> list[Any]:
        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(infer, server, "async_add_sub", {"A": row(i, i), "B": row(1, 2)}) for i in range(16)]
            return [each.result() for each in asked]

    assert alike(both, many)[15] == {"SUM": [[16, 17]], "DIFFERENCE": [[14, 13]]}


def test_auto_complete(both: Both) -> None:
    def facts(server: Server) -> Any:
        with http_client.InferenceServerClient(f"localhost:{server.http}") as client:
            config = client.get_model_config("auto_add_sub")
            names = ("max_batch_size", "input", "output", "dynamic_batching")
            return client.get_model_metadata("auto_add_sub"), {name: config[name] for name in names}

    alike(both, facts)
    given = {"A": row(1, 2, 3, 4), "B": row(1, 1, 1, 1)}
    assert alike(both, infer, "auto_add_sub", given)["SUM"] == [[2, 3, 4, 5]]


@pytest.mark.parametrize("times", [0, 1, 5])
def test_decoupled_square(both: Both, times: int) -> None:
    assert alike(both, stream, "square_int32", {"IN": row(times, dtype="i4")}) == [{"OUT": [[times]]}] * times + [{}]


def test_decoupled_repeat(both: Both) -> None:
    given = {"IN": np.int32([4, 2, 0]), "DELAY": np.uint32([0, 5, 1]), "WAIT": np.uint32([1])}
    found = alike(both, stream, "repeat_int32", given)
    assert found == [{"OUT": [value], "IDX": [at]} for at, value in enumerate([4, 2, 0])] + [{}]


def test_decoupled_async_execute_overlaps(both: Both) -> None:
    """Each waits until all four have begun: one after the other, none would end."""

    def at_once(server: Server) -> list[Any]:
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(stream, server, "stream_async", {"WAIT_FOR": np.int32([4, i])}) for i in range(4)]
            return [each.result() for each in asked]

    assert alike(both, at_once)[3] == [{"OUT": [4]}, {"OUT": [3]}, {}]


def test_custom_metrics(both: Both) -> None:
    def kept(server: Server) -> Any:
        for size in (1, 20, 20, 3000):
            assert infer(server, "observed_sum", {"IN": np.ones((1, size), np.float32)}) == {"OUT": [[size]]}
        with urllib.request.urlopen(f"http://localhost:{server.metrics}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        about = sorted(line for line in lines if re.match(r"# (HELP|TYPE) example_", line))
        samples = [re.fullmatch(r"(example_\w+)\{(.*)\} (\S+)", line) for line in lines]
        return about, {(s[1], frozenset(s[2].split(","))): float(s[3]) for s in samples if s}

    about, samples = alike(both, kept)
    assert len(about) == 6
    labels = frozenset(('model="observed_sum"', 'version="1"'))
    assert samples["example_elements_sum", labels] == 3041
    assert samples["example_elements_bucket", labels | {'le="100"'}] == 3
    assert samples["example_requests", labels | {'outcome="done"'}] == 4


def test_rescheduling(both: Both) -> None:
    for numbers in ([], [5], [1, 2, 3, 4]):
        found = alike(both, infer, "countdown", {"IN": np.array([numbers], np.int32)})
        assert found == {"SUM": [[sum(numbers)]], "ROUNDS": [[len(numbers)]]}

    def many(server: Server) -> list[Any]:
        with ThreadPoolExecutor(6) as pool:
            sizes = [i % 5 for i in range(24)]
            asked = [pool.submit(infer, server, "countdown", {"IN": np.ones((1, n), np.int32)}) for n in sizes]
            return [each.result() for each in asked]

    assert alike(both, many)[4] == {"SUM": [[4]], "ROUNDS": [[4]]}


def test_rescheduling_counts_its_rounds(both: Both) -> None:
    def grown(server: Server) -> tuple[int, int]:
        before, after = counts(server), None
        infer(server, "countdown", {"IN": row(1, 2, 3, dtype="i4")})
        after = counts(server)
        return after[0] - before[0], after[1] - before[1]

    def counts(server: Server) -> tuple[int, int]:
        with http_client.InferenceServerClient(f"localhost:{server.http}") as client:
            stats = client.get_inference_statistics("countdown")["model_stats"][0]
        return stats["execution_count"], stats["inference_count"]

    assert alike(both, grown)[0] == 4


@pytest.mark.parametrize("number", [0, 1, 7])
def test_decoupled_rescheduling(both: Both, number: int) -> None:
    found = alike(both, stream, "countdown_stream", {"N": row(number, dtype="i4")})
    assert found == [{"LEFT": [[left]]} for left in range(number, -1, -1)] + [{}]


def picture(width: int, height: int) -> bytes:
    return b"P6 %d %d 255\n" % (width, height) + bytes(range(1, 3 * width * height + 1))


def test_preprocessing(both: Both) -> None:
    def given(*raw: bytes) -> dict[str, np.ndarray]:
        return {"IMAGE": np.array([[each] for each in raw], object)}

    planes = np.array(alike(both, infer, "preprocess", given(picture(4, 3)))["PIXELS"])
    assert planes.shape == (1, 3, 3, 4) and abs(planes[0, 0, 0, 0] - (1 / 255 - 0.485) / 0.229) < 1e-6
    two = alike(both, infer, "preprocess", given(picture(2, 2), picture(2, 2)))
    assert np.array(two["PIXELS"]).shape == (2, 3, 2, 2)
    assert "not a picture: b'P5' of depth b'255'" in alike(both, infer, "preprocess", given(b"P5 1 1 255 x"))


def test_sequences_in_turn(both: Both) -> None:
    def turns(server: Server) -> list[Any]:
        found = []
        for at, sequence in itertools.product(range(3), (11, 12, 13)):
            more = {"sequence_id": sequence, "sequence_start": at == 0, "sequence_end": at == 2}
            found.append(infer(server, "running_sum", {"IN": row(at + sequence, dtype="i4")}, **more))
        return found

    found = alike(both, turns)
    assert [each["OUT"][0][0] for each in found] == [11, 12, 13, 23, 25, 27, 36, 39, 42]
    assert found[0]["SAID"] == [[1, 0, 1, 11, 11, 1, 5]] and found[8]["SAID"] == [[0, 1, 1, 13, 13, 2, 5]]
