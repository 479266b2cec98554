import subprocess
import sys

import pytest

from tests.install import installed
from tisfast import cli, cli_script, defaults, flags
from tisfast.cli import spin_us
from tisfast.config.rate_limits import RateLimitSettings
from tisfast.errors import ConfigError

MODEL = """class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        return config

    def execute(self, requests):
        return []
"""
REPO = ["--model-repository", "/models"]


def settings(*arguments: str, environ: dict[str, str] | None = None):
    return cli.serve_options([*REPO, *arguments], environ or {}).settings


def test_defaults_are_triton_s():
    found = settings()
    assert found.repository.paths == ("/models",)
    assert found.repository.auto_complete and found.repository.load_concurrency == 4
    assert (found.http.enabled, found.http.address, found.http.port) == (True, "0.0.0.0", 8000)
    assert (found.metrics.enabled, found.metrics.address, found.metrics.port) == (True, "0.0.0.0", 8002)
    assert found.http_calls.max_input_bytes == 67108864
    assert (found.life.server_id, found.life.exit_timeout_seconds) == ("triton", 30)
    assert found.life.exit_on_error and found.life.strict_readiness
    assert found.log.format == "default" and found.log.verbose == 0 and found.log.info


@pytest.mark.parametrize(
    "arguments",
    [
        ["--http-port", "1234"],
        ["--http-port=1234"],
        ["--http-port=1", "--http-port=1234"],
    ],
)
def test_values_follow_a_space_or_an_equals_sign(arguments):
    assert settings(*arguments).http.port == 1234


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("on", True), ("1", True), ("TRUE", True), ("false", False), ("off", False), ("0", False)],
)
def test_booleans(text, value):
    assert settings(f"--exit-on-error={text}").life.exit_on_error is value
    assert settings("--exit-on-error", text).life.exit_on_error is value


def test_a_bare_boolean_is_true():
    assert settings("--disable-auto-complete-config", "--log-verbose", "1").repository.auto_complete is False


def test_strict_model_config_is_the_old_name():
    assert settings("--strict-model-config=true").repository.auto_complete is False
    assert settings("--strict-model-config=false").repository.auto_complete is True


def test_repositories_accumulate_under_both_names():
    options = cli.serve_options(["--model-repository=/a", "--model-store", "/b", "--model-repository", "/c"], {})
    assert set(options.settings.repository.paths) == {"/a", "/b", "/c"}


def test_the_environment_may_name_the_repository():
    assert cli.serve_options([], {"AIP_STORAGE_URI": "/aip"}).settings.repository.paths == ("/aip",)


