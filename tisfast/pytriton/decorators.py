"""Decorators of inference callables, and what decorators of the user's own need.

An undecorated callable gets a list of requests and returns a list of dictionaries of arrays, one for each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from tisfast.pytriton.batch_outputs import follow, split
from tisfast.pytriton.constants import TRITON_CONTEXT_FIELD_NAME
from tisfast.pytriton.decorated import decorator
from tisfast.pytriton.exceptions import PyTritonBadParameterError, PyTritonRuntimeError, PyTritonValidationError
from tisfast.pytriton.group_decorators import ConstantPadder, group_rows, in_groups
from tisfast.pytriton.model_config.datatypes import is_text
from tisfast.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from tisfast.pytriton.proxy.telemetry import end_span, start_span_from_span
from tisfast.pytriton.proxy.types import Request

__all__ = [
    "ConstantPadder",
    "InferenceRequest",
    "InferenceRequests",
    "InferenceResult",
    "InferenceResults",
    "InputNames",
    "ModelConfigDict",
    "TritonContext",
    "batch",
    "convert_output",
    "fill_optionals",
    "first_value",
    "get_inference_request_batch_size",
    "get_model_config",
    "get_triton_context",
    "group_by_keys",
    "group_by_values",
    "pad_batch",
    "sample",
    "triton_context",
]

log = logging.getLogger("tisfast.pytriton")
Array: TypeAlias = np.ndarray[Any, Any]
InputNames: TypeAlias = list[str]
InferenceRequest: TypeAlias = dict[str, Array]
InferenceRequests: TypeAlias = list[InferenceRequest] | tuple[InferenceRequest, ...]
InferenceResult: TypeAlias = dict[str, Array]
InferenceResults: TypeAlias = list[InferenceResult] | tuple[InferenceResult, ...]

CONTEXT_ATTRIBUTE: Final = "__triton_context__"
"""Where `bind` leaves the context: on the callable, or on the object of a bound method."""
BATCH_SPAN: Final = "pytriton-batch-decorator-span"
_SPECIAL_KEYS: Final = (CONTEXT_ATTRIBUTE,)


class ModelConfigDict(MutableMapping[Any, TritonModelConfig]):
    """Configurations by callable; all decorated forms of a callable are one key."""

    def __init__(self) -> None:
        """Empty."""
        self._configs: dict[str, TritonModelConfig] = {}
        self._callables: dict[str, Any] = {}

    def __getitem__(self, key: Any) -> TritonModelConfig:
        """Raises KeyError."""
        return self._configs[_callable_key(key)]

    def __setitem__(self, key: Any, value: TritonModelConfig) -> None:
        """Of a function, a bound method or an object with `__call__`."""
        name = _callable_key(key)
        self._configs[name], self._callables[name] = value, key

    def __delitem__(self, key: Any) -> None:
        """Raises KeyError."""
        name = _callable_key(key)
        del self._configs[name], self._callables[name]

    def __len__(self) -> int:
        """How many callables."""
        return len(self._configs)

    def __iter__(self) -> Iterator[Any]:
        """The callables."""
        return iter(list(self._callables.values()))


@dataclass
class TritonContext:
    """What a callable can know of the models that it is bound to."""

    model_configs: ModelConfigDict = field(default_factory=ModelConfigDict)


def get_triton_context(wrapped: Any, instance: Any) -> TritonContext:
    """The context of a bound callable, for decorators.  Raises PyTritonValidationError for one that is not bound."""
    context = getattr(wrapped if instance is None else instance, CONTEXT_ATTRIBUTE, None)
    if context is None:
        raise PyTritonValidationError("Wrapped function or object must bound with triton to get  __triton_context__")
    found: TritonContext = context
    return found


def get_model_config(wrapped: Any, instance: Any) -> TritonModelConfig:
    """The configuration of a bound callable, for decorators.  Raises as get_triton_context."""
    return get_triton_context(wrapped, instance).model_configs[wrapped]


def get_inference_request_batch_size(inference_request: Mapping[str, Array] | Request) -> int:
    """The size of the first dimension of the first input.  Raises PyTritonValidationError without inputs."""
    for array in inference_request.values():
        return int(array.shape[0])
    raise PyTritonValidationError("A request without inputs has no batch size")


def convert_output(
    outputs: Any, wrapped: Any = None, instance: Any = None, model_config: TritonModelConfig | None = None
) -> dict[str, Any]:
    """Outputs by name, where a callable returned a list or tuple of arrays.

    model_config: without it that of the callable.  Raises PyTritonValidationError for what are no outputs.
    """
    if isinstance(outputs, dict):
        return outputs
    if not isinstance(outputs, list | tuple):
        raise PyTritonValidationError(f"Unsupported output type {type(outputs)}.")
    specs = (model_config or get_model_config(wrapped, instance)).outputs or ()
    if len(outputs) != len(specs):
        raise PyTritonValidationError("Outputs length different than config outputs length")
    return {spec.name: array for spec, array in zip(specs, outputs, strict=True)}


@decorator
def batch(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Give all requests to the callable as one array for each input, and cut what it returns apart again.

    It returns a dictionary, list or tuple of arrays; generators and coroutines do for each item.
    """
    requests = _requests_of(args, "batch")
    sizes = [get_inference_request_batch_size(request) for request in requests]
    inputs = _joined(requests)
    spans = [start_span_from_span(request.span, BATCH_SPAN) for request in requests if _is_traced(request)]

    def answer(outputs: Any) -> list[dict[str, Any]]:
        return split(convert_output(outputs, wrapped, instance), sizes)

    def ended(error: BaseException | None) -> None:
        for span in spans:
            end_span(span, error)

    return follow(lambda: wrapped(*args[1:], **inputs, **kwargs), answer, ended)


