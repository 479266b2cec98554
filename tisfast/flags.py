"""tritonserver's flags as data: which are served, which do nothing here.  Layer 6 (cli)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tisfast import defaults, limits
from tisfast.config.resource_flags import COMPUTE_CAPABILITY_MIN
from tisfast.types import API_CATEGORIES

TRUE: Final = ("true", "on", "1")
FALSE: Final = ("false", "off", "0")


def boolean(text: str) -> bool:
    """true/false, on/off, 1/0.  Raises ValueError."""
    word = text.lower()
    if word not in TRUE + FALSE:
        raise ValueError(f"{text!r} is none of true, false, on, off, 1, 0")
    return word in TRUE


def mode(text: str) -> str:
    """A word, in capitals or not."""
    return text.lower()


class Flag(NamedTuple):
    """A flag that is served.  repeat: every use adds a value; bare booleans mean true."""

    name: str
    kind: Callable[[str], Any]
    default: Any
    group: str
    help: str
    choices: tuple[str, ...] | None = None
    repeat: bool = False


VERTEX_HELP: Final = (
    "serve what Vertex AI asks, at a port of its own: predictions at the path AIP_PREDICT_ROUTE, health at "
    "AIP_HEALTH_ROUTE; default: where AIP_MODE is PREDICTION"
)
HTTP_INPUT_HELP: Final = "most bytes of JSON, of a raw and of a decompressed body; binary tensors may be larger"
SERVED: Final = (
    Flag(
        "model-repository",
        str,
        None,
        "Models",
        "folder that holds the models, or URL of one or of a single model: s3, gs, az, as, https, hf, mlflow "
        "(tisfast docs storage); repeat for several",
        repeat=True,
    ),
    Flag("model-store", str, None, "Models", "the same as --model-repository", repeat=True),
    Flag("exit-on-error", boolean, True, "Models", "exit with code 1 when a model fails to load at start"),
    Flag("disable-auto-complete-config", boolean, False, "Models", "models must come with a complete config.pbtxt"),
    Flag("strict-model-config", boolean, None, "Models", "deprecated: the same as --disable-auto-complete-config"),
    Flag("strict-readiness", boolean, True, "Models", "ready only when every model and instance is ready"),
    Flag(
        "model-control-mode",
        mode,
        "none",
        "Models",
        "none: all models are loaded at the start; explicit: those of --load-model, others by the model control API; "
        "poll: all, and the repositories are looked at for changes",
    ),
    Flag(
        "load-model",
        str,
        None,
        "Models",
        "model to load at the start with --model-control-mode=explicit; repeat for several, or '*' for all",
        repeat=True,
    ),
    Flag(
        "repository-poll-secs",
        float,
        15.0,
        "Models",
        "seconds between two looks at the repositories with --model-control-mode=poll",
    ),
    Flag(
        "reload",
        boolean,
        None,
        "Models",
        "tisfast's own, for developers: load a model again as soon as one of its files is saved; on where files are "
        "named and nothing else is asked for",
    ),
    Flag(
        "model-control-token-file",
        str,
        "",
        "Models",
        "tisfast's own: file of bearer tokens, one a line, of which a call that loads or unloads must carry one; "
        "without it such calls are taken from this machine only",
    ),
    Flag(
        "model-config-name",
        str,
        "",
        "Models",
        "use configs/NAME.pbtxt of a model that has it in place of its config.pbtxt",
    ),
    Flag(
        "backend-directory",
        str,
        "",
        "Models",
        "folder of backends of your own: NAME/backend.py for each (tisfast docs backends)",
    ),
    Flag(
        "guest-directory",
        str,
        "",
        "Models",
        "tisfast's own: folder of mode 0700 in which processes of the same user find this server, to serve models of "
        "theirs ('tisfast docs guests')",
    ),
    Flag(
        "guest-model",
        str,
        None,
        "Models",
        "tisfast's own: model that a guest is to bring: the server is not ready before it serves it; repeat for "
        "several",
        repeat=True,
    ),
    Flag("model-namespacing", boolean, False, "Models", "models of different repositories may have the same name"),
    Flag("model-load-thread-count", int, 4, "Models", "instances that may be loading at one time"),
    Flag("model-load-retry-count", int, 0, "Models", "further attempts for a model that fails to load"),
    Flag(
        "environment-cache-dir",
        str,
        "",
        "Models",
        "tisfast's own: where the Python environments of models are prepared; default: "
        "$XDG_CACHE_HOME/tisfast/environments, or ~/.cache/tisfast/environments",
    ),
    Flag(
        "backend-environments",
        str,
        "off",
        "Models",
        "tisfast's own: auto: where a model's framework is not installed, what its backend needs is installed once "
        "into --environment-cache-dir, for all its models (tisfast docs environments)",
        choices=("off", "auto"),
    ),
    Flag(
        "execution-timeout-secs",
        float,
        float(defaults.EXECUTION_SECONDS_MAX),
        "Models",
        "tisfast's own: an execution that takes longer has hung, and its worker is killed and restarted",
    ),
    Flag(
        "allow-pickled-models",
        boolean,
        False,
        "Models",
        "tisfast's own: the load API takes files that can run code when they are read (of PyTorch and scikit-learn)",
    ),
    Flag(
        "strict-outputs",
        boolean,
        False,
        "Models",
        "tisfast's own: an output that is not what the configuration says is an error; without it, it is sent as the "
        "model returned it, as Triton sends it, and logged once",
    ),
    Flag(
        "model-load-gpu-limit",
        str,
        None,
        "Models",
        "DEVICE:FRACTION; nothing is loaded on the GPU while more of its memory is in use",
        repeat=True,
    ),
    Flag(
        "cuda-memory-pool-byte-size",
        str,
        None,
        "Models",
        "GPU:BYTES of the GPU's memory that models have for tensors which stay there between them, with the GPU's "
        "number as in instance_group; 64 MiB without it",
        repeat=True,
    ),
    Flag(
        "pinned-memory-pool-byte-size",
        int,
        limits.PINNED_POOL_BYTES,
        "Models",
        "host memory that all instances on GPUs may pin, so that tensors go there and come back faster; 0 for none",
    ),
    Flag(
        "min-supported-compute-capability",
        float,
        COMPUTE_CAPABILITY_MIN,
        "Models",
        "models are not put on GPUs below",
    ),
    Flag(
        "model-memory-budget",
        str,
        None,
        "Models",
        "tisfast's own: memory that all models' workers may take, such as 16GB; above it, those unused longest sleep "
        "until they are asked again",
    ),
    Flag(
        "backend-config",
        str,
        None,
        "Models",
        "NAME,SETTING=VALUE; served: python,stub-timeout-seconds, default-max-batch-size, and what backends of "
        "--backend-directory ask for",
        repeat=True,
    ),
    Flag(
        "rate-limit",
        mode,
        "off",
        "Models",
        "off, or execution_count: executions take the resources that their instance groups name, and wait for them",
    ),
    Flag(
        "rate-limit-resource",
        str,
        None,
        "Models",
        "NAME:COUNT[:DEVICE], how much there is of a resource; default: what the largest single execution needs",
        repeat=True,
    ),
    Flag(
        "storage-cache-dir",
        str,
        "",
        "Storage",
        "tisfast's own: folder for what remote repositories hold; default: tisfast/storage in $XDG_CACHE_HOME, "
        "~/.cache without it",
    ),
    Flag(
        "storage-offline",
        str,
        "auto",
        "Storage",
        "tisfast's own: auto serves what the cache has when a store does not answer at start, only never asks stores, "
        "never makes it an error",
        choices=("auto", "only", "never"),
    ),
    Flag(
        "storage-verify",
        boolean,
        False,
        "Storage",
        "tisfast's own: hash all cached files at start, not just new or changed ones",
    ),
    Flag(
        "storage-downloads",
        int,
        defaults.STORAGE_DOWNLOADS,
        "Storage",
        "tisfast's own: files downloaded at one time",
    ),
    Flag("allow-http", boolean, True, "HTTP", "serve HTTP"),
    Flag("http-address", str, "0.0.0.0", "HTTP", "address to listen on"),
    Flag("http-port", int, 8000, "HTTP", "port to listen on; 0 lets the system choose"),
    Flag("reuse-http-port", boolean, False, "HTTP", "let several servers share the port"),
    Flag("allow-vertex-ai", boolean, None, "Vertex AI", VERTEX_HELP),
    Flag("vertex-ai-port", int, None, "Vertex AI", "port to listen on; default: AIP_HTTP_PORT, else 8080"),
    Flag(
        "vertex-ai-default-model",
        str,
        "",
        "Vertex AI",
        "model that predictions are for; default: the only one that is served",
    ),
    Flag("http-max-input-size", int, defaults.HTTP_INPUT_BYTES_MAX, "HTTP", HTTP_INPUT_HELP),
    Flag(
        "codec-processes",
        int,
        None,
        "HTTP",
        "tisfast's own: processes that parse and write large texts (JSON, gzip), started when they are needed; 0: the "
        f"event loop does it all; default: as many as there are cores, {defaults.CODEC_PROCESSES_MAX} at most",
    ),
    Flag(
        "codec-bytes-min",
        int,
        defaults.CODEC_BYTES_MIN,
        "HTTP",
        "tisfast's own: what is smaller is parsed and written on the event loop",
    ),
    Flag(
        "http-header-forward-pattern",
        str,
        "",
        "HTTP",
        "headers of inferences whose name this regular expression is found in become request parameters",
    ),
    Flag(
        "http-restricted-api",
        str,
        None,
        "HTTP",
        "CATEGORY[,CATEGORY...]:HEADER=VALUE, calls that need a header; categories: " + ", ".join(API_CATEGORIES),
        repeat=True,
    ),
    Flag("http-ssl-cert", str, "", "HTTP", "tisfast's own: certificate chain in PEM; the port then speaks HTTPS"),
    Flag("http-ssl-key", str, "", "HTTP", "tisfast's own: its private key; SIGHUP reloads all three files"),
    Flag("http-ssl-client-ca", str, "", "HTTP", "tisfast's own: clients must show a certificate of one of these"),
    Flag("allow-grpc", boolean, True, "gRPC", "serve gRPC"),
    Flag("grpc-address", str, "0.0.0.0", "gRPC", "address to listen on"),
    Flag("grpc-port", int, 8001, "gRPC", "port to listen on; 0 lets the system choose"),
    Flag("reuse-grpc-port", boolean, False, "gRPC", "let several servers share the port"),
    Flag("grpc-use-ssl", boolean, False, "gRPC", "serve TLS"),
    Flag("grpc-use-ssl-mutual", boolean, False, "gRPC", "serve TLS, and ask clients for certificates"),
    Flag("grpc-server-cert", str, "", "gRPC", "PEM file with the server's certificate and its chain"),
    Flag("grpc-server-key", str, "", "gRPC", "PEM file with its private key"),
    Flag("grpc-root-cert", str, "", "gRPC", "PEM file with the authorities that sign clients' certificates"),
    Flag(
        "grpc-infer-response-compression-level",
        str,
        "none",
        "gRPC",
        "compression of answers, for clients that accept it",
        choices=("none", "low", "medium", "high"),
    ),
    Flag(
        "grpc-header-forward-pattern",
        str,
        "",
        "gRPC",
        "metadata of inferences whose name this regular expression is found in become request parameters",
    ),
    Flag(
        "grpc-restricted-protocol",
        str,
        None,
        "gRPC",
        "CATEGORY[,CATEGORY...]:KEY=VALUE, calls that need metadata triton-grpc-protocol-KEY; categories: "
        + ", ".join(API_CATEGORIES),
        repeat=True,
    ),
    Flag("grpc-keepalive-time", int, 7200000, "gRPC", "ms without a byte from a client after which it is pinged"),
    Flag("grpc-keepalive-timeout", int, 20000, "gRPC", "ms a client may take to answer that"),
    Flag("grpc-keepalive-permit-without-calls", boolean, False, "gRPC", "ping, and be pinged, without calls, too"),
    Flag("grpc-http2-max-pings-without-data", int, 2, "gRPC", "pings sent while no data is, 0 for any"),
    Flag(
        "grpc-http2-min-recv-ping-interval-without-data",
        int,
        300000,
        "gRPC",
        "ms between two pings of a client that gets no data",
    ),
    Flag("grpc-http2-max-ping-strikes", int, 2, "gRPC", "pings that may come too early, 0 for any"),
    Flag("grpc-max-connection-age", int, 0, "gRPC", "ms after which a connection takes no new calls, 0 for never"),
    Flag("grpc-max-connection-age-grace", int, 0, "gRPC", "ms more after which it is closed, 0 for never"),
    Flag("allow-metrics", boolean, True, "Metrics", "serve Prometheus metrics"),
    Flag("allow-cpu-metrics", boolean, True, "Metrics", "report CPU and memory use of the machine"),
    Flag("allow-gpu-metrics", boolean, True, "Metrics", "report use, memory and power of the GPUs"),
    Flag("metrics-address", str, None, "Metrics", "address to listen on; default: that of --http-address"),
    Flag("metrics-port", int, 8002, "Metrics", "port to listen on; 0 lets the system choose"),
    Flag(
        "metrics-interval-ms",
        float,
        2000.0,
        "Metrics",
        "least time between two readings of CPU and GPUs; all else is read when asked for",
    ),
    Flag(
        "metrics-config",
        str,
        None,
        "Metrics",
        "KEY=VALUE: counter_latencies, summary_latencies, histogram_latencies, summary_quantiles",
        repeat=True,
    ),
    Flag(
        "trace-config",
        str,
        None,
        "Tracing",
        "[MODE,]KEY=VALUE: mode, level, rate, count; triton,file; triton,log-frequency; opentelemetry,url; "
        "opentelemetry,resource; opentelemetry,bsp_*",
        repeat=True,
    ),
    Flag("trace-file", str, None, "Tracing", "deprecated: --trace-config triton,file"),
    Flag("trace-level", str, None, "Tracing", "deprecated: --trace-config level", repeat=True),
    Flag("trace-rate", int, None, "Tracing", "deprecated: --trace-config rate"),
    Flag("trace-count", int, None, "Tracing", "deprecated: --trace-config count"),
    Flag("trace-log-frequency", int, None, "Tracing", "deprecated: --trace-config triton,log-frequency"),
    Flag(
        "cache-config",
        str,
        None,
        "Response cache",
        "NAME,KEY=VALUE: local,size=BYTES; redis,host and redis,port, with user, password, db, pool_size, "
        "connect_timeout, socket_timeout, wait_timeout, tls_enabled, cert, key, cacert, cacert_dir, sni",
        repeat=True,
    ),
    Flag("response-cache-byte-size", int, None, "Response cache", "deprecated: --cache-config local,size=BYTES"),
    Flag("allow-client-shm", boolean, False, "Server", "let clients register shared memory for their tensors"),
    Flag(
        "unpaced-local",
        boolean,
        True,
        "Server",
        "tisfast's own: clients at this machine's own addresses have TCP's congestion control reno, which does not "
        "pace, whatever the machine's choice is; false: the machine's choice is everybody's",
    ),
    Flag(
        "spin-us",
        int,
        None,
        "Server",
        "tisfast's own: us for which a side that waits yields its core before it sleeps, where most waits are "
        f"shorter; 0: it sleeps at once; default: {defaults.SPIN_US}, and 0 where a CPU quota bounds the server",
    ),
    Flag("id", str, "triton", "Server", "identifier of this server"),
    Flag(
        "server-version",
        str,
        "",
        "Server",
        "tisfast's own: the version that GET /v2 and gRPC's ServerMetadata tell, for clients that compare it with "
        "Triton's (2.51.0, say); default: tisfast's",
    ),
    Flag("exit-timeout-secs", int, defaults.STOP_SECONDS_MAX, "Server", "seconds to finish running requests at exit"),
    Flag(
        "drain-delay-secs",
        float,
        0.0,
        "Server",
        "tisfast's own: seconds before that in which the server says that it is not ready, and serves",
    ),
    Flag(
        "flags-file",
        str,
        None,
        "Server",
        "tisfast's own: file of further flags, one --NAME=VALUE a line, for secrets: others can read a command line",
        repeat=True,
    ),
    Flag(
        "parent-pidfd",
        int,
        -1,
        "Server",
        "tisfast's own, for programs that start a server: number of an inherited descriptor, a pidfd of the process "
        "with which the server ends ('tisfast docs operations'); -1 for none",
    ),
    Flag(
        "ready-fd",
        int,
        -1,
        "Server",
        "tisfast's own, for programs that start a server: number of an inherited descriptor that gets one line of JSON "
        "when the server serves or cannot; -1 for none",
    ),
    Flag("log-verbose", int, 0, "Logging", "0 for none, 1 and more for verbose lines"),
    Flag("log-info", boolean, True, "Logging", "log information"),
    Flag("log-warning", boolean, True, "Logging", "log warnings"),
    Flag("log-error", boolean, True, "Logging", "log errors"),
    Flag(
        "log-format",
        str,
        "default",
        "Logging",
        "default, ISO8601, or tisfast's own json: an object a line",
        choices=("default", "ISO8601", "json"),
    ),
    Flag("log-file", str, "", "Logging", "append to this file instead of writing to stdout and stderr"),
    Flag(
        "access-log",
        str,
        "",
        "Logging",
        "tisfast's own: append a line for each request to this file; with --log-verbose=1 they are in the log",
    ),
)


class Unserved(NamedTuple):
    """A flag that Triton knows and that does nothing here.

    harmless: the values that ask for nothing (the default, or "off"), which need no notice; because: why
    others have no effect, or are refused; refused: they would change what clients are answered.
    """

    name: str
    kind: Callable[[str], Any]
    harmless: tuple[Any, ...]
    because: str
    refused: bool = False


def _same(kind: Callable[[str], Any], because: str, *, refused: bool = False, **harmless: Any) -> tuple[Unserved, ...]:
    return tuple(
        Unserved(
            name.replace("_", "-"),
            kind,
            value if isinstance(value, tuple) else (() if value is None else (value,)),
            because,
            refused,
        )
        for name, value in harmless.items()
    )


NO_SAGEMAKER: Final = "there is no SageMaker front here"
UNSERVED: Final = (
    *_same(int, "gRPC runs on one event loop, without threads", grpc_infer_thread_count=2),
    *_same(int, "gRPC calls have no pool of states", grpc_infer_allocation_pool_size=8),
    *_same(
        int,
        "the answers queued for a gRPC stream are bounded by the model's memory",
        grpc_max_response_pool_size=2147483647,
    ),
    *_same(boolean, "tensors do not go from GPU to GPU", enable_peer_access=(True, False)),
    *_same(int, "HTTP runs on one event loop, without threads", http_thread_count=8),
    *_same(
        str,
        "caches are part of tisfast, and no libraries: local and redis",
        cache_directory="/opt/tritonserver/caches",
    ),
    *_same(str, "pools of CUDA memory have one size", cuda_virtual_address_size=None),
    *_same(int, "tensors are not copied, so no threads do it", buffer_manager_thread_count=0),
    *_same(str, "repository agents are not served", repoagent_directory="/opt/tritonserver/repoagents"),
    *_same(str, "processes go where the system puts them; taskset binds them", host_policy=None),
    *_same(boolean, NO_SAGEMAKER, refused=True, allow_sagemaker=False),
    *_same(int, NO_SAGEMAKER, sagemaker_port=8080, sagemaker_thread_count=8),
    *_same(str, NO_SAGEMAKER, sagemaker_safe_port_range=None),
    *_same(int, "Vertex AI's port runs on one event loop, without threads", vertex_ai_thread_count=8),
)