def test_metrics_listen_where_http_does():
    assert settings("--http-address=127.0.0.1").metrics.address == "127.0.0.1"
    assert settings("--http-address=127.0.0.1", "--metrics-address=::1").metrics.address == "::1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--http-prt=1"], "unrecognized option '--http-prt'; did you mean --http-port"),
        (["--http-por=1"], "did you mean --http-port"),
        (["/nonesuch"], "unexpected argument '/nonesuch': there is no such file or folder"),
        (["--http-port=abc"], "--http-port: invalid int value: 'abc'"),
        (["--http-port=70000"], "must be 0 to 65535, not 70000"),
        (["--exit-on-error=maybe"], "invalid boolean value: 'maybe'"),
        (["--log-format=xml"], "invalid choice: 'xml'"),
        (["--exit-timeout-secs=-1"], "--exit-timeout-secs must be 0 or more, not -1"),
        (["--drain-delay-secs=-1"], "--drain-delay-secs must be 0 to 86400, not -1"),
        (["--drain-delay-secs=nan"], "--drain-delay-secs must be 0 to 86400, not nan"),
        (["--model-load-thread-count=0"], "--model-load-thread-count must be 1 or more, not 0"),
        (["--http-max-input-size=0"], "must be more than 0 bytes, not 0"),
        (["--execution-timeout-secs=0"], "must be more than 0, not 0"),
        (["--metrics-port=8000"], "HTTP requests and Metrics requests at the same address and port 0.0.0.0:8000"),
        (["--backend-config=nonsense"], "--backend-config option format is '<backend name>,<setting>=<value>'"),
        (["--model-control-mode=bogus"], "--model-control-mode must be one of none, explicit, poll, not 'bogus'"),
        (["--load-model=x"], "Use of '--load-model' requires setting '--model-control-mode=explicit' as well."),
        (["--load-model=*", "--model-control-mode=poll"], "requires setting '--model-control-mode=explicit'"),
        (
            ["--load-model=*", "--load-model=m", "--model-control-mode=explicit"],
            "Wildcard model name '*' must be the ONLY startup model if specified at all: --load-model also names m",
        ),
        (["--model-control-mode=poll", "--repository-poll-secs=-1"], "--repository-poll-secs must be 0.1 to 604800"),
        (["--model-control-mode=poll", "--repository-poll-secs=nan"], "no second look, not nan"),
        (["--model-config-name=../x"], "--model-config-name must be the name of a file in the folder configs"),
        (["--rate-limit=sometimes"], "--rate-limit must be one of off, execution_count, not 'sometimes'"),
        (["--rate-limit-resource=R1"], "or '<resource_name>:<count>'. Got R1; it has no count"),
        (["--rate-limit-resource=R1:1:0:2"], "Got R1:1:0:2; it has 4 parts"),
        (["--rate-limit-resource=R1:x"], "its count 'x' is no number from 0 to 2147483647"),
        (["--rate-limit-resource=R1:-1"], "its count '-1' is no number"),
        (["--rate-limit-resource=R1:2147483648"], "its count '2147483648' is no number"),
        (["--rate-limit-resource=R1:1:all"], "its device 'all' is no number"),
        (["--model-load-gpu-limit=0"], "option format is '<device_id>:<fraction>'. Got 0"),
        (["--model-load-gpu-limit=-1:0.6"], "expects device ID >= 0, got -1"),
        (["--model-load-gpu-limit=0:-0.4"], "expects limit fraction to be in range [0.0, 1.0], got -0.400000"),
        (["--model-load-gpu-limit=0:nan"], "expects limit fraction to be in range [0.0, 1.0], got nan"),
        (["--model-load-gpu-limit=x:1"], "'x' is no number"),
        (["--model-memory-budget=16"], "--model-memory-budget=16 is no amount of memory of 1048576 bytes or more"),
        (["--model-memory-budget=16GX"], "is no amount of memory"),
        (["--model-memory-budget=-16GB"], "is no amount of memory"),
        (["--backend-config=python,stub-timeout-seconds=soon"], "'soon' is not a whole number"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(ConfigError) as error:
        settings(*arguments)
    assert message in str(error.value)


def test_a_file_that_is_not_there_is_told_without_asking_for_a_repository():
    with pytest.raises(ConfigError) as error:
        cli.serve_options(["/nonesuch.onnx", "--reload"], {})
    assert "/nonesuch.onnx" in str(error.value) and "must be given" not in str(error.value)


def test_files_and_folders_stand_anywhere_on_the_command_line(tmp_path):
    (tmp_path / "net.onnx").touch()
    (tmp_path / "models").mkdir()
    found = cli.serve_options(["--reload", str(tmp_path / "net.onnx"), str(tmp_path / "models"), "--id=x"], {}).settings
    assert [file.name for file in found.repository.files] == ["net"] and found.repository.watch
    assert found.repository.paths == (str(tmp_path / "models"),) and found.life.server_id == "x"
    explicit = cli.serve_options([f"a={tmp_path / 'net.onnx'}", "--model-control-mode=explicit"], {}).settings
    assert explicit.repository.load_models == ("a",) and not explicit.repository.watch


def test_a_repository_is_required():
    with pytest.raises(ConfigError, match="--model-repository must be given"):
        cli.serve_options([], {})


@pytest.mark.parametrize(
    ("argument", "because"),
    [
        ("--grpc-infer-thread-count=4", "gRPC runs on one event loop, without threads"),
        ("--cache-directory=/x", "caches are part of tisfast"),
        ("--http-thread-count=2", "HTTP runs on one event loop, without threads"),
        ("--host-policy=a,numa-node=0", "processes go where the system puts them; taskset binds them"),
        ("--grpc-max-response-pool-size=9", "bounded by the model's memory"),
        ("--cuda-virtual-address-size=0:1", "pools of CUDA memory have one size"),
        ("--buffer-manager-thread-count=4", "tensors are not copied"),
        ("--sagemaker-port=8081", "there is no SageMaker front here"),
        ("--backend-config=onnxruntime,x=1", "backend 'onnxruntime' has no such setting"),
        ("--backend-config=nonesuch,x=1", "there is no backend 'nonesuch' here"),
        ("--backend-config=python,foo=1", "the settings served are python,stub-timeout-seconds"),
        ("--backend-config=cmdline=1", "the settings served are"),
    ],
)
def test_flags_that_only_tune_are_taken_and_told(argument, because):
    (notice,) = cli.serve_options([*REPO, argument], {}).notices
    assert notice.startswith(f"{argument} has no effect here, because ") and because in notice


@pytest.mark.parametrize("argument", ["--allow-sagemaker=true"])
def test_flags_that_would_change_answers_are_refused_by_name(argument):
    with pytest.raises(ConfigError, match=f"{argument}: there is no .* front here; remove the flag"):
        settings(argument)


VERTEX = {"AIP_MODE": "PREDICTION", "AIP_PREDICT_ROUTE": "/predict", "AIP_HEALTH_ROUTE": "/health"}


def test_vertex_ai_s_environment_opens_its_port():
    found = cli.serve_options(REPO, {**VERTEX, "AIP_HTTP_PORT": "7080"}).settings.vertex
    assert (found.listen.port, found.predict_route, found.health_route) == (7080, "/predict", "/health")
    assert cli.serve_options([*REPO, "--allow-vertex-ai=false"], VERTEX).settings.vertex is None
    del (other := dict(VERTEX))["AIP_MODE"]
    assert cli.serve_options(REPO, other).settings.vertex is None
    found = cli.serve_options([*REPO, "--allow-vertex-ai", "--vertex-ai-port=7081"], other).settings.vertex
    assert (found.listen.port, found.default_model) == (7081, "")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"AIP_PREDICT_ROUTE": ""}, "AIP_PREDICT_ROUTE and AIP_HEALTH_ROUTE, and there is no AIP_PREDICT_ROUTE"),
        ({"AIP_HEALTH_ROUTE": "health"}, "and AIP_HEALTH_ROUTE is 'health'"),
        ({"AIP_HTTP_PORT": "x"}, "AIP_HTTP_PORT is no port: 'x'"),
        ({"AIP_HTTP_PORT": "8000"}, "cannot listen to HTTP requests and Vertex AI requests at the same"),
    ],
)
def test_what_vertex_ai_s_environment_lacks_is_told(variables, message):
    with pytest.raises(ConfigError, match=message):
        cli.serve_options(REPO, {**VERTEX, **variables})


