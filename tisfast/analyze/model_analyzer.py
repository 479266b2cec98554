"""Model Analyzer's configuration files, as flags of `tisfast analyze`.  Layer 5 (analyze).

Each key becomes flags, or is refused by name with the reason.
"""

from __future__ import annotations

import difflib
import json
import math
import reprlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tisfast import limits
from tisfast.analyze.aims import metric
from tisfast.analyze.model_analyzer_keys import (
    AIMS,
    DEFAULTS,
    ELSEWHERE,
    ENDPOINTS,
    HARMLESS,
    LAUNCH_MODES,
    NO_DOCKER,
    NUMBERS,
    OF_A_MODEL,
    OF_THE_PROCESSES,
    ONE_FOLDER,
    PASSED_OVER,
    PLAIN,
    REASONS,
    REFUSED,
    SCRATCH,
    TOGETHER,
    WHOLE_NUMBERS,
)
from tisfast.analyze.typed import Unit
from tisfast.errors import ConfigError

Flags = Iterator[str]
NAMED_MAX: Final = 20
"""Models that a message names."""


def apart(path: str) -> list[str]:
    """The models of a file that are searched one after the other; none where it has one, or all together."""
    document = _read(path)
    names = list(_models(document.get("profile_models")))
    return names if len(names) > 1 and not _together(document) else []


def folder_of(path: str) -> str:
    """Where a file wants what is written."""
    return _scalar("export_path", _read(path).get("export_path", "."))


class FileFlags(NamedTuple):
    """own: of analyze, and of bench where keys stand for them; bench: perf_analyzer_flags, each with its value.

    notes: what is to be told.
    """

    own: list[str]
    bench: list[Unit]
    notes: tuple[str, ...] = ()


def flags_of(path: str, model: str) -> FileFlags:
    """A file's flags.  model: the one of -m, "" where the file names it, or several.  Raises ConfigError."""
    document = _read(path)
    try:
        return _flags_of(document, model)
    except RecursionError:  # YAML's anchors may have a value hold itself
        raise ConfigError(f"-f {path} has values within values without an end") from None


def _flags_of(document: Mapping[str, Any], model: str) -> FileFlags:
    models = _models(document.get("profile_models"))
    names = [each.partition("=")[0].strip() for each in model.split(",")] if model else list(models)
    if len(names) > 1 and ("," in model or _together(document)):
        own = {name: models.get(name, {}) for name in names}
        found = _flags(model or ",".join(names), _shared(document))
        return found._replace(own=[*found.own, *_of_each(document, own)])
    if len(names) != 1:
        named = ", ".join([*names[:NAMED_MAX], *(["..."] if len(names) > NAMED_MAX else [])]) or "none"
        raise ConfigError(f"profile_models has {len(names)} models ({named}): name one with -m")
    return _flags(model or names[0], {**document, **models.get(names[0], {})})


def _together(document: Mapping[str, Any]) -> bool:
    return any(document.get(key) is True for key in TOGETHER)


