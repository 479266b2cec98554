"""The command line: `tisfast serve | check | init | docs | env | script | bench | convert | version`.  Top layer.

It alone reads the environment.  Imports nothing heavy before it knows that it must: help and version answer at once,
and `serve` starts the nursery before it imports the server, so that the two start side by side.
"""

from __future__ import annotations

import argparse
import difflib
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from tisfast import defaults
from tisfast.cli_arguments import SIGNALLED, Parser, sorted_out, untangled, with_flags_of_files
from tisfast.config.backend_flags import (
    DEFAULT_MAX_BATCH_SIZE,
    STUB_SECONDS,
    number,
    read_backend_config,
    read_backends,
)
from tisfast.config.backends import BUILT_IN, GLOBAL, PYTHON
from tisfast.config.cache_flags import read_cache_flags
from tisfast.config.environments import read_environment_settings
from tisfast.config.error_report import ConfigErrors
from tisfast.config.metrics_settings import MetricsSettings, read_metrics_config
from tisfast.config.rate_limits import RateLimitSettings, read_grants
from tisfast.config.resource_flags import read_budget, read_cuda_pools, read_gpu_limits
from tisfast.config.scheduler_hooks import read_answer_delay, read_hooks
from tisfast.config.served_files import Arguments, read_files
from tisfast.config.settings import (
    CPU_ONLY,
    CodecSettings,
    GrpcSettings,
    HttpSettings,
    LifeSettings,
    ListenSettings,
    LogSettings,
    ParentSettings,
    RepositorySettings,
    Settings,
    TlsSettings,
    WorkerSettings,
)
from tisfast.config.storage_settings import read_storage
from tisfast.config.tracing import read_trace_flags
from tisfast.config.vertex_flags import read_vertex
from tisfast.errors import ConfigError, TisError
from tisfast.flags import SERVED, UNSERVED, Flag, Unserved
from tisfast.processes import cgroups, machine
from tisfast.standard_streams import say

USAGE = """usage: tisfast COMMAND [options]

tisfast serves models over HTTP and gRPC as NVIDIA Triton does: the same model repositories, protocols and clients.

    tisfast serve model.onnx
    tisfast init models && tisfast serve --model-repository models

commands:
  init       make a first model, with a test of it (tisfast init FOLDER)
  serve      serve model files or repositories; takes tritonserver's flags (tisfast serve --help)
  check      report every error in model files or repositories without serving them (tisfast check PATH...)
  env        build, check, list and prune the Python environments of models
  script     write a script 'tritonserver' that starts tisfast, for tools that call it by that name
  bench      measure a model of a server; takes perf_analyzer's flags (tisfast bench --help)
  analyze    find a model's best configuration by measuring (tisfast analyze --help)
  convert    try the formats of a model, write the best (tisfast convert --help)
  pytriton   check that PyTriton's API works on this machine (tisfast pytriton --help)
  docs       print a page of the documentation, or the list of all (tisfast docs models)
  version    print the version (also: tisfast --version)

tisfast COMMAND --help tells a command's options; tisfast docs tells the rest.
"""
SERVES = """Serve Triton model repositories, or model files as they lie.  Flags, defaults and syntax are tritonserver's.

  tisfast serve resnet.onnx               under the name 'resnet', again after each change of the file
  tisfast serve small=a.onnx large=b.pt   under names of your own
"""
T = TypeVar("T")
HELP_COLUMNS = 80


class ServeOptions(NamedTuple):
    """The parsed command line.  notices: what the log should say about flags that have no effect."""

    settings: Settings
    notices: tuple[str, ...]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = arguments[0] if arguments else ""
    commands = {"serve": _serve, "check": _check, "env": _env, "script": _script, "version": _version}
    commands |= {"init": _init, "docs": _docs, "pytriton": _pytriton}
    commands |= {"bench": _bench, "analyze": _analyze, "convert": _convert}
    commands["--version"] = _version
    if command in ("", "-h", "--help", "help"):
        print(USAGE, end="")
        return 0 if command else 1
    if command not in commands:
        return _fail(_unknown_command(command))
    try:
        code = commands[command](arguments[1:])
        if sys.stdout is not None:  # it was closed before the start, as by >&-
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:  # while modules were imported: commands that have more to say of it do so themselves
        say("tisfast: interrupted", error=True)
        return SIGNALLED + signal.SIGINT
    except BrokenPipeError:  # whoever reads it has read enough, as in `tisfast docs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is written at the end
        return 1
    except TisError as error:
        return _fail(f"{error}\nTry 'tisfast {command} --help'." if isinstance(error, ConfigError) else str(error))