def test_all_that_is_wrong_is_told_at_once():
    with pytest.raises(ConfigError) as caught:
        cli.serve_options(
            ["--http-prt=1", "--foo", "bar", "/x", "--http-port=abc", "--log-format=xml", "--http-thread-count=x",
             "--allow-sagemaker=true", "--drain-delay-secs=-1", "--model-memory-budget=16"], {},
        )  # fmt: skip
    told = str(caught.value).splitlines()
    wanted = ("--http-port", "--log-format", "--http-thread-count", "--http-prt", "--foo", "'/x'", "--allow-sagemaker",
              "--model-memory-budget", "--drain-delay-secs")  # fmt: skip
    assert len(told) == len(wanted)
    assert all(any(word in line for line in told) for word in wanted), told


def test_the_version_that_clients_are_told():
    assert settings().life.server_version == ""
    assert settings("--server-version=2.51.0").life.server_version == "2.51.0"


def test_resources():
    found = settings().workers
    assert (found.gpu_limits, found.capability_min, found.memory_budget) == ((), 6.0, 0)
    flags = ("--model-load-gpu-limit=0:0.6", "--model-load-gpu-limit=1:1", "--min-supported-compute-capability=7.5")
    found = settings(*flags, "--model-load-gpu-limit=0:0.5", "--model-memory-budget=7.5GiB").workers
    assert found.gpu_limits == ((0, 0.5), (1, 1.0))
    assert (found.capability_min, found.memory_budget) == (7.5, int(7.5 * 2**30))


@pytest.mark.parametrize(
    ("text", "nbytes"), [("8000000000", 8 * 10**9), ("2 gb", 2 * 10**9), ("64M", 64 << 20), ("1TiB", 1 << 40)]
)
def test_memory_is_given_in_bytes_or_units(text, nbytes):
    assert settings("--model-memory-budget", text).workers.memory_budget == nbytes


def test_model_control():
    found = settings().repository
    assert (found.control_mode, found.poll_seconds, found.load_models) == ("none", 15, ())
    assert (found.config_name, found.namespacing, found.watch, found.control_token_file) == ("", False, False, "")
    flags = ("--model-control-mode=EXPLICIT", "--load-model=a", "--load-model=b", "--model-control-token-file=/t")
    found = settings(*flags, "--model-config-name=big", "--model-namespacing=true").repository
    assert (found.control_mode, found.load_models, found.control_token_file) == ("explicit", ("a", "b"), "/t")
    assert (found.config_name, found.namespacing, found.watch) == ("big", True, False)
    assert settings("--reload").repository.watch
    assert settings("--model-control-mode=explicit", "--load-model=*").repository.load_models == ("*",)
    assert settings("--model-control-mode=poll", "--repository-poll-secs=0").repository.poll_seconds == 0
    settings("--repository-poll-secs=-1")  # in another mode it asks for nothing, as with Triton