def _shared(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """What holds for all models together."""
    shared = {key: value for key, value in document.items() if key not in (*AIMS, "model_config_parameters")}
    return {"run_config_search_mode": "quick", **shared}  # Model Analyzer searches several models in no other way


def _of_each(document: Mapping[str, Any], models: Mapping[str, Mapping[str, Any]]) -> Flags:
    """Aims and settings of each model: its own, or else those of all."""
    for name, own in models.items():
        strange = next((key for key in own if key not in (*AIMS, "model_config_parameters", "weighting")), None)
        if strange is not None:
            raise ConfigError(
                f"profile_models.{name}.{strange} is of one model, and the load is of all models together: write it "
                "for all of them"
            )
        merged = {**{key: value for key, value in document.items() if key in AIMS}, **own}
        for flag in _config_parameters(merged.get("model_config_parameters", {})):
            yield _named(flag, name)
        yield from _weighed(name, merged)
        if "constraints" in merged:
            for flag in _constraints(merged["constraints"]):
                yield _named(flag, name)
        if "latency_budget" in merged:
            yield f"--constraint={name}:latency_p99<={_scalar('latency_budget', merged['latency_budget'])}"
        if "min_throughput" in merged:
            yield f"--constraint={name}:throughput>={_scalar('min_throughput', merged['min_throughput'])}"


def _weighed(name: str, merged: Mapping[str, Any]) -> Flags:
    """Objectives of a model have the weight of the model together."""
    given = merged.get("objectives", ["perf_throughput"])
    weights = (
        dict(given) if isinstance(given, dict) else dict.fromkeys(given if isinstance(given, list) else [given], 1)
    )
    weighting = merged.get("weighting", 1)
    numbers = [weighting, *weights.values()]
    if not weights or not all(type(each) in (int, float) and 0 < each < math.inf for each in numbers):
        raise ConfigError(f"profile_models.{name}: objectives and weighting have numbers above 0 as weights")
    for key, weight in weights.items():
        yield _named(f"--objective={key}={weighting * weight / sum(weights.values()):.6g}", name)


def _named(flag: str, model: str) -> str:
    """Of one model; memory is known of all together."""
    option, _, value = flag.partition("=")
    if value.startswith(OF_THE_PROCESSES):
        return flag
    return f"{option}={model}:{value}"


def _flags(name: str, merged: Mapping[str, Any]) -> FileFlags:
    _refuse(merged)
    server = list(_server(merged))
    found = [f"--model-name={name}", *server]
    for key, value in merged.items():
        if key not in (*ELSEWHERE, *SCRATCH) and not (key == "model_repository" and server):  # it is that server's own
            found += _key(key, value)
    if "run_config_search_mode" not in merged:
        found.append("--search=brute")  # Model Analyzer's default
    if merged.get("request_rate_search_enable"):
        found.append("--request-rate-search-enable")
    flags = merged.get("perf_analyzer_flags")
    passed = [key for key in merged if key in SCRATCH]
    notes = [f"{', '.join(passed)}: passed over, as {ONE_FOLDER}"] if passed else []
    notes += [f"{key}: passed over, as {why}" for key, why in PASSED_OVER.items() if key in merged]
    return FileFlags(found, [] if flags is None else list(_bench_flags(flags)), tuple(notes))


def _refuse(merged: Mapping[str, Any]) -> None:
    """Raises ConfigError with all keys that have no place here."""
    reasons = {**REASONS, **REFUSED}
    wrong = [key for key, value in merged.items() if key in reasons and value not in HARMLESS.get(key, ())]
    if merged.get("triton_launch_mode", "local") not in LAUNCH_MODES:
        wrong, reasons = ["triton_launch_mode", *wrong], {**reasons, "triton_launch_mode": _launch_mode(merged)}
    if len(wrong) == 1:
        raise ConfigError(f"{wrong[0]} is not served by tisfast analyze: {reasons[wrong[0]]}")
    if wrong:
        told = "; ".join(f"{key} ({reasons[key]})" for key in wrong)
        raise ConfigError(f"{len(wrong)} keys are not served by tisfast analyze: {told}")


def _read(path: str) -> Mapping[str, Any]:
    try:
        file = Path(path)
        if file.stat().st_size > limits.CONFIG_BYTES_MAX:
            raise ConfigError(f"-f {path} has more than {limits.CONFIG_BYTES_MAX} bytes; name a configuration file")
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"-f {path} cannot be read ({error}); name a file of YAML or JSON") from None
    found = _json(path, text) if path.endswith(".json") else _yaml(path, text)
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ConfigError(f"-f {path} has no keys at its top; write KEY: VALUE, as Model Analyzer's files")
    return found


def _json(path: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"-f {path} is no JSON: {error}") from None


def _yaml(path: str, text: str) -> Any:
    try:
        import yaml  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise ConfigError(
            f"-f {path} needs PyYAML, which is not installed: pip install 'tisfast[analyze]', or write the same as "
            "JSON in a file that ends in .json"
        ) from None
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise ConfigError(f"-f {path} is no YAML: {' '.join(str(error).split())}") from None


def _models(given: Any) -> Mapping[str, Mapping[str, Any]]:
    """The models, and what the file says of each alone."""
    if isinstance(given, str):
        given = [each.strip() for each in given.split(",")]
    models: dict[str, Any] = {}
    for each in given if isinstance(given, list) else [given] if isinstance(given, dict) else []:
        models.update(_mapping("profile_models", each) if isinstance(each, dict) else {str(each): None})
    found = {name: _mapping(f"profile_models.{name}", own or {}) for name, own in models.items()}
    for name, own in found.items():
        for key in own:
            if key not in OF_A_MODEL and key not in REFUSED and key not in HARMLESS:
                raise _unknown(f"profile_models.{name}.{key}", key, OF_A_MODEL)
    return found


def _launch_mode(merged: Mapping[str, Any]) -> str:
    """Why its value has no place here."""
    return f"{reprlib.repr(merged['triton_launch_mode'])}: {NO_DOCKER}"