def serve_options(arguments: Sequence[str], environ: Mapping[str, str]) -> ServeOptions:
    """The settings that `arguments` ask for.  Raises ConfigError with all that is wrong, each naming its flag."""
    wrong: list[ConfigError] = []
    values, unknown = _serve_parser(wrong).parse_known_args(untangled(with_flags_of_files(arguments)))
    rest = sorted_out(unknown)
    wrong += rest.wrong
    given = vars(values)
    notices: list[str] = []
    _unserved(given, notices, wrong)
    told = _tried(lambda: read_backend_config(given["backend_config"] or []), wrong) or {}
    backends = _tried(lambda: read_backends(given["backend_directory"], notices, told), wrong) or BUILT_IN
    beside = _tried(lambda: read_files(rest.files, backends), wrong) or Arguments()
    repositories = [*(given["model_repository"] or []), *(given["model_store"] or []), *beside.repositories]
    if not repositories and not beside.files and environ.get("AIP_STORAGE_URI"):
        repositories = [environ["AIP_STORAGE_URI"]]
    strict = given["strict_model_config"]
    slices: dict[str, Callable[[], Any]] = dict(
        repository=lambda: RepositorySettings(
            paths=tuple(repositories),
            auto_complete=not (given["disable_auto_complete_config"] if strict is None else strict),
            load_concurrency=given["model_load_thread_count"],
            load_retries=given["model_load_retry_count"],
            control_mode=given["model_control_mode"],
            poll_seconds=given["repository_poll_secs"],
            load_models=_load_models(given, beside),
            config_name=given["model_config_name"],
            namespacing=given["model_namespacing"],
            watch=_watches(given, beside),
            control_token_file=given["model_control_token_file"],
            backends=backends,
            files=beside.files,
            may_be_none=bool(given["guest_directory"] or rest.files),
            allow_pickled=given["allow_pickled_models"],
            **number(told, GLOBAL, DEFAULT_MAX_BATCH_SIZE, "default_max_batch_size"),
        ),
        workers=lambda: WorkerSettings(
            interpreter=sys.executable,
            execution_seconds_max=given["execution_timeout_secs"],
            cuda_visible=environ.get("CUDA_VISIBLE_DEVICES"),
            cpu_only=CPU_ONLY in environ,
            gpu_limits=read_gpu_limits(given["model_load_gpu_limit"] or []),
            cuda_pools=read_cuda_pools(given["cuda_memory_pool_byte_size"] or []),
            pinned_pool_bytes=pinned_pool_bytes(given["pinned_memory_pool_byte_size"], notices),
            capability_min=given["min_supported_compute_capability"],
            memory_budget=read_budget(given["model_memory_budget"]),
            strict_outputs=given["strict_outputs"],
            spin_us=spin_us(given["spin_us"], cgroups.cpu_quota(), notices),
            guest_directory=given["guest_directory"],
            guest_models=tuple(given["guest_model"] or ()),
            environments=read_environment_settings(
                given["environment_cache_dir"], environ, for_backends=given["backend_environments"] == "auto"
            ),
            hooks=read_hooks(environ),
            **number(told, PYTHON, STUB_SECONDS, "load_seconds_max"),
        ),
        http=lambda: ListenSettings(
            "HTTP",
            "http",
            given["allow_http"],
            given["http_address"],
            given["http_port"],
            given["reuse_http_port"],
            given["unpaced_local"],
        ),
        grpc=lambda: ListenSettings(
            "GRPCInference",
            "grpc",
            given["allow_grpc"],
            given["grpc_address"],
            given["grpc_port"],
            given["reuse_grpc_port"],
            given["unpaced_local"],
        ),
        vertex=lambda: read_vertex(given, environ),
        metrics=lambda: ListenSettings(
            "Metrics",
            "metrics",
            given["allow_metrics"],
            given["metrics_address"] or given["http_address"],
            given["metrics_port"],
            unpaced_local=given["unpaced_local"],
        ),
        shown=lambda: MetricsSettings(
            **read_metrics_config(given["metrics_config"] or []),
            cpu=given["allow_cpu_metrics"],
            gpu=given["allow_gpu_metrics"] and CPU_ONLY not in environ,
            interval_ms=given["metrics_interval_ms"],
        ),
        cache=lambda: read_cache_flags(
            given["cache_config"] or [], given["response_cache_byte_size"], environ, notices
        ),
        rate_limit=lambda: RateLimitSettings(given["rate_limit"], read_grants(given["rate_limit_resource"] or [])),
        trace=lambda: read_trace_flags(given["trace_config"] or [], given, environ, notices),
        http_calls=lambda: HttpSettings(
            max_input_bytes=given["http_max_input_size"],
            restricted=tuple(given["http_restricted_api"] or ()),
            forward_pattern=given["http_header_forward_pattern"],
            tls=TlsSettings(given["http_ssl_cert"], given["http_ssl_key"], given["http_ssl_client_ca"]),
        ),
        codecs=lambda: _codecs(given),
        allow_client_shm=lambda: given["allow_client_shm"],
        access_log=lambda: given["access_log"],
        life=lambda: LifeSettings(
            server_id=given["id"],
            server_version=given["server_version"],
            exit_timeout_seconds=given["exit_timeout_secs"],
            drain_delay_seconds=given["drain_delay_secs"],
            exit_on_error=given["exit_on_error"],
            strict_readiness=given["strict_readiness"],
        ),
        parent=lambda: ParentSettings(given["parent_pidfd"], given["ready_fd"]),
        grpc_options=lambda: _grpc_options(given, environ),
        storage=lambda: read_storage(given, environ),
        log=lambda: LogSettings(**{name: given[f"log_{name}"] for name in LogSettings.__dataclass_fields__}),
    )
    built: dict[str, Any] = {name: _tried(build, wrong) for name, build in slices.items()}
    settings = _tried(lambda: Settings(**built), wrong) if not wrong else None
    if settings is None:
        raise ConfigErrors(wrong)
    return ServeOptions(settings, tuple(notices))