def test_congestion_control_of_neighbours_has_a_switch():
    found = settings("--unpaced-local=false")
    assert [each.unpaced_local for each in (found.http, found.grpc, found.metrics)] == [False] * 3
    assert settings().http.unpaced_local


def test_waiting_awake_has_a_switch_and_ends_with_a_quota():
    notices = []
    assert settings("--spin-us=0").workers.spin_us == spin_us(0, 4.0, notices) == 0
    assert settings("--spin-us=120").workers.spin_us == spin_us(120, 0.5, notices) == 120
    assert (spin_us(None, None, notices), notices) == (defaults.SPIN_US, [])
    assert spin_us(None, 1.5, notices) == 0
    assert notices == [f"there is a CPU quota of 1.5 cores, so nothing waits awake; --spin-us={defaults.SPIN_US} would"]


@pytest.mark.parametrize(("given", "nbytes", "told"), [(0, 0, []), (4096, 4096, []), (-5, 0, ["=-5 counts as 0"])])
def test_memory_to_pin_is_none_below_0_as_with_triton_and_that_is_told(given, nbytes, told):
    options = cli.serve_options([*REPO, f"--pinned-memory-pool-byte-size={given}"], {})
    assert options.settings.workers.pinned_pool_bytes == nbytes
    flag, follows = "--pinned-memory-pool-byte-size", "instances pin no host memory"
    assert list(options.notices) == [f"{flag}{each}: {follows}" for each in told]


@pytest.mark.parametrize("wrong", ["-1", "10001"])
def test_waiting_awake_has_bounds(wrong):
    with pytest.raises(ConfigError, match=f"--spin-us must be 0 to 10000, not {wrong}"):
        settings(f"--spin-us={wrong}")


def test_rate_limits():
    assert settings().rate_limit == RateLimitSettings()
    flags = ("--rate-limit=EXECUTION_COUNT", "--rate-limit-resource=R1:4", "--rate-limit-resource=r2:8:1")
    found = settings(*flags).rate_limit
    assert found.enabled and found.grants == (("R1", 4, None), ("r2", 8, 1))


@pytest.mark.parametrize("flag", [flag for flag in flags.UNSERVED if flag.harmless], ids=lambda flag: flag.name)
def test_flags_that_are_not_served_are_taken_where_they_ask_for_nothing(flag):
    for value in flag.harmless:
        settings(f"--{flag.name}={str(value).lower() if isinstance(value, bool) else value}")


def test_with_grpc_off_its_settings_ask_for_nothing():
    settings("--allow-grpc=false", "--grpc-port=9001", "--grpc-infer-thread-count=16")


def test_grpc_flags_are_served():
    found = settings(
        "--grpc-port=9001", "--grpc-keepalive-time=5000", "--grpc-infer-response-compression-level=low",
        "--grpc-http2-max-ping-strikes=0", "--grpc-max-connection-age=60000", "--grpc-keepalive-permit-without-calls",
    )  # fmt: skip
    assert found.grpc.enabled and found.grpc.port == 9001 and not found.grpc_options.tls.enabled
    assert found.grpc_options.keepalive_time_ms == 5000 and found.grpc_options.compression == "low"
    assert found.grpc_options.max_ping_strikes == 0 and found.grpc_options.max_connection_age_ms == 60000
    assert found.grpc_options.keepalive_permit_without_calls
    found = settings("--grpc-restricted-protocol=health:k=v", "--grpc-header-forward-pattern=^x-")
    assert found.grpc_options.restricted == ("health:k=v",) and found.grpc_options.forward_pattern == "^x-"


def test_grpc_over_tls_needs_its_files():
    with pytest.raises(ConfigError, match="--grpc-server-cert must be given"):
        settings("--grpc-use-ssl")
    with pytest.raises(ConfigError, match="--grpc-root-cert must be given"):
        settings("--grpc-use-ssl-mutual", "--grpc-server-cert=c", "--grpc-server-key=k")
    files = ("--grpc-server-cert=c", "--grpc-server-key=k", "--grpc-root-cert=r")
    tls = settings("--grpc-use-ssl", *files).grpc_options.tls
    assert (tls.cert, tls.key, tls.client_ca) == ("c", "k", "")
    settings("--allow-grpc=false", "--grpc-use-ssl")


def test_backend_settings_that_are_served():
    found = settings("--backend-config=python,stub-timeout-seconds=90", "--backend-config=default-max-batch-size=8")
    assert found.workers.load_seconds_max == 90
    assert found.repository.default_max_batch_size == 8


