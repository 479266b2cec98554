"""perf_analyzer's command line."""

from __future__ import annotations

import pytest

from tisfast.bench.arguments import read
from tisfast.bench.encryption import Encryption
from tisfast.bench.flags import NO_VALUE, REFUSED
from tisfast.errors import ConfigError


def test_the_defaults_are_those_of_perf_analyzer():
    given = read(["-m", "add_sub"]).asked
    assert (given.model, given.mode, given.levels) == ("add_sub", "concurrency", (1, 1, 1))
    assert str(given.address) == "http://localhost:8000"
    settings = given.settings
    assert (settings.window_ms, settings.stability_percent, settings.trials, settings.percentile) == (5000, 10, 10, -1)
    assert settings.measurement_mode == "time_windows"
    assert str(read(["-m", "x", "-i", "gRPC"]).asked.address) == "grpc://localhost:8001"


@pytest.mark.parametrize(
    ("typed", "levels"),
    [
        (["--concurrency-range", "1:9:2"], (1, 9, 2)),
        (["--concurrency-range=4"], (4, 4, 1)),
        (["--conc", "2:3"], (2, 3, 1)),
        (["-t", "5"], (5, 5, 1)),
        (["-d", "-l", "10", "-c", "7"], (1, 7, 1)),
        (["-d", "-l", "10"], (1, 0, 1)),
    ],
)
def test_ranges_of_concurrency(typed, levels):
    given = read(["-m", "x", *typed]).asked
    assert (given.mode, given.levels) == ("concurrency", levels)


def test_levels_may_be_listed():
    given = read(["-m", "x", "--concurrency-range", "1,4,60000"]).asked
    assert (given.mode, given.listed, given.levels) == ("concurrency", (1, 4, 60000), (1, 60000, 1))
    given = read(["-m", "x", "--request-rate-range", "0.5,700"]).asked
    assert (given.mode, given.listed) == ("request_rate", (0.5, 700))


def test_a_range_of_rates_may_have_fractions():
    given = read(["-m", "x", "--request-rate-range", "0.5:2.5:0.5"]).asked
    assert (given.mode, given.levels) == ("request_rate", (0.5, 2.5, 0.5))


def test_what_is_sent():
    typed = ["--shape", "A:3,4", "--shape", "B:C:5", "-H", "Authorization: Bearer x", "-b", "4", "-z", "-p3000"]
    given = read(["-m", "x", *typed]).asked
    assert given.data.shapes == (("A", (3, 4)), ("B:C", (5,)))
    assert given.headers == (("Authorization", "Bearer x"),)
    assert (given.batch_size, given.data.zero, given.settings.window_ms) == (4, True, 3000)


def test_request_parameters_have_types():
    typed = [each for one in ("a:5:int", "b:true:bool", "c:d:string") for each in ("--request-parameter", one)]
    assert read(["-m", "x", "-i", "grpc", *typed]).asked.data.parameters == {"a": 5, "b": True, "c": "d"}


@pytest.mark.parametrize("flag", sorted(REFUSED))
def test_a_flag_that_is_not_served_is_refused_by_its_name_with_the_reason(flag):
    value = [] if flag in NO_VALUE else ["1"]
    with pytest.raises(ConfigError) as refused:
        read(["-m", "x", flag, *value])
    assert str(refused.value).startswith(f"{flag} is not served by tisfast bench: {REFUSED[flag]}")