def pinned_pool_bytes(given: int, notices: list[str]) -> int:
    """The bytes that instances may pin.  Triton, too, takes a negative number as 0."""
    if given < 0:
        notices.append(f"--pinned-memory-pool-byte-size={given} counts as 0: instances pin no host memory")
    return max(given, 0)


def spin_us(given: int | None, quota: float | None, notices: list[str]) -> int:
    """The value of --spin-us, or its default.  quota: cores whose time we may take, with what is waited awake in it."""
    if given is not None:
        return given
    if quota is None:
        return defaults.SPIN_US
    notices.append(
        f"there is a CPU quota of {quota:g} cores, so nothing waits awake; --spin-us={defaults.SPIN_US} would"
    )
    return 0


def _watches(given: Mapping[str, Any], beside: Arguments) -> bool:
    """Files that are served as they lie are served anew when they are saved, unless something else is asked for."""
    asked: bool | None = given["reload"]
    return bool(beside.files) and given["model_control_mode"] == "none" if asked is None else asked


def _load_models(given: Mapping[str, Any], beside: Arguments) -> tuple[str, ...]:
    """The models to load at the start in mode explicit: a file on the command line is one of them."""
    names = tuple(given["load_model"] or ())
    if given["model_control_mode"] != "explicit" or "*" in names:
        return names
    return (*names, *(file.name for file in beside.files))


def _codecs(given: Mapping[str, Any]) -> CodecSettings:
    processes = given["codec_processes"]
    if processes is None:
        processes = min(machine.cores(), defaults.CODEC_PROCESSES_MAX)
    return CodecSettings(processes, given["codec_bytes_min"])