def test_settings_of_a_pool_we_do_not_have_are_said_to_have_no_effect():
    options = cli.serve_options([*REPO, "--backend-config=python,shm-default-byte-size=1048576"], {})
    assert "shm-default-byte-size=1048576 has no effect" in options.notices[0]


def test_behind_two_dashes_there_are_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "--http-port.onnx").touch()
    (tmp_path / "b.onnx").touch()
    found = settings("b.onnx", "--http-port=0", "--", "--http-port.onnx").repository.files
    assert [file.name for file in found] == ["b", "--http-port"]


def test_no_flag_is_stated_twice():
    names = [flag.name for flag in flags.SERVED] + [flag.name for flag in flags.UNSERVED]
    assert len(set(names)) == len(names)


def test_check_says_how_many_models_it_looked_at(tmp_path, capsys):
    assert cli.main(["check", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert said.startswith(f"there is no model in {tmp_path}") and said.endswith("0 model(s), 1 error(s)\n")
    for name in ("a", "b"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1/model.py").write_text(MODEL)
    assert cli.main(["check", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "2 model(s), no errors\n"


def test_a_script_tritonserver_starts_the_server_and_hides_no_other(tmp_path, capsys):
    path = tmp_path / "bin/tritonserver"
    path.parent.mkdir()
    assert cli_script.main(["tritonserver", str(path.parent)], {"PATH": "/nowhere"}) == 0
    assert str(path) in capsys.readouterr().out
    done = subprocess.run([path, "--http-prt=1"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "did you mean --http-port?" in done.stderr
    cli_script.main(["tritonserver", str(path.parent)], {"PATH": str(path.parent)})  # its own it writes anew
    real = tmp_path / "real/tritonserver"
    real.parent.mkdir()
    real.write_bytes(b"\x7fELF")
    real.chmod(0o755)
    for folder, search in ((path.parent, real.parent), (real.parent, path.parent)):
        with pytest.raises(ConfigError, match=f"already, which is not tisfast's: {real}"):
            cli_script.main(["tritonserver", str(folder)], {"PATH": str(search)})
    assert cli_script.main(["tritonserver", str(real.parent), "--force"], {"PATH": "/nowhere"}) == 0
    assert real.read_text().startswith("#!/bin/sh")


def tisfast(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tisfast", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--help"], 0, "usage: tisfast COMMAND"),
        (["version"], 0, "tisfast 0."),
        (["serve", "--help"], 0, "--model-repository"),
        (["serve", "--http-prt=1"], 1, "did you mean --http-port?"),
        (["srve"], 1, "did you mean 'tisfast serve'?"),
        (["--model-repository=/x"], 1, "tisfast serve --model-repository=/x"),
        ([], 1, "usage: tisfast COMMAND"),
    ],
)
def test_commands(arguments, code, text):
    done = tisfast(*arguments)
    assert done.returncode == code
    assert text in done.stdout + done.stderr


@pytest.mark.parametrize("command", ["--help", "version"])
def test_help_and_version_import_nothing_heavy(command):
    script = (
        f"import sys; from tisfast.cli import main; main([{command!r}]); "
        "heavy = {'numpy', 'asyncio', 'uvloop', 'zmq', 'google.protobuf', 'msgpack'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_help_answers_at_once():
    """What it takes is what it imports: a tenth of a second for these, on an idle machine."""
    done = subprocess.run(
        [sys.executable, "-c", installed.HELP_IMPORTS], capture_output=True, text=True, timeout=60, check=True
    )
    assert installed.imports_little(done.stdout)


def test_a_file_may_hold_flags(tmp_path):
    file = tmp_path / "private.flags"
    file.write_text("# secret\n--http-restricted-api=logging:key=SECRET\n\n--http-port=7\n")
    for given in ([f"--flags-file={file}"], ["--flags-file", str(file)]):
        found = settings(*given, "--http-port=9")
        assert found.http_calls.restricted == ("logging:key=SECRET",)
        assert found.http.port == 9


@pytest.mark.parametrize(
    ("text", "message"), [("http-port=7", "'http-port' is not --NAME=VALUE"), (None, "cannot be read: .*No such file")]
)
def test_a_file_that_holds_no_flags_is_named(tmp_path, text, message):
    file = tmp_path / "private.flags"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=f"--flags-file={file}:? {message}"):
        settings(f"--flags-file={file}")


def test_a_standard_output_that_was_closed_before_the_start_is_no_fault():
    command = 'exec "$0" -m tisfast version >&-'
    ended = subprocess.run(["bash", "-c", command, sys.executable], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