@pytest.mark.parametrize(
    "typed", [["--service-kind", "triton"], ["--shared-memory", "none"], ["--grpc-compression-algorithm", "none"]]
)
def test_a_value_that_asks_for_nothing_is_taken(typed):
    assert read(["-m", "x", *typed]).asked.model == "x"


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ([], "Failed to parse -m (model name). The value must be specified."),
        (["-m", "x", "--concurrency-range", "1:2:3:4"], "does not match <start:end:step>"),
        (["-m", "x", "--concurrency-range", "a"], "Failed to parse --concurrency-range. Invalid value provided: a"),
        (["-m", "x", "--concurrency-range", "1:0"], "can not be both 0"),
        (["-m", "x", "--concurrency-range", "1", "--request-rate-range", "1"], "more than one inference load mode"),
        (["-m", "x", "--concurrency-range", "1,a"], "Failed to parse --concurrency-range. Invalid value provided: 1,a"),
        (["-m", "x", "--concurrency-range", "4,1"], "each more than the last: 4,1"),
        (["-m", "x", "--concurrency-range", "0,1"], "are more than 0, each more than the last: 0,1"),
        (["-m", "x", "--concurrency-range", "1,70000"], "has 70000 requests under way"),
        (["-m", "x", "--request-rate-range", "1,inf"], "each more than the last: 1,inf"),
        (["-m", "x", "--concurrency-range", "1,"], "Invalid value provided: 1,"),
        (["-m", "x", "--request-rate-range", ",".join(map(str, range(1, 1003)))], "has 1002 levels; at most 1000"),
        (["-m", "x", "-l", "9", "--binary-search", "--concurrency-range", "1,9"], "write --concurrency-range START"),
        (["-m", "x", "--request-count", "5", "--concurrency-range", "1,4"], "not supported with multiple"),
        (["-m", "x", "--concurrency-range", "1:60000"], "has more than 1000 levels"),
        (["-m", "x", "--async", "--sync"], "Cannot specify --async and --sync simultaneously."),
        (["-m", "x", "--streaming"], "Streaming is only allowed with gRPC protocol"),
        (["-m", "x", "--binary-search", "--concurrency-range", "1:9"], "The --latency-threshold cannot be 0"),
        (["-m", "x", "--request-count", "5", "--concurrency-range", "1:4"], "not supported with multiple"),
        (["-m", "x", "--request-count", "5", "--concurrency-range", "8"], "can not be less than concurrency"),
        (["-m", "x", "--percentile", "100"], "Failed to parse --percentile"),
        (["-m", "x", "-p", "0"], "Failed to parse -p. The value must be > 0, it is 0"),
        (["-m", "x", "-p", "abc"], "invalid int value: 'abc'"),
        (["-m", "x", "--metrics-url", "a:1/m"], "Must specify --collect-metrics when using the --metrics-url option."),
        (["-m", "x", "--shape", "A"], "write NAME:D1,D2"),
        (["-m", "x", "--shape", "A:0"], "dimensions of 1 and more"),
        (["-m", "x", "-H", "novalue"], "is no header; write NAME:VALUE"),
        (["-m", "x", "-i", "carrier-pigeon"], "Failed to parse -i"),
        (["-m", "x", "--ssl-https-verify-peer", "2"], "--ssl-https-verify-peer. The value must be either 0 or 1."),
        (["-m", "x", "--ssl-https-verify-host", "3"], "--ssl-https-verify-host. The value must be either 0, 1, or 2."),
        (["-m", "x", "--ssl-https-private-key-type", "der"], "Unsupported type provided: 'der'. The available options"),
        (["-m", "x", "--ssl-grpc-root-certifications-file", "/no/ca"], "The value must be a valid file path; there is"),
        (
            ["-m", "x", "--ssl-https-verify-peer", "0"],
            "--ssl-https-verify-peer is of encrypted HTTPS, and this connection is not: add -u https",
        ),
        (
            ["-m", "x", "-u", "https://a", "--ssl-https-private-key-file", __file__],
            "without --ssl-https-client-certificate-file, whose key it is",
        ),
        (
            ["-m", "x", "-i", "grpc", "--ssl-grpc-root-certifications-file", __file__],
            "is of encrypted gRPC, and this connection is not: add -i grpc --ssl-grpc-use-ssl",
        ),
        (
            ["-m", "x", "-i", "grpc", "--ssl-https-verify-peer", "0"],
            "--ssl-https-verify-peer is of encrypted HTTPS, and this connection is not",
        ),
        (
            ["-m", "x", "-u", "grpcs://a", "--ssl-https-verify-peer", "0"],
            "--ssl-https-verify-peer is of encrypted HTTPS, and this connection is not",
        ),
        (["-m", "x", "--ssl-grpc-use-ssl"], "--ssl-grpc-use-ssl is of encrypted gRPC, and this connection is not"),
        (["-m", "x", "-u", "localhost:0"], "-u: 'http://localhost:0' has the port 0, at which nobody listens"),
        (["-m", "x", "--vs", "localhost:notaport"], "--vs: 'http://localhost:notaport' is no address"),
        (["-m", "\udcff"], "-m '\\udcff': it is no UTF-8"),
        (["-m", "x", "-H", "a: \udcff"], "-H 'a: \\udcff': it is no UTF-8"),
        (["-m", "x", "--request-distribution", "poisson"], "--request-distribution poisson is of a request rate"),
        (["-m", "x", "--connections", "5"], "--connections is of a request rate"),
        (["-m", "x", "--input-data", "zero", "--input-data", "a.json"], "--input-data zero has data made, and --input"),
        (["-m", "x", "-z", "--input-data", "a.json"], "-z has data made, and --input-data a.json has its own"),
        (["-m", "x", "--json", "a", "--report", "a"], "two flags write a, and the second would write over the first"),
        (["-m", "x", "--connections", "-5"], "Failed to parse --connections. The value must be >= 0, it is -5"),
        (
            ["-m", "x", "--request-rate-range", "9", "--connections", "100000"],
            "--connections. The value must be at most 16384, it is 100000",
        ),
        (["-m", "x", "--seed", "-1"], "Failed to parse --seed. The value must be >= 0, it is -1"),
        (["-m", "x", "--max-errors", "-1"], "Failed to parse --max-errors. The value must be >= 0, it is -1"),
        (["-m", "x", "-t", "-3"], "Failed to parse -t. The value must be > 0, it is -3"),
        (["-m", "x", "-l", "-3"], "Failed to parse -l. The value must be >= 0, it is -3"),
        (["-m", "x", "-s", "nan"], "Failed to parse -s. The value must be a number >= 0, it is nan"),
        (["-m", "x", "--concurrency-range", "8:4"], "8:4 measures nothing: its end 4 is below its start 8"),
        (["-m", "x", "--concurrency-range", "70000"], "has 70000 requests under way; at most 65536 can be"),
        (["-m", "x", "--request-rate-range", "nan"], "--request-rate-range. Each value is a finite number: nan"),
        (["-m", "x", "-i", "grpc", "--input-tensor-format", "json"], "--input-tensor-format json is only for HTTP"),
        (
            ["-m", "x", "--request-rate-ramp", "1:2"],
            "--request-rate-ramp. The value does not match <start:end:seconds>",
        ),
        (["-m", "x", "--request-rate-ramp", "0:1:1"], "at least one request is due within them"),
        (["-m", "x", "--request-rate-ramp", "1:2:3", "--request-count", "9"], "--request-count has no place"),
        (["-m", "x", "--periodic-concurrency-range", "1:4"], "counts the responses of a stream: add --streaming"),
        (["-m", "x", "--periodic-concurrency-range", "1"], "does not match <start:end:step>: 1"),
        (["-m", "x", "--periodic-concurrency-range", "1:4:2"], "there is no whole number of steps of 2"),
        (["-m", "x", "--request-period", "4"], "belongs to --periodic-concurrency-range"),
        (["-m", "x", "--fixed-schedule"], "--fixed-schedule needs --input-data FILE"),
        (["-m", "x", "--fixed-schedule", "-t", "1"], "are given: --concurrency-range and --fixed-schedule"),
        (["-m", "x", "--sequence-length", "0"], "--sequence-length is 0: write a number from 1"),
        (["-m", "x", "--sequence-id-range", "5:5"], "--sequence-id-range is 5:5"),
        (["-m", "x", "--sequence-id-range", "a"], "--sequence-id-range. The value does not match <start:end>: a"),
        (["-m", "x", "--num-of-sequences", "0"], "Failed to parse --num-of-sequences. The value must be > 0, it is 0"),
        (["-m", "x", "--shared-memory", "gpu"], "It is none, system or cuda, not 'gpu'"),
        (["-m", "x", "--output-shared-memory-size", "9"], "belongs to --shared-memory system or cuda"),
        (["-m", "x", "--grpc-compression-algorithm", "gzip"], "is only for gRPC: add -i grpc"),
        (["-m", "x", "--calibrate", "-u", "https://a"], "--calibrate does not know what encryption costs"),
        (["--replay", "x.jsonl", "--calibrate"], "those of --replay differ: leave one of them out"),
        (["-m", "x", "--calibrate", "-i", "grpc", "--streaming"], "--calibrate measures requests that stand alone"),
        (["-m", "x", "--fail-above", "5"], "--fail-above belongs to --vs URL, which is not given"),
        (["-m", "x", "--vs", "a:1", "--margin", "nan"], "--margin is nan: write a number of percent, 0 or more"),
        (["-m", "x", "--vs", "a:1", "-r", "3"], "-r 3: with --vs it is the number of pairs of windows, 8 to 200"),
        (["-m", "x", "--vs", "a:1", "--stop", "confidence"], "--stop confidence does not go with --vs"),
        (["-m", "x", "--vs", "a:1", "--concurrency-range", "1:0", "-l", "9"], "a range without an end does not go"),
        (["-m", "x", "--vs", "http://a:1", "-i", "grpc", "--streaming"], "--vs http://a:1: Streaming is only allowed"),
        (["-m", "x", "--vs", "ftp://a:1"], "--vs: 'ftp://a:1' begins with 'ftp://'"),
        (["-m", "x", "--no-such-flag"], "unrecognized arguments: --no-such-flag"),
    ],
)
def test_what_is_wrong_is_said(typed, text):
    with pytest.raises(ConfigError) as wrong:
        read(typed)
    assert text in str(wrong.value)


