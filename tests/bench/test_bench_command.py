"""The command where something fails: what can still be measured or written is."""

from __future__ import annotations

import json
import resource
import socket
import ssl

import numpy as np
import trustme

from tests.bench.stub_server import StubServer
from tests.unused_ports import closed_port
from tisfast import cli_bench
from tisfast.bench.session import DESCRIPTORS_KEPT

# Three windows that agree: of many, as a busy machine may leave some empty.
SHORT = ["-p", "100", "-s", "1000000", "-r", "100"]


def bench(port: int, *more: object, host: str = "127.0.0.1") -> int:
    return cli_bench.main(["-m", "stub", "-u", f"{host}:{port}", *SHORT, *map(str, more)])


def test_the_address_of_a_name_that_connects_is_used(monkeypatch):
    """As of 'localhost' where it is ::1 first and the server listens on IPv4 only."""
    resolve = socket.getaddrinfo

    def both(host, port, *more, **options):
        if host != "localhost":
            return resolve(host, port, *more, **options)
        first = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0))
        return [first, *resolve("127.0.0.1", port, *more, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    with StubServer() as stub:
        assert bench(stub.port, host="localhost") == 0


def test_a_server_that_does_not_tell_the_configuration_is_measured(capsys):
    """KServe's protocol does not have that call; it is an extension of Triton's."""
    with StubServer(config=None) as stub:
        assert bench(stub.port, "--shape", "A:1,4") == 0
        assert bench(stub.port, "-b", "4", "--shape", "A:4") == 99
    assert "this server does not tell the configuration of model 'stub'" in capsys.readouterr().err


def test_flags_of_sequences_are_refused_where_there_are_none(capsys):
    with StubServer() as stub:
        assert bench(stub.port, "--sequence-length", "4") == 99
    assert "--sequence-length: model 'stub' is not served in sequences" in capsys.readouterr().err


def test_requests_go_at_the_times_of_their_steps(tmp_path, capsys):
    data = tmp_path / "data.json"
    steps = [{"A": [4, 4, 4, 4], "timestamp": 200}, {"A": [1, 1, 1, 1], "timestamp": 0}]
    data.write_text(json.dumps({"data": steps}))
    with StubServer() as stub:
        assert bench(stub.port, "--fixed-schedule", "--input-data", data, "--json", tmp_path / "x.json") == 0
        sent = [np.frombuffer(body[-16:], np.float32)[0] for body in stub.bodies[-2:]]
    assert sent == [1, 4]
    (level,) = json.loads((tmp_path / "x.json").read_text())["levels"]
    assert level["requests"] == 2
    data.write_text(json.dumps({"data": [*steps, {"A": [1, 1, 1, 1]}]}))
    with StubServer() as stub:
        assert bench(stub.port, "--fixed-schedule", "--input-data", data) == 99
    assert 'step 2 of the input data has no "timestamp"' in capsys.readouterr().err


def test_a_rate_rises_until_its_end():
    """From 0 to 100 requests a second within 1 s: 50 requests, and the one before all."""
    with StubServer() as stub:
        assert bench(stub.port, "--request-rate-ramp", "0:100:1") == 0
    assert stub.count == 51


def test_levels_before_a_failure_are_kept(tmp_path, monkeypatch, capsys):
    """The second level wants more connections than this process may have."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (DESCRIPTORS_KEPT + 10, DESCRIPTORS_KEPT + 10))
    with StubServer() as stub:
        code = bench(stub.port, "--concurrency-range", "2:202:200", "-f", tmp_path / "x.csv")
    told = capsys.readouterr()
    assert code == 99
    assert "Request concurrency: 2\n" in told.out
    assert "error: no further level was measured: 202 connections need" in told.err
    assert (tmp_path / "x.csv").read_text().count("\n") >= 2


def test_one_file_that_cannot_be_written_does_not_lose_the_others(tmp_path, capsys):
    with StubServer() as stub:
        code = bench(stub.port, "-f", tmp_path / "no/x.csv", "--json", tmp_path / "x.json")
    assert code == 99
    assert "x.csv could not be written" in capsys.readouterr().err
    assert (tmp_path / "x.json").stat().st_size > 0


def test_compare_goes_by_what_files_held_and_not_by_their_names(tmp_path, capsys):
    """Of a mix with the data files that it names, of a folder with all that is in it."""
    runs = []
    with StubServer() as stub:
        for name, weight, value in (("a", 1, 1), ("b", 1, 1), ("c", 2, 1), ("d", 1, 2)):
            folder = tmp_path / name
            (folder / "data").mkdir(parents=True)
            np.save(folder / "data" / "A.npy", np.full(4, value, np.float32))
            mix = {"models": [{"model": "stub", "weight": weight, "input_data": "data"}]}
            (folder / "mix.json").write_text(json.dumps(mix))
            runs.append(str(folder / "run.json"))
            typed = ["--mix", str(folder / "mix.json"), "-u", f"127.0.0.1:{stub.port}", "--request-count", "5"]
            assert cli_bench.main([*typed, "--json", runs[-1]]) == 0
    capsys.readouterr()
    said = []
    for other in runs[1:]:
        cli_bench.main(["compare", runs[0], other])
        said.append(capsys.readouterr().err)
    assert said[0] == ""
    assert "the model is 'stub (1)'" in said[1]
    assert "the content of --mix is 'SHA-256 " in said[2]


def test_a_port_that_speaks_tls_is_named(tmp_path, capsys):
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with StubServer(tls=context) as stub:
        url = f"https://127.0.0.1:{stub.port}"
        assert bench(stub.port) == 99
        assert f"; that port speaks TLS: write -u {url}" in capsys.readouterr().err
        assert bench(stub.port, "--service-kind", "openai", "--endpoint", "v1/completions") == 99
        assert f"; that port speaks TLS: write -u {url}" in capsys.readouterr().err
        assert bench(stub.port, "-i", "grpc") == 99
        assert f"; that port speaks TLS: write -u grpcs://127.0.0.1:{stub.port}" in capsys.readouterr().err
    with StubServer() as stub:
        assert cli_bench.main(["-m", "stub", "-u", f"https://127.0.0.1:{stub.port}"]) == 99
        assert f"does not speak TLS: write -u http://127.0.0.1:{stub.port}" in capsys.readouterr().err
        assert bench(stub.port, "-i", "grpc") == 99
        assert "; if that is the server's port of HTTP, use -i http" in capsys.readouterr().err


def test_more_samples_than_the_model_takes_are_refused(capsys):
    with StubServer() as stub:
        assert bench(stub.port, "-b", "9", "--shape", "A:4") == 99
    assert "-b 9: model 'stub' takes at most 8 samples in a request" in capsys.readouterr().err


def test_metrics_that_are_not_there_are_named_by_their_flag(capsys):
    with StubServer() as stub:
        page = f"127.0.0.1:{closed_port()}"
        assert bench(stub.port, "--collect-metrics", "--metrics-url", page) == 99
    err = capsys.readouterr().err
    assert f"--collect-metrics: the server's page of metrics cannot be read: cannot connect to http://{page}" in err
    assert "name it with --metrics-url HOST:PORT/metrics" in err


def test_a_server_of_something_else_is_named(capsys):
    """As the port of metrics is, which answers 404."""
    with StubServer() as stub:
        assert cli_bench.main(["-m", "stub", "-u", f"http://127.0.0.1:{stub.port}/other"]) == 99
        assert (
            f"http://127.0.0.1:{stub.port}/other does not serve KServe's protocol 2 at /v2" in capsys.readouterr().err
        )


def test_a_server_that_never_answers_is_told_without_words_of_the_client(capsys, monkeypatch):
    monkeypatch.setattr(cli_bench, "ASK_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert bench(port) == 99
    err = capsys.readouterr().err
    assert f"http://127.0.0.1:{port} takes connections, and did not answer a call about the model within 0.1 s" in err


def test_a_shape_that_a_mix_lacks_is_told_as_its_file_has_it(tmp_path, capsys):
    path = tmp_path / "mix.json"
    path.write_text('{"models": [{"model": "stub"}]}')
    with StubServer(config=None) as stub:
        assert cli_bench.main(["--mix", str(path), "-u", f"127.0.0.1:{stub.port}"]) == 99
    assert 'in the file that is "shape": {"NAME": [D1, D2]}' in capsys.readouterr().err