def _grpc_options(given: Mapping[str, Any], environ: Mapping[str, str]) -> GrpcSettings:
    tls = TlsSettings()
    if given["allow_grpc"] and (given["grpc_use_ssl"] or given["grpc_use_ssl_mutual"]):
        authorities = given["grpc_root_cert"] if given["grpc_use_ssl_mutual"] else ""
        if given["grpc_use_ssl_mutual"] and not authorities:
            raise ConfigError(
                "--grpc-root-cert must be given: clients are asked for certificates (--grpc-use-ssl-mutual)",
                key="grpc-root-cert",
            )
        for flag in ("grpc_server_cert", "grpc_server_key"):
            if not given[flag]:
                name = flag.replace("_", "-")
                raise ConfigError(f"--{name} must be given: TLS was asked for (--grpc-use-ssl)", key=name)
        flags = ("grpc-server-cert", "grpc-server-key", "grpc-root-cert")
        tls = TlsSettings(given["grpc_server_cert"], given["grpc_server_key"], authorities, flags)
    return GrpcSettings(
        compression=given["grpc_infer_response_compression_level"],
        restricted=tuple(given["grpc_restricted_protocol"] or ()),
        forward_pattern=given["grpc_header_forward_pattern"],
        tls=tls,
        keepalive_time_ms=given["grpc_keepalive_time"],
        keepalive_timeout_ms=given["grpc_keepalive_timeout"],
        keepalive_permit_without_calls=given["grpc_keepalive_permit_without_calls"],
        max_pings_without_data=given["grpc_http2_max_pings_without_data"],
        min_ping_interval_ms=given["grpc_http2_min_recv_ping_interval_without_data"],
        max_ping_strikes=given["grpc_http2_max_ping_strikes"],
        max_connection_age_ms=given["grpc_max_connection_age"],
        max_connection_age_grace_ms=given["grpc_max_connection_age_grace"],
        answer_delay_seconds=read_answer_delay(environ),
    )


def _serve(arguments: list[str]) -> int:
    try:
        options = serve_options(arguments, os.environ)
    except ConfigError as error:
        from tisfast.parent import tell_refused  # noqa: PLC0415 - see the module's docstring

        tell_refused(arguments, error)
        raise
    from tisfast.processes.nursery_process import spawn_nursery  # noqa: PLC0415 - see the module's docstring

    spawned = spawn_nursery(options.settings.workers.interpreter)
    from tisfast.app import run  # noqa: PLC0415

    return run(options.settings, options.notices, spawned)


def _check(arguments: list[str]) -> int:
    from tisfast.cli_check import main as check  # noqa: PLC0415

    return check(arguments, os.environ)


def _env(arguments: list[str]) -> int:
    from tisfast.cli_env import main as env  # noqa: PLC0415

    return env(arguments, os.environ)


def _script(arguments: list[str]) -> int:
    from tisfast.cli_script import main as script  # noqa: PLC0415

    return script(arguments, os.environ)


def _init(arguments: list[str]) -> int:
    from tisfast.cli_init import main as init  # noqa: PLC0415

    return init(arguments)


def _pytriton(arguments: list[str]) -> int:
    from tisfast.pytriton.check.command import main as pytriton  # noqa: PLC0415

    return pytriton(arguments)


def _bench(arguments: list[str]) -> int:
    from tisfast.cli_bench import main as bench  # noqa: PLC0415 - see the module's docstring

    return bench(arguments)


def _analyze(arguments: list[str]) -> int:
    from tisfast.analyze.command import main as analyze  # noqa: PLC0415

    return analyze(arguments)


def _convert(arguments: list[str]) -> int:
    from tisfast.cli_convert import main as convert  # noqa: PLC0415 - see the module's docstring

    return convert(arguments)


def _docs(arguments: list[str]) -> int:
    from tisfast.cli_docs import main as docs  # noqa: PLC0415

    return docs(arguments)


def _version(_: list[str]) -> int:
    from tisfast import __version__  # noqa: PLC0415

    print(f"tisfast {__version__}")
    return 0