def _server(merged: Mapping[str, Any]) -> Flags:
    mode = merged.get("triton_launch_mode", "local")
    if mode == "remote":
        protocol = str(merged.get("client_protocol", "http"))
        yield f"--url={merged.get(ENDPOINTS.get(protocol, ''), DEFAULTS.get(protocol, ''))}"
        return
    for key in ENDPOINTS.values():
        if key in merged:
            raise ConfigError(f"{key} is not served with triton_launch_mode local: the server takes free ports")


def _key(key: str, value: Any) -> Flags:
    if value in HARMLESS.get(key, ()):
        return
    if key in PLAIN:
        _check_number(key, value)
        yield f"{PLAIN[key]}={_scalar(key, value)}"
    elif key in READERS:
        yield from READERS[key](value)
    else:
        raise _unknown(key, key, (*PLAIN, *READERS, *ELSEWHERE))


def _check_number(key: str, value: Any) -> None:
    """Raises ConfigError in the words of the file, where the flag that a key becomes would speak of itself."""
    if key not in NUMBERS and key not in WHOLE_NUMBERS:
        return
    try:
        number = float(_scalar(key, value))
    except ValueError:
        number = math.nan
    if key in WHOLE_NUMBERS and not number.is_integer():
        raise ConfigError(f"{key}: {reprlib.repr(value)} is no whole number")
    if not math.isfinite(number):
        raise ConfigError(f"{key}: {reprlib.repr(value)} is no number")


def _unknown(shown: str, key: str, known: tuple[str, ...]) -> ConfigError:
    near = difflib.get_close_matches(key, known, 1)
    return ConfigError(f"{shown} is no key that is known here{f'; is {near[0]} meant?' if near else ''}")


def _scalar(key: str, value: Any) -> str:
    if not isinstance(value, str | int | float):
        raise ConfigError(f"{key} has one value, not {reprlib.repr(value)}")
    try:
        return str(value)
    except ValueError:
        raise ConfigError(f"{key}: a whole number has at most {sys.get_int_max_str_digits()} digits") from None


def _list(key: str, value: Any) -> str:
    """A list, a range with start, stop and step, or a text of both kinds, as our flags have them."""
    if isinstance(value, dict):
        if not {"start", "stop"} <= set(value) <= {"start", "stop", "step"}:
            raise ConfigError(f"{key}: a range has start, stop and step, not {reprlib.repr(value)}")
        return ":".join(_scalar(key, each) for each in (value["start"], value["stop"], value.get("step", 1)))
    return ",".join(_scalar(key, each) for each in value) if isinstance(value, list) else _scalar(key, value)


def _parameters(value: Any) -> Flags:
    for key, each in _mapping("parameters", value).items():
        if key not in ("concurrency", "request_rate", "batch_sizes"):
            raise _unknown(f"parameters.{key}", key, ("concurrency", "request_rate", "batch_sizes"))
        yield from READERS[key](each)


def _batch_sizes(value: Any) -> Flags:
    text = _list("batch_sizes", value)
    if not text.isdecimal():
        raise ConfigError(f"batch_sizes {text}: variants are compared with one size of requests; give one number")
    yield f"--batch-size={text}"


def _objectives(value: Any) -> Flags:
    if isinstance(value, dict):
        for key, weight in value.items():
            if not _above_zero(weight):
                raise ConfigError(f"objectives.{key}: {reprlib.repr(weight)} is no weight above 0")
            _known_metric(f"objectives.{key}", key)
            yield f"--objective={key}={_scalar('objectives', weight)}"
        return
    for key in value if isinstance(value, list) else [value]:
        _known_metric("objectives", _scalar("objectives", key))
        yield f"--objective={_scalar('objectives', key)}"


def _above_zero(value: Any) -> bool:
    """Of a number, or a text that is one."""
    try:
        return isinstance(value, str | int | float) and 0 < float(value) < math.inf
    except (ValueError, OverflowError):
        return False


def _known_metric(shown: str, name: str) -> None:
    try:
        metric(name.partition("=")[0])
    except ConfigError as error:
        raise ConfigError(f"{shown}: {error.message}") from None