@decorator
def sample(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Give the inputs of the first request to the callable; for models without batching."""
    inputs = dict(_requests_of(args, "sample")[0].items())
    return follow(
        lambda: wrapped(*args[1:], **inputs, **kwargs), lambda outputs: [convert_output(outputs, wrapped, instance)]
    )


@decorator
def group_by_keys(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Call the callable once for each set of input names, with the requests that have these."""
    requests = _requests_of(args, "group_by_keys")
    groups: dict[tuple[str, ...], list[int]] = {}
    for at, request in enumerate(requests):
        groups.setdefault(tuple(sorted(request.keys())), []).append(at)
    places = [groups[key] for key in sorted(groups)]

    def restored(results: list[Any]) -> list[Any]:
        ordered: list[Any] = [None] * len(requests)
        for place, result in zip(places, results, strict=True):
            for at, item in zip(place, result, strict=True):
                ordered[at] = item
        return ordered

    calls = [lambda place=place: wrapped([requests[at] for at in place], *args[1:], **kwargs) for place in places]
    return in_groups("group_by_keys", calls, restored)


def group_by_values(*keys: str, pad_fn: Callable[[Any], Any] | None = None) -> Callable[[Any], Any]:
    """Below @batch: call the callable once for each combination of values of these inputs.

    pad_fn: gets the results of all groups, before they are put together, to make their shapes equal.
    """

    _check_names("group_by_values", keys)
    if not keys:
        raise PyTritonBadParameterError('@group_by_values needs inputs to group by: write @group_by_values("name")')
    if pad_fn is ConstantPadder or not (pad_fn is None or callable(pad_fn)):
        raise PyTritonBadParameterError(
            f"pad_fn of @group_by_values must be a callable, like ConstantPadder(0), not {pad_fn!r:.200}"
        )

    @decorator
    def decorate(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if args:
            raise PyTritonRuntimeError("The @group_by_values decorator must be used after the @batch decorator.")
        absent = [key for key in keys if key not in kwargs]
        if absent:
            raise PyTritonRuntimeError(
                f"@group_by_values groups by {', '.join(absent)}, and the inputs of the batch are {', '.join(kwargs)}."
            )
        rows = group_rows([kwargs[key] for key in keys])
        order = np.argsort(np.concatenate(rows), kind="stable")

        def merged(results: list[Any]) -> dict[str, Array]:
            named = [convert_output(result, wrapped, instance) for result in results]
            if pad_fn is not None:
                named = pad_fn(named)
            return {name: np.concatenate([each[name] for each in named])[order] for name in named[0]}

        calls = [lambda at=at: wrapped(**{name: array[at] for name, array in kwargs.items()}) for at in rows]
        return in_groups("group_by_values", calls, merged)

    return decorate


def fill_optionals(**defaults: Any) -> Callable[[Any], Any]:
    """Add inputs that a request lacks; a default has the shape of the input, without the batch dimension."""

    @decorator
    def fill_optional_inputs(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        config = get_model_config(wrapped, instance)
        _check_defaults(defaults, {spec.name: spec for spec in config.inputs or ()})
        requests = _requests_of(args, "fill_optionals")
        for request in requests:
            missing = [name for name in defaults if name not in request.keys()]  # noqa: SIM118 - a request may be any mapping
            if not missing:
                continue
            size = get_inference_request_batch_size(request) if config.batching else 0
            for name in missing:
                default = defaults[name]
                request[name] = np.repeat(default[np.newaxis], size, axis=0) if config.batching else default
        return wrapped(requests, *args[1:], **kwargs)

    return fill_optional_inputs


def first_value(*keys: str, squeeze_single_values: bool = True, strict: bool = True) -> Callable[[Any], Any]:
    """Replace inputs by their first row, in arguments (after @batch) or in requests.

    squeeze_single_values: a row of one element becomes a scalar.  strict: rows must be equal.
    """
    _check_names("first_value", keys)
    special = sorted(set(keys) & set(_SPECIAL_KEYS))
    if special:
        raise PyTritonBadParameterError(
            f"The keys {', '.join(special)} are not allowed as keys for @first_value wrapper. "
            f"The set of not allowed keys are {', '.join(_SPECIAL_KEYS)}"
        )

    looked: list[bool] = []  # for names that the model has not

    def first(name: str, array: Array) -> Any:
        if strict and not np.array_equal(array, np.broadcast_to(array[:1], array.shape)):
            raise PyTritonRuntimeError(
                f"The values on the {name!r} input are not equal. To proceed, either disable strict mode in "
                "@first_value wrapper or ensure that the values always are consistent. "
                f"The current values of {name!r} are {array!r}."
            )
        row = array[0]
        return row.flat[0] if squeeze_single_values and isinstance(row, np.ndarray) and row.size == 1 else row

    @decorator
    def take_first_value(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        config = get_model_config(wrapped, instance)
        if not config.batching:
            raise PyTritonRuntimeError("The @first_value decorator can only be used with models that support batching.")
        if not looked:
            looked.append(True)
            _tell_unknown(keys, kwargs, config)
        for inputs in (kwargs, *(args[0] if args else ())):
            for name in keys:
                if name in inputs.keys():  # noqa: SIM118 - a request may be any mapping
                    inputs[name] = first(name, inputs[name])
        return wrapped(*args, **kwargs)

    return take_first_value


@decorator
def pad_batch(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Below @batch: repeat the last row, up to the next preferred batch size or the largest batch."""
    if not kwargs:
        raise PyTritonRuntimeError("The @pad_batch decorator must be used after the @batch decorator.")
    config = get_model_config(wrapped, instance)
    preferred = (config.batcher.preferred_batch_size if config.batcher else None) or ()
    size = get_inference_request_batch_size(kwargs)
    wanted = min((each for each in (*preferred, config.max_batch_size) if each >= size), default=size)
    if wanted > size:
        kwargs = {
            name: np.concatenate([array, np.repeat(array[-1:], wanted - size, axis=0)])
            for name, array in kwargs.items()
        }
    return wrapped(*args, **kwargs)


@decorator
def triton_context(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Give the callable its TritonContext as `triton_context`."""
    kwargs[TRITON_CONTEXT_FIELD_NAME] = get_triton_context(wrapped, instance)
    return wrapped(*args, **kwargs)


def _callable_key(key: Any) -> str:
    """The name of a callable; `object.__call__` is the object."""
    if getattr(key, "__name__", "") == "__call__":
        key = getattr(key, "__self__", key)
    return str(key)


def _joined(requests: Sequence[Any]) -> dict[str, Array]:
    names = requests[0].keys()
    if len(requests) == 1:
        return {name: requests[0][name] for name in names}
    if any(request.keys() != names for request in requests):
        raise PyTritonValidationError("Cannot batch requests with different set of inputs keys")
    return {name: np.concatenate([request[name] for request in requests]) for name in names}


def _requests_of(args: tuple[Any, ...], name: str) -> Any:
    """What a decorator gets that stands above @batch and @sample."""
    if not args or not isinstance(args[0], list | tuple) or not args[0]:
        raise PyTritonRuntimeError(
            f"The @{name} decorator takes a list of requests, and got none: @batch and @sample stand below it, and "
            "only one of them."
        )
    return args[0]


def _check_names(name: str, keys: tuple[Any, ...]) -> None:
    for key in keys:
        if not isinstance(key, str):
            text = f'@{name} takes names of inputs as text, not {key!r:.200}: write @{name}("name")'
            raise PyTritonBadParameterError(text)


def _tell_unknown(keys: tuple[str, ...], arguments: Mapping[str, Any], config: TritonModelConfig) -> None:
    """PyTriton skips them without a word."""
    known = [spec.name for spec in config.inputs or ()]
    unknown = sorted(set(keys) - {*known, *arguments})
    if unknown:
        text = "model '%s': @first_value names %s, which is left out, as the inputs of the model are %s"
        log.warning(text, config.model_name, ", ".join(unknown), ", ".join(known))


def _is_traced(request: Any) -> bool:
    return getattr(request, "span", None) is not None


def _check_defaults(defaults: Mapping[str, Any], specs: Mapping[str, TensorSpec]) -> None:
    unknown = sorted(set(defaults) - set(specs))
    if unknown:
        raise PyTritonBadParameterError(f"Could not found {', '.join(unknown)} inputs")
    odd = [f"{name}={value}" for name, value in defaults.items() if not isinstance(value, np.ndarray)]
    if odd:
        raise PyTritonBadParameterError(f"Could not use {', '.join(odd)} defaults as they are not NumPy arrays")
    odd = [
        f"{name}: dtype={value.dtype} expected_dtype={specs[name].dtype}"
        for name, value in defaults.items()
        if not _same_type(value.dtype, specs[name].dtype)
    ]
    if odd:
        raise PyTritonBadParameterError(
            f"Could not use {', '.join(odd)} defaults as they have different than input signature dtypes"
        )
    odd = [
        f"{name}: shape={value.shape} expected_shape={specs[name].shape}"
        for name, value in defaults.items()
        if not _shape_fits(value.shape, specs[name].shape)
    ]
    if odd:
        raise PyTritonBadParameterError(
            f"Could not use {', '.join(odd)} defaults as they have different than input signature shapes"
        )


def _same_type(found: np.dtype[Any], declared: Any) -> bool:
    return found.kind in "OS" if is_text(declared) else found == np.dtype(declared)


def _shape_fits(found: Sequence[int], declared: Sequence[int]) -> bool:
    return len(found) == len(declared) and all(
        wanted in (-1, size) for size, wanted in zip(found, declared, strict=True)
    )