class _Checked:
    """A flag's kind for argparse, which ends at the first wrong value: this notes it and goes on.

    __name__ is for argparse's messages.
    """

    def __init__(self, flag: Flag | Unserved, wrong: list[ConfigError], choices: Sequence[str] | None = None) -> None:
        self.__name__ = flag.kind.__name__
        self._flag, self._wrong, self._choices = flag, wrong, choices

    def __call__(self, text: str) -> Any:
        name = self._flag.name
        try:
            value = self._flag.kind(text)
        except ValueError:
            self._wrong.append(ConfigError(f"argument --{name}: invalid {self.__name__} value: {text!r}", key=name))
            return self._flag.default if isinstance(self._flag, Flag) else self._flag.harmless[0]
        if self._choices and value not in self._choices:
            said = f"argument --{name}: invalid choice: {text!r} (choose from {', '.join(self._choices)})"
            self._wrong.append(ConfigError(said, key=name))
        return value


def _serve_parser(wrong: list[ConfigError]) -> Parser:
    parser = Parser(
        prog="tisfast serve",
        allow_abbrev=False,
        usage="tisfast serve [NAME=]FILE... | --model-repository FOLDER [options]",
        description=SERVES,
        epilog=textwrap.fill(
            "Known to Triton, and without effect here: "
            + ", ".join(f"--{flag.name}" for flag in UNSERVED if not flag.refused)
            + ".  Refused: "
            + ", ".join(f"--{flag.name}" for flag in UNSERVED if flag.refused),
            HELP_COLUMNS,
            break_on_hyphens=False,  # what is copied from here must be a flag
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    groups: dict[str, Any] = {}
    for flag in SERVED:
        group = groups.setdefault(flag.group, None) or parser.add_argument_group(flag.group)
        groups[flag.group] = group
        kind = _Checked(flag, wrong, flag.choices)
        options: dict[str, Any] = {"type": kind, "default": flag.default, "help": flag.help}
        if flag.kind.__name__ == "boolean":
            options.update(nargs="?", const=True, metavar="BOOL")
        else:
            options.update(metavar=flag.kind.__name__.upper().replace("STR", "TEXT"))
        if flag.default not in (None, ""):
            options["help"] += f" (default: {str(flag.default).lower()})"
        if flag.repeat:
            options.update(action="append", metavar="TEXT")
        group.add_argument(f"--{flag.name}", **options)
    for known in UNSERVED:
        bare: dict[str, Any] = {"nargs": "?", "const": True} if known.kind.__name__ == "boolean" else {}
        bare.update(type=_Checked(known, wrong), action="append", help=argparse.SUPPRESS)
        parser.add_argument(f"--{known.name}", **bare)
    return parser


def _tried(build: Callable[[], T], wrong: list[ConfigError]) -> T | None:
    """The built value, or None and one error more: all errors of a command line are reported together."""
    try:
        return build()
    except ConfigError as error:
        wrong.append(error)
        return None


def _unserved(given: Mapping[str, Any], notices: list[str], wrong: list[ConfigError]) -> None:
    for flag in UNSERVED:
        if flag.name.startswith("grpc-") and not given["allow_grpc"]:
            continue  # settings of a service that is switched off
        for value in given[flag.name.replace("-", "_")] or []:
            text = f"--{flag.name}={str(value).lower() if isinstance(value, bool) else value}"
            if value in flag.harmless:
                continue
            if flag.refused:
                wrong.append(ConfigError(f"{text}: {flag.because}", key=flag.name, hint="remove the flag"))
            else:
                notices.append(f"{text} has no effect here, because {flag.because}")


def _unknown_command(command: str) -> str:
    if command.startswith("--"):
        return f"unrecognized option '{command}'; server flags come after the command: tisfast serve {command} ..."
    close = difflib.get_close_matches(command, ["serve", "check", "convert", "env", "script", "version"], n=1)
    return f"unknown command {command!r}" + (f"; did you mean 'tisfast {close[0]}'?" if close else "") + f"\n{USAGE}"


def _fail(message: str) -> int:
    say(f"tisfast: {message.rstrip()}", error=True)
    return 1