def _constraints(value: Any) -> Flags:
    for key, bounds in _mapping("constraints", value).items():
        if isinstance(bounds, int | float):
            end = "min" if key.endswith("throughput") else "max"
            raise ConfigError(f"constraints.{key}: write {{{end}: {_scalar(key, bounds)}}}")
        ends = _mapping(f"constraints.{key}", bounds)
        least, most = ends.get("min"), ends.get("max")
        if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
            raise ConfigError(f"constraints.{key}: min {_scalar(key, least)} is above max {_scalar(key, most)}")
        for end, limit in ends.items():
            if end not in ("min", "max"):
                raise _unknown(f"constraints.{key}.{end}", end, ("min", "max"))
            if not _above_zero(limit):
                raise ConfigError(f"constraints.{key}.{end}: {reprlib.repr(limit)} is no number above 0")
            _known_metric(f"constraints.{key}", key)
            yield f"--constraint={key}{'<=' if end == 'max' else '>='}{_scalar('constraints', limit)}"


def _bench_flags(value: Any) -> Iterator[Unit]:
    for each in value if isinstance(value, list) else [value]:
        for key, given in _mapping("perf_analyzer_flags", each).items():
            flag = f"{'-' if len(key) == 1 else '--'}{key.replace('_', '-')}"
            for one in given if isinstance(given, list) else [given]:
                if one is True or one is None:
                    yield (flag,)
                elif one is not False:
                    yield (f"{flag}={_scalar(key, one)}",)


def _server_flags(value: Any) -> Flags:
    for key, given in _mapping("triton_server_flags", value).items():
        for one in given if isinstance(given, list) else [given]:
            text = str(one).lower() if isinstance(one, bool) else _scalar(f"triton_server_flags.{key}", one)
            yield f"--server-flag=--{key.replace('_', '-')}={text}"


def _config_parameters(value: Any) -> Flags:
    """Fields of config.pbtxt with the values that they may have."""
    for key, given in _mapping("model_config_parameters", value).items():
        if key == "max_batch_size":
            yield f"--max-batch-sizes={_list(key, given)}"
        elif key == "instance_group":
            yield from _instance_group(given)
        else:
            yield from _fields(key, given)


def _instance_group(given: Any) -> Flags:
    groups = given if isinstance(given, list) else [given]
    if len(groups) != 1 or not isinstance(groups[0], dict) or "count" not in groups[0]:
        raise ConfigError("model_config_parameters.instance_group: write one group with the counts, as - count: [1, 2]")
    counts = groups[0]["count"] if isinstance(groups[0]["count"], list) else [groups[0]["count"]]
    if set(groups[0]) == {"count"}:
        yield f"--instances={_list('count', counts)}"
        return
    kinds = groups[0].get("kind")
    if isinstance(kinds, list):
        if len(kinds) != 1:
            raise ConfigError("model_config_parameters.instance_group.kind: give one kind")
        kinds = kinds[0]
    rest = {name: each for name, each in groups[0].items() if name not in ("count", "kind")}
    made = [[{**({"kind": kinds} if kinds else {}), **rest, "count": count}] for count in counts]
    yield f"--set=instance_group={_json_text('instance_group', made)}"


def _fields(path: str, given: Any) -> Flags:
    """The leaves below a key; a leaf's list has its values."""
    if path == "dynamic_batching.max_queue_delay_microseconds":
        yield f"--queue-delays={_list(path, given)}"
    elif path == "dynamic_batching.preferred_batch_size":
        values = given if isinstance(given, list) else [given]
        for each in values if values and isinstance(values[0], list) else [values]:
            yield f"--preferred-batch-sizes={_list(path, each)}"
    elif isinstance(given, dict) and _mapping(path, given):
        if path.startswith("parameters.") and set(given) == {"string_value"}:
            yield from _fields(path, given["string_value"])
            return
        for key, each in given.items():
            yield from _fields(f"{path}.{key}", each)
    else:
        yield f"--set={path}={_json_text(path, given if isinstance(given, list) else [given])}"


def _mapping(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f"{key} has keys below it that are texts, not {reprlib.repr(value)}")
    return value


def _json_text(key: str, value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key}: {reprlib.repr(value)} cannot be in a configuration ({error})") from None


def _mode(value: Any) -> Flags:
    yield f"--search={'bayesian' if value == 'optuna' else _scalar('run_config_search_mode', value)}"


READERS: Final[Mapping[str, Callable[[Any], Flags]]] = {
    "parameters": _parameters,
    "concurrency": lambda value: iter([f"--concurrency={_list('concurrency', value)}"]),
    "request_rate": lambda value: iter([f"--request-rate={_list('request_rate', value)}"]),
    "batch_sizes": _batch_sizes,
    "objectives": _objectives,
    "constraints": _constraints,
    "triton_server_flags": _server_flags,
    "model_config_parameters": _config_parameters,
    "run_config_search_mode": _mode,
}
"""Keys with more than one value."""
