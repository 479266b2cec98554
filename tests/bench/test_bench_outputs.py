"""What is written: perf_analyzer's lines, columns and keys (as its version 2.41 wrote them), and the whole run."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.bench.made_levels import REALTIME, histogram_of, latencies, level_of, run_of, server_of
from tisfast.bench.csv_output import csv_files, csv_text
from tisfast.bench.files import write_text
from tisfast.bench.json_output import document, document_text, profile_export, unpacked
from tisfast.bench.report_html import page
from tisfast.bench.results import STAMP, ClientCost, Level, Measurement, Settings, Target
from tisfast.bench.text import header, level_text, summary
from tisfast.errors import Unavailable

COLUMNS = (
    "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,"
    "Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency"
)
VERBOSE = ",Avg latency,request/response,response wait"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_columns_are_perf_analyzers():
    run = run_of(level_of(latencies(1000)))

    assert csv_text(run).splitlines()[0] == COLUMNS
    assert csv_text(run, verbose=True).splitlines()[0] == COLUMNS + VERBOSE


def test_a_rate_and_a_percentile_have_their_columns():
    run = run_of(level_of(latencies(1000), Level("request_rate", 100.0)), settings=Settings(percentile=75))

    names = csv_text(run, verbose=True).splitlines()[0].split(",")
    assert names[0] == "Request Rate"
    assert names[9:14] == ["p50 latency", "p75 latency", "p90 latency", "p95 latency", "p99 latency"]
    assert "Avg latency" not in names


def test_the_parts_of_a_row_add_up_to_the_latency():
    (row,) = rows(csv_text(run_of(level_of(latencies(1000))), verbose=True))
    parts = ("Client Send", "Network+Server Send/Recv", "Client Recv")
    server = [value for name, value in row.items() if name.startswith("Server")]

    assert sum(int(row[name]) for name in parts) + sum(map(int, server)) == int(row["Avg latency"])
    assert int(row["request/response"]) + int(row["response wait"]) == int(row["Avg latency"])
    assert [int(value) for value in server] == [100, 30, 400, 50]


def test_rows_go_by_throughput():
    slow, fast = (
        level_of(latencies(1000, requests=40)),
        level_of(latencies(900, requests=90), Level("concurrency", 2.0)),
    )

    assert [row["Concurrency"] for row in rows(csv_text(run_of(fast, slow)))] == ["4", "2"]


def test_a_cache_and_gpus_have_columns():
    split = server_of(4000, cache_hit_count=3000, cache_hit_ns=3000 * 9000, cache_miss_count=1000, cache_miss_ns=10**7)
    gpus = {"GPU-1": {"utilization": 0.5, "power_watts": 70.0, "memory_used": 5.0, "memory_total": 9.0}}
    (row,) = rows(csv_text(run_of(level_of(latencies(2000), server=split, gpus=gpus)), verbose=True))

    assert (row["Server Cache Hit"], row["Server Cache Miss"]) == ("9", "10")
    assert row["Avg GPU Utilization"] == "GPU-1:0.5;"
    assert row["Total GPU Memory"] == "GPU-1:9;"


def test_without_statistics_there_are_no_columns_of_the_server():
    assert "Server" not in csv_text(run_of(level_of(latencies(1000), server=None)))


def test_on_standard_output_all_tables_follow_each_other(tmp_path):
    """A name beside it would be a file in /dev."""
    split = server_of(4000, composing={"inner/a:3": server_of(4000)})
    run = run_of(level_of(latencies(1000), server=split))
    files = csv_files(str(tmp_path / "out.csv"), run)
    assert list(csv_files("/dev/stdout", run).items()) == [("/dev/stdout", "\n".join(files.values()))]
    assert set(files) == {str(tmp_path / "out.csv"), str(tmp_path / "inner_a_v3.out.csv")}


def test_composing_models_have_files_of_their_own(tmp_path):
    split = server_of(4000, composing={"inner:3": server_of(4000)})
    files = csv_files(str(tmp_path / "out.csv"), run_of(level_of(latencies(1000), server=split)))

    assert set(files) == {str(tmp_path / "out.csv"), str(tmp_path / "inner_v3.out.csv")}
    (row,) = rows(files[str(tmp_path / "inner_v3.out.csv")])
    assert (row["Client Send"], row["Client Recv"], row["Server Queue"]) == ("0", "0", "100")


def test_percentiles_that_too_few_requests_support_are_not_shown():
    level = level_of(latencies(1000, windows=2, requests=50))
    (row,) = rows(csv_text(run_of(level)))
    text = level_text(level, Settings(), 1)

    assert row["p95 latency"] and row["p99 latency"] == ""
    assert "p99 latency: - (of 100 requests; it takes 368 to tell it)" in text
    assert document(run_of(level))["levels"][0]["service_time"]["percentiles_us"]["99"] is None


def test_the_profile_export_has_perf_analyzers_keys_and_times():
    exported = json.loads("".join(profile_export(run_of(level_of(latencies(1000, windows=3, requests=5))), "0.1")))

    assert list(exported) == ["experiments", "version", "service_kind", "endpoint"]
    (experiment,) = exported["experiments"]
    assert list(experiment) == ["experiment", "requests", "window_boundaries"]
    assert experiment["experiment"] == {"mode": "concurrency", "value": 4}
    assert len(experiment["requests"]) == 15  # the failed one is not there
    assert experiment["requests"][2] == {
        "timestamp": REALTIME + 2000,
        "response_timestamps": [REALTIME + 702_000],
    }
    assert experiment["window_boundaries"] == [REALTIME, REALTIME + 300_000_000]


def test_sequences_and_streams_in_the_profile_export():
    level = level_of(latencies(1000, windows=1, requests=2))
    (one,), (other, _) = level.records
    one["sequence_id"] = 9
    other["responses"] = 3
    other["first"] -= 1000
    first, second = json.loads("".join(profile_export(run_of(level), "0.1")))["experiments"][0]["requests"]

    assert first["sequence_id"] == 9 and "sequence_id" not in second
    assert second["response_timestamps"] == [REALTIME + 700_000, REALTIME + 701_000]


def test_each_response_has_its_time_where_all_of_a_request_were_kept():
    level = level_of(latencies(1000, windows=1, requests=2))
    (one,), (other, failed) = level.records
    one["serial"], other["serial"], failed["serial"] = 1, 2, 3
    one["responses"] = other["responses"] = 2
    one["first"] = other["first"] = one["last"] - 1000
    stamps = np.zeros(6, STAMP)
    stamps["serial"] = [1, 2, 3, 1, 1, 2]
    stamps["ns"] = [one["first"], other["first"], 0, one["last"] - 500, one["last"], other["last"] - 1]
    level = replace(level, stamps=(stamps[:3], stamps[3:]))
    first, second = json.loads("".join(profile_export(run_of(level), "0.1")))["experiments"][0]["requests"]

    assert [each - REALTIME for each in first["response_timestamps"]] == [699_000, 699_500, 700_000]
    assert [each - REALTIME for each in second["response_timestamps"]] == [699_000, 701_000]


def test_without_records_the_export_has_no_requests():
    level = level_of(latencies(1000), records=())

    assert json.loads("".join(profile_export(run_of(level, level), "0.1")))["experiments"][1]["requests"] == []


def test_the_document_holds_the_run():
    level = level_of(latencies(1000))
    found = json.loads(document_text(run_of(level)))
    (shown,) = found["levels"]

    assert found["schema"] == "tisfast-bench/1"
    assert unpacked(shown["response_time"]["histogram"]).count == 4000
    assert sum(unpacked(each["histogram"]).count for each in shown["windows"]) == 4000
    low, high = shown["response_time"]["intervals_us"]["99"]
    assert low <= shown["response_time"]["percentiles_us"]["99"] <= high
    assert shown["server"]["compute_infer_us"] == 400
    assert shown["errors"]["by_text"] == [["503", "the queue <is> full", 1]]


LINES = [
    r"Request concurrency: 4",
    r"  Client: ",
    r"    Request count: 4000",
    r"    Throughput: 1000 infer/sec",
    r"    Avg latency: \d+ usec \(standard deviation \d+ usec\)",
    r"    p50 latency: \d+ usec",
    r"    p90 latency: \d+ usec",
    r"    p95 latency: \d+ usec",
    r"    p99 latency: \d+ usec",
    r"    Avg HTTP time: \d+ usec \(send/recv \d+ usec \+ response wait \d+ usec\)",
    r"  Server: ",
    r"    Inference count: 4000",
    r"    Execution count: 2000",
    r"    Successful request count: 4000",
    r"    Avg request latency: 600 usec \(overhead 20 usec \+ queue 100 usec \+ compute input 30 usec \+ compute infer "
    r"400 usec \+ compute output 50 usec\)",
]


def test_a_level_has_perf_analyzers_lines():
    lines = level_text(level_of(latencies(1000)), Settings(), 1).splitlines()

    for line, pattern in zip(lines, LINES, strict=False):
        assert re.fullmatch(pattern, line), (line, pattern)
    assert lines[len(LINES)] == "  Trust: "


@pytest.mark.parametrize(
    ("protocol", "verbose", "line"),
    [
        ("grpc", 0, r"Avg gRPC time: \d+ usec \(\(un\)marshal request/response \d+ usec \+ response wait \d+ usec\)"),
        ("grpc", 1, r"Avg gRPC time: \d+ usec \(marshal \d+ usec \+ response wait \d+ usec \+ unmarshal \d+ usec\)"),
        ("http", 1, r"Avg HTTP time: \d+ usec \(send \d+ usec \+ response wait \d+ usec \+ receive \d+ usec\)"),
    ],
)
def test_the_line_of_the_protocol(protocol, verbose, line):
    assert re.search(line, level_text(level_of(latencies(1000)), Settings(verbose=verbose), 1, protocol))


def test_the_header_is_perf_analyzers():
    assert header(Settings(concurrency_end=2), 1, "concurrency", False) == (
        "*** Measurement Settings ***\n"
        "  Batch size: 1\n"
        "  Service Kind: TRITON\n"
        '  Using "time_windows" mode for stabilization\n'
        "  Stabilizing using average latency and throughput\n"
        "  Measurement window: 5000 msec\n"
        "  Latency limit: 0 msec\n"
        "  Concurrency limit: 2 concurrent requests\n"
        "  Using synchronous calls for inference\n\n"
    )


def test_errors_and_the_clients_limit_are_said():
    cost = ClientCost(1, 1, 1, 0, 0, level_of(latencies(1)).service, 0, 0, "the client used 98 % of its core")
    text = level_text(level_of(latencies(1000), Level("request_rate", 50.0), client=cost, delayed=400), Settings(), 1)

    assert "Request Rate: 50 inference requests per second" in text
    assert (
        "Failed requests: 1 in the measured windows, 1 in the whole level" in text
        and "1 x 503: the queue <is> full" in text
    )
    assert "[WARNING] the client used 98 % of its core" in text
    assert "of the requests were delayed" in text
    assert re.search(r"p99 service time: \d+ usec", text)
    assert re.search(r"p99 latency is between \d+ and \d+ usec with 95 % confidence", text)


def test_a_level_without_one_answer_is_shown():
    level = level_of(np.empty((1, 0)), server=server_of(0))
    for text in (level_text(level, Settings(), 1), csv_text(run_of(level)), document_text(run_of(level))):
        assert "nan" not in text.lower()
    assert "p50 latency: - (of 0 requests; it takes 6 to tell it)" in level_text(level, Settings(), 1)


def late() -> Measurement:
    """An open loop of which each request waited for 5 ms, and then took 1 ms."""
    service = histogram_of([1e6] * 4000)
    return level_of([[6e6] * 100] * 40, Level("request_rate", 1000.0), service=service, first_byte=service)


def test_at_a_rate_all_latencies_count_from_the_intended_time_and_service_times_stand_beside():
    level = late()
    text = level_text(level, Settings(), 1)
    assert "    Latencies count from the intended time of sending, service times from the sending itself:\n" in text
    for name in ("Avg", "p50", "p90", "p95", "p99"):
        assert re.search(rf"    {name} latency: (5998|5999|6000|6001|6002) usec", text), name
        assert re.search(rf"    {name} service time: (999|1000) usec", text), name
    assert re.search(r"    p99 latency is between 59\d\d|60\d\d and", text)
    (row,) = rows(csv_text(run_of(level), verbose=True))
    assert row["Latency From"] == "intended time"
    assert {row[f"p{each} latency"] for each in (50, 90, 95, 99)} <= {"5998", "5999", "6000", "6001", "6002"}
    assert {row[f"p{each} service time"] for each in (50, 90, 95, 99)} <= {"999", "1000"}
    assert row["Avg latency"] == "6000"
    assert "latency 6000 usec from the intended time, service time 1000 usec" in summary(run_of(level))
    assert document(run_of(level))["levels"][0]["latency_from"] == "intended time"
    assert "<th>service time p99</th>" in page(document(run_of(level)))


def test_the_clients_limit_is_said_once():
    limited = "the client used 98 % of its core"
    cost = ClientCost(1, 1, 1, 0, 0, level_of(latencies(1)).service, 0, 0, limited)
    level = level_of(latencies(1000), client=cost, reason=f"the p99 latency is known only within 9 %: {limited}")
    assert level_text(level, Settings(), 1).count(limited) == 1


def test_a_closed_loop_has_one_latency():
    text = level_text(level_of(latencies(1000)), Settings(), 1)
    run = run_of(level_of(latencies(1000)))
    for said in (text, csv_text(run), summary(run)):
        assert "service time" not in said
    assert "service time p" not in page(document(run))


def test_a_level_with_a_cache_and_one_without_have_their_cells_in_their_columns():
    cached = server_of(4000, cache_hit_count=3000, cache_hit_ns=3000 * 9000, cache_miss_count=1000, cache_miss_ns=10**7)
    outer = [server_of(4000, composing={"inner:1": each}) for each in (server_of(4000), cached)]
    levels = [level_of(latencies(1000), Level("concurrency", at), server=each) for at, each in enumerate(outer, 1)]
    files = csv_files("out.csv", run_of(*levels))
    plain, hit = rows(files["inner_v1.out.csv"])
    assert (plain["Client Recv"], plain["Server Cache Hit"]) == ("0", "")
    assert (hit["Client Recv"], hit["Server Cache Hit"]) == ("0", "9")


def test_what_else_is_to_be_known_stands_under_trust():
    level = level_of(latencies(1000), notes=("no look at the metrics was in this time",))
    assert "    no look at the metrics was in this time\n" in level_text(level, Settings(), 1).split("Trust")[1]
    assert document(run_of(level))["levels"][0]["notes"] == ["no look at the metrics was in this time"]


def test_how_well_the_mean_is_known_is_said_where_that_ends_a_level():
    settings = Settings(stop="confidence", stability_percent=3)
    assert "  Stopping when the average latency is known within 3 %\n" in header(settings, 1, "concurrency", False)
    text = level_text(level_of(latencies(1000)), settings, 1)
    assert re.search(r"the mean latency is between \d+ and \d+ usec with 95 % confidence", text)


def test_the_summary_has_one_line_for_each_level():
    text = summary(run_of(level_of(latencies(1000)), target=Target("a", "http", "m", batch_size=8)))

    assert re.fullmatch(
        r"Inferences/Second vs. Client Average Batch Latency\nConcurrency: 4, throughput: 8000 infer/sec, "
        r"latency \d+ usec\n",
        text,
    )


def test_a_full_disk_is_said_with_file_and_remedy(tmp_path):
    with pytest.raises(Unavailable, match="/dev/full could not be written .No space left on device.: name a file"):
        write_text("/dev/full", "x")
    with pytest.raises(Unavailable, match="No such file or directory"):
        write_text(tmp_path / "no" / "folder", "x")


def test_a_link_goes_on_to_be_one(tmp_path):
    (tmp_path / "last.csv").symlink_to("today.csv")
    for text in ("old", "new"):
        write_text(tmp_path / "last.csv", text)
        assert (tmp_path / "today.csv").read_text() == text
    assert (tmp_path / "last.csv").is_symlink()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_in_shared_memory_is_a_file():
    """/dev/shm has files, and what /dev/fd has is open."""
    path = Path(f"/dev/shm/tisfast-test-{os.getpid()}")
    try:
        for text in ("old", "new"):
            write_text(path, text)
        assert path.read_text() == "new"
    finally:
        path.unlink(missing_ok=True)


def test_what_is_open_already_is_written_to_behind_what_it_has(tmp_path):
    """As /dev/fd/2 of a shell that appends it to a log."""
    path = tmp_path / "log"
    with path.open("w") as log:
        log.write("before\n")
        log.flush()
        write_text(f"/dev/fd/{log.fileno()}", "text\n")
    assert path.read_text() == "before\ntext\n"


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    write_text(path, "old")

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(path), "replace", full)
    with pytest.raises(Unavailable, match="No space left"):
        write_text(path, "new")

    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["out.csv"]
