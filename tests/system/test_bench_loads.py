"""`tisfast bench` with other loads than the plain ones, against tisfast: sequences, periods, checked streams."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from tests.system.bench_command import COUNTER, DECOUPLED, SEQUENCES, STREAM, bench, figure


@pytest.fixture
def server(write_model, serve):
    write_model("add_one")
    write_model("counter", COUNTER, SEQUENCES)
    write_model("talker", STREAM, DECOUPLED)
    return serve("--log-verbose=0", "--allow-client-shm=true").ready()


@pytest.fixture
def grpc_url(server):
    return f"127.0.0.1:{server.says('is ready after')['grpc_port']}"


def seen(tmp_path: Path) -> dict[int, list[tuple[int, int, float]]]:
    """Requests by their sequence, as the model saw them: (start, end, value)."""
    found = defaultdict(list)
    for line in (tmp_path / "models/counter/seen").read_text().splitlines():
        sequence_id, start, end, value = json.loads(line)
        found[sequence_id].append((start, end, value))
    return found


def whole(requests: list[tuple[int, int, float]]) -> bool:
    """It begins and ends once."""
    starts = [start for start, _, _ in requests]
    ends = [end for _, end, _ in requests]
    return starts == [1] + [0] * (len(requests) - 1) and ends == [0] * (len(requests) - 1) + [1]


@pytest.mark.parametrize("kind", ["http", "grpc", "stream"])
def test_sequences_arrive_whole_and_none_stays_open(server, grpc_url, tmp_path, kind):
    more = ["-u", f"127.0.0.1:{server.port}"] if kind == "http" else ["-i", "grpc", "-u", grpc_url]
    more += ["--streaming"] if kind == "stream" else []
    code, out, err = bench(
        "-m", "counter", *more, "--concurrency-range", "3", "--request-count", "100", "--sequence-length", "8",
        "--sequence-id-range", "1000:2000",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert figure(out, "Request count") == 100
    found = seen(tmp_path)
    assert all(whole(each) for each in found.values())
    assert all(1000 <= each < 2000 for each in found)
    lengths = [len(each) for each in found.values()]
    assert lengths[0] == 1  # the one before all
    assert min(lengths[1:-3]) >= 6 and max(lengths) <= 10  # 8, and 20 % more or less
    assert len(lengths) - 4 <= figure(out, "Sequence count") <= len(lengths) - 1  # those that were cut do not count


def test_sequences_at_a_rate(server, grpc_url, tmp_path):
    code, out, err = bench(
        "-m", "counter", "-i", "grpc", "-u", grpc_url, "--streaming", "--request-rate-range", "200",
        "--serial-sequences", "--request-count", "200", "--num-of-sequences", "5", "--sequence-length", "10",
        "--sequence-length-variation", "0",
    )  # fmt: skip
    assert (code, err) == (0, "")
    found = seen(tmp_path)
    assert all(whole(each) for each in found.values())
    lengths = [len(each) for each in found.values()]
    assert lengths[0] == 1 and set(lengths[1:-5]) == {10}  # the one before all; five are cut at most


def test_each_sequence_plays_a_stream_of_the_data(server, tmp_path):
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": [[{"A": [1]}, {"A": [2]}, {"A": [3]}], [{"A": [7]}, {"A": [8]}]]}))
    code, _, err = bench(
        "-m", "counter", "-u", f"127.0.0.1:{server.port}", "--request-count", "40", "--input-data", data
    )
    assert (code, err) == (0, "")
    played = {tuple(value for _, _, value in each) for each in list(seen(tmp_path).values())[1:-1]}
    assert played == {(1.0, 2.0, 3.0), (7.0, 8.0)}


def test_a_model_of_sequences_has_no_batches_of_the_clients(server):
    code, _, err = bench("-m", "counter", "-u", f"127.0.0.1:{server.port}", "-b", "2")
    assert code == 99
    assert "can not specify batch size > 1 when using a sequence model" in err


def test_requests_join_when_all_present_ones_have_answered_so_often(grpc_url, tmp_path):
    """Each request has three responses; two more begin when the ones before them have two each."""
    target = tmp_path / "requests.json"
    code, out, err = bench(
        "-m", "talker", "-i", "grpc", "-u", grpc_url, "--streaming", "--periodic-concurrency-range", "2:6:2",
        "--request-period", "2", "--profile-export-file", target,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert figure(out, "Request count") == 6
    requests = json.loads(target.read_text())["experiments"][0]["requests"]
    assert len(requests) == 6


@pytest.mark.parametrize("third", [2.0, 9.0])
def test_every_answer_of_a_decoupled_model_is_checked(grpc_url, tmp_path, third):
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": [{"A": [1, 2, 3, 4]}], "validation_data": [{"B": [1, third, 3, 4]}]}))
    code, out, _ = bench(
        "-m", "talker", "-i", "grpc", "-u", grpc_url, "--streaming", "--request-count", "20", "--input-data", data
    )
    assert code == (0 if third == 2 else 99)


@pytest.mark.parametrize("kind", ["http", "grpc", "stream"])
def test_tensors_in_shared_memory(server, grpc_url, kind):
    """No tensor goes through the connection, the model's answers are its own, and no region is left."""
    more = ["-u", f"127.0.0.1:{server.port}"] if kind == "http" else ["-i", "grpc", "-u", grpc_url]
    more += ["--streaming"] if kind == "stream" else []
    typed = ["-m", "add_one", *more, "--shape", "A:50000", "--request-count", "50", "--shared-memory", "system"]
    code, out, err = bench(*typed, "--output-shared-memory-size", "200000")
    assert (code, err) == (0, "")
    assert figure(out, "Successful request count") == 50
    assert server.ask("GET", "/v2/systemsharedmemory/status") == (200, [])
    code, _, err = bench(*typed)  # 102400 bytes are too few
    assert code == 99
    assert "the first request of model 'add_one' failed: " in err


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize("more", [[], ["--streaming"]])
def test_compressed_requests(grpc_url, tmp_path, algorithm, more):
    """What the model answers is what it was sent, one more."""
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": [{"A": [1, 2, 3]}], "validation_data": [{"B": [2, 3, 4]}]}))
    code, out, err = bench(
        "-m", "add_one", "-i", "grpc", "-u", grpc_url, "--shape", "A:3", "--request-count", "50", "--input-data", data,
        "--grpc-compression-algorithm", algorithm, *more,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert figure(out, "Request count") == 50