def test_a_file_that_exists_is_not_written_over(tmp_path):
    (tmp_path / "a.json").write_text("")
    with pytest.raises(ConfigError, match="exists already"):
        read(["-m", "x", "--profile-export-file", str(tmp_path / "a.json")])


def test_how_a_level_ends_is_chosen_by_a_flag_of_our_own():
    assert read(["-m", "x"]).asked.settings.stop == "windows"
    assert read(["-m", "x", "--stop", "confidence", "-s", "3"]).asked.settings.stop == "confidence"
    for more in (["--request-count", "9"], ["--measurement-mode", "count_windows"]):
        with pytest.raises(ConfigError, match="leave out --request-count and count_windows"):
            read(["-m", "x", "--stop", "confidence", *more])


def test_a_second_server_has_the_same_load_in_short_windows():
    given = read(["-m", "x", "-u", "a:1", "--vs", "grpc://b:2", "--concurrency-range", "2:4", "--fail-above", "3"])
    one, other = given.asked, given.second.asked
    assert (str(one.address), str(other.address)) == ("http://a:1", "grpc://b:2")
    assert one.levels == other.levels == (2, 4, 1)
    assert (one.settings.window_ms, one.settings.trials, one.settings.alternated) == (500, 30, True)
    assert given.against == ("grpc", 30, 5.0, 3.0)
    assert str(read(["-m", "x", "-i", "grpc", "--vs", "b:2"]).second.asked.address) == "grpc://b:2"
    assert read(["-m", "x"]).second is None
    assert str(read(["-m", "x", "-u", "grpc://a:1"]).asked.address) == "grpc://a:1"


def test_encryption_is_of_the_url_or_of_grpcs_own_flag():
    plain = read(["-m", "x"]).asked
    assert (plain.address.tls, plain.tls) == (False, None)
    asked = read(["-m", "x", "-u", "https://a:1", "--ssl-https-verify-host", "0"]).asked
    assert str(asked.address) == "https://a:1"
    assert asked.tls == Encryption(verify_host=False)
    for typed in (["-i", "grpc", "-u", "a:1", "--ssl-grpc-use-ssl"], ["-u", "grpcs://a:1"]):
        asked = read(["-m", "x", *typed]).asked
        assert str(asked.address) == "grpcs://a:1"
        assert asked.tls == Encryption()
    both = read(["-m", "x", "-u", "https://a:1", "--vs", "http://a:2", "--ssl-https-verify-peer", "0"])
    assert both.asked.tls == Encryption(verify=False)
    assert both.second is not None and both.second.asked.tls is None
