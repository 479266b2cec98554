"""What a function takes and gives: read off its hints, a sample call, or Tensors.  Calls nothing but a sample."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tisfast.errors import BadRequest
from tisfast.functions.hints import answer_hint, body_of, hints_of, parts_of, slot_of_hint
from tisfast.functions.tensors import Shape, Slot, Tensor, checked_tensors, slot_of_tensor, slot_of_value

__all__ = ["Shape", "Signature", "Tensor", "checked_name", "name_of", "read_signature"]

OUTPUT_KINDS: Final = {"numpy_item": "item", "text": "item", "texts": "list"}


class Signature(NamedTuple):
    """How a function is called.  batched: with a batch dimension; positional: inputs go in order, not by name."""

    name: str
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    batched: bool
    streams: bool
    asynchronous: bool
    positional: bool

    def call(self) -> dict[str, Any]:
        """For tisfast_worker.function_model.FunctionModel; as JSON, too."""
        return {
            "title": f"function '{self.name}'",
            "inputs": [{"name": slot.name, "kind": slot.kind} for slot in self.inputs],
            "outputs": [
                {
                    "name": slot.name, "dtype": slot.datatype.numpy, "dims": list(slot.dims),
                    "kind": OUTPUT_KINDS.get(slot.kind, slot.kind),
                }
                for slot in self.outputs
            ],
            "batched": self.batched,
            "streams": self.streams,
            "async": self.asynchronous,
            "positional": self.positional,
            "python": "{}.{}".format(*sys.version_info[:2]),
        }  # fmt: skip

    def config(self, batch_size: int, delay_seconds: float, instances: int) -> dict[str, Any]:
        """The ModelConfig."""
        found: dict[str, Any] = {
            "backend": "python",
            "max_batch_size": batch_size,
            "input": [
                {**_tensor(slot), **({"optional": True} if slot.optional else {})} for slot in self.inputs
            ],
            "output": [_tensor(slot) for slot in self.outputs],
            "instance_group": [{"count": instances, "kind": "KIND_CPU"}],
        }  # fmt: skip
        if batch_size:
            found["dynamic_batching"] = {"max_queue_delay_microseconds": round(delay_seconds * 1e6)}
        if self.streams:
            found["model_transaction_policy"] = {"decoupled": True}
        return found


class Given(NamedTuple):
    """What the caller said about inputs and outputs; None for nothing."""

    inputs: Sequence[Tensor] | None = None
    outputs: Sequence[Tensor] | None = None
    sample: Any = None


def name_of(function: Any) -> str:
    """The name of a function, class or object for its model."""
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    if getattr(function, "__name__", "") in ("predict", "__call__") and owner is not None:
        function = owner
    name = getattr(function, "__name__", "") or type(function).__name__
    return "function" if name == "<lambda>" else str(name)


def checked_name(name: Any) -> str:
    """A name that a program gives.  Raises BadRequest."""
    if not isinstance(name, str):
        raise BadRequest(f"the name of a function must be a str, not {name!r:.200}")
    from tisfast.repo.layout import GIVEN_NAME, is_given_name  # noqa: PLC0415 - only where one is given

    if name and not is_given_name(name):
        raise BadRequest(f"{name!r:.300} is no name of a model: {GIVEN_NAME}")
    return name


def read_signature(function: Callable[..., Any], name: str, given: Given, *, batched: bool) -> Signature:
    """How `function` is called.  Raises BadRequest that names the argument, and what a sample call raises."""
    title = f"function '{name}'"
    parameters = _parameters(function)
    hints = hints_of(function, title)
    hint, streams = answer_hint(hints.get("return"))
    body = body_of(function)
    streams = streams or inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body)
    asynchronous = inspect.isasyncgenfunction(body) or inspect.iscoroutinefunction(body)
    if streams and batched:
        raise BadRequest(f"{title} gives any number of answers to one request, which does not go with batch=")
    arguments = _sample_arguments(given.sample, parameters, title, parameters is not None and _any_names(function))
    if given.inputs is not None:
        inputs = _given_inputs(given.inputs, parameters, title)
    elif arguments is not None:
        inputs = [
            slot_of_value(value, key, f"{title}, argument '{key}' of the sample", batched=batched)
            for key, value in arguments.items()
        ]
    else:
        inputs = _hinted_inputs(parameters, hints, title, batched, parameters is not None and _any_names(function))
    _check_arguments(function, parameters, [each.name for each in inputs], title)
    positional = _is_positional(parameters, [each.name for each in inputs], title)
    if positional and any(each.optional for each in inputs[:-1]):
        first = next(each.name for each in inputs if each.optional)
        raise BadRequest(
            f"{title}: input '{first}' may be left out, and inputs go over in order: those behind it would take its "
            "place. Only the last one can be optional"
        )
    if given.outputs is not None:
        outputs = _given_outputs(given.outputs, title)
    elif arguments is not None:
        outputs = _sampled_outputs(_called(function, arguments, positional, title), title, batched)
    else:
        outputs = _hinted_outputs(hint, title, batched)
    _check_names([*inputs], title, "inputs")
    _check_names([*outputs], title, "outputs")
    return Signature(name, tuple(inputs), tuple(outputs), batched, streams, asynchronous, positional)


# ---- inputs


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """By name; None where nobody knows them."""
    try:
        found = inspect.signature(function).parameters
    except (ValueError, TypeError):
        return None
    if any(each.kind is each.VAR_POSITIONAL for each in found.values()):
        return None
    return {name: each for name, each in found.items() if each.kind is not each.VAR_KEYWORD}


def _any_names(function: Callable[..., Any]) -> bool:
    """Whether it has **kwargs."""
    return any(each.kind is each.VAR_KEYWORD for each in inspect.signature(function).parameters.values())


def _given_inputs(tensors: Sequence[Tensor], parameters: Mapping[str, Any] | None, title: str) -> list[Slot]:
    names = list(parameters or ())
    slots = []
    for at, tensor in enumerate(checked_tensors(tensors, title, "inputs")):
        name = getattr(tensor, "name", "") or (names[at] if at < len(names) else f"input_{at}")
        optional = (
            parameters is not None and name in parameters and parameters[name].default is not inspect.Parameter.empty
        )
        slot = slot_of_tensor(tensor, name, f"{title}, input {at}")
        if slot.optional and parameters is not None and name in parameters and not optional:
            raise BadRequest(
                f"{title}: input '{name}' is optional, and the argument '{name}' has no default for requests without "
                f"it: give it one, {name}=None"
            )
        slots.append(slot._replace(optional=slot.optional or optional))
    return slots


def _hinted_inputs(
    parameters: Mapping[str, inspect.Parameter] | None,
    hints: Mapping[str, Any],
    title: str,
    batched: bool,
    any_names: bool,
) -> list[Slot]:
    """any_names: it has **kwargs, too."""
    if parameters is None:
        raise _too_little(title, "its arguments, which have no names to read", "x")
    if any_names and not parameters:
        raise _too_little(title, "its arguments: **kwargs says no names", "x")
    slots = []
    for name, parameter in parameters.items():
        where = f"{title}, argument '{name}'"
        slot = slot_of_hint(hints.get(name), name, where, batched=batched)
        optional = parameter.default is not inspect.Parameter.empty
        if slot is None and optional and name not in hints:
            continue  # a setting of the function's own
        if slot is None:
            raise _too_little(title, f"argument '{name}'", name)
        slots.append(slot._replace(optional=optional))
    return slots


def _sample_arguments(
    sample: Any, parameters: Mapping[str, inspect.Parameter] | None, title: str, any_names: bool
) -> dict[str, Any] | None:
    if sample is None:
        return None
    if isinstance(sample, dict):
        odd = [key for key in sample if not isinstance(key, str)]
        if odd:
            raise BadRequest(f"{title}: the sample names an argument {odd[0]!r}; names are of type str")
        return sample
    values = sample if isinstance(sample, tuple) else (sample,)
    names = list(parameters) if parameters is not None else [f"input_{at}" for at in range(len(values))]
    if len(values) > len(names) and any_names:
        raise BadRequest(
            f"{title} takes {len(names)} arguments in order and others by name only, and the sample has "
            f"{len(values)} in order: give a dictionary, sample={{'x': ...}}"
        )
    if len(values) > len(names):
        raise BadRequest(f"{title} takes {len(names)} arguments, and the sample has {len(values)}")
    return dict(zip(names, values, strict=False))


# ---- outputs


def _given_outputs(tensors: Sequence[Tensor], title: str) -> list[Slot]:
    given = checked_tensors(tensors, title, "outputs")
    default = "output" if len(given) == 1 else "output_{}"
    slots = [
        slot_of_tensor(tensor, getattr(tensor, "name", "") or default.format(at), f"{title}, output {at}")
        for at, tensor in enumerate(given)
    ]
    optional = [slot.name for slot in slots if slot.optional]
    if optional:
        raise BadRequest(f"{title}: output '{optional[0]}' is optional, which only inputs can be")
    return slots


def _hinted_outputs(hint: Any, title: str, batched: bool) -> list[Slot]:
    slots = []
    for name, part in parts_of(hint).items():
        slot = slot_of_hint(part, name, f"{title}, output '{name}'", batched=batched)
        if slot is None:
            raise _too_little(title, "what it returns" if name == "output" else f"output '{name}'", "x")
        slots.append(slot)
    return slots


def _sampled_outputs(result: Any, title: str, batched: bool) -> list[Slot]:
    if hasattr(result, "_asdict"):
        result = result._asdict()
    if isinstance(result, tuple):
        result = {f"output_{at}": value for at, value in enumerate(result)}
    if not isinstance(result, dict):
        result = {"output": result}
    odd = [name for name in result if not isinstance(name, str)]
    if odd:
        raise BadRequest(f"{title}: the sample's call names an output {odd[0]!r}; names are of type str")
    return [
        slot_of_value(value, name, f"{title}, output '{name}' of the sample", batched=batched)
        for name, value in result.items()
    ]


def _check_arguments(
    function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter] | None, inputs: list[str], title: str
) -> None:
    """Raises BadRequest where the function cannot be called with the inputs."""
    if parameters is None:
        return
    ordered = [name for name, each in parameters.items() if each.kind is each.POSITIONAL_ONLY]
    if ordered and not any(name in parameters for name in inputs):
        inputs = [*ordered[: len(inputs)], *inputs[len(ordered) :]]  # in order, as these have no names for a caller
    listed = ", ".join(parameters) or "none"
    unknown = [name for name in inputs if name not in parameters]
    if unknown and not _any_names(function):
        raise BadRequest(
            f"{title} has no argument '{unknown[0]}' for the input of that name; its arguments are: {listed}"
        )
    missing = [name for name, each in parameters.items() if each.default is each.empty and name not in inputs]
    if missing:
        raise BadRequest(
            f"{title} needs its argument '{missing[0]}', and there is no input for it; its arguments are: {listed}"
        )


def _is_positional(parameters: Mapping[str, inspect.Parameter] | None, inputs: list[str], title: str) -> bool:
    """Whether inputs are handed over in order.  Raises BadRequest where order alone does not say which is which."""
    if parameters is None or not any(each.kind is each.POSITIONAL_ONLY for each in parameters.values()):
        return parameters is None
    used = [each for each in parameters.values() if each.name in inputs]
    named = [each.name for each in used if each.kind is each.KEYWORD_ONLY]
    optional = [each.name for each in used if each.default is not each.empty]
    if named:
        raise BadRequest(
            f"{title} has arguments that take no name beside '{named[0]}', which needs its name: inputs go over "
            "in one way. Leave out the '/' of its signature"
        )
    if optional and used[-1].name != optional[0]:
        raise BadRequest(
            f"{title}: argument '{optional[0]}' may be left out, and arguments behind it take no name: they would take "
            "its place. Leave out the '/' of its signature"
        )
    if used and inputs != [each.name for each in used]:
        raise BadRequest(
            f"{title} takes its arguments in order, {', '.join(parameters)}; the inputs are {', '.join(inputs)}"
        )
    return True


def _called(function: Callable[..., Any], arguments: Mapping[str, Any], positional: bool, title: str) -> Any:
    """What the sample call returns, of a generator its first answer.  Raises BadRequest where there is none."""
    try:
        return _result(function, arguments, positional)
    except (_NoAnswer, StopIteration):
        raise BadRequest(
            f"{title} yields nothing for the sample, so its outputs are not known: give another sample, or outputs="
        ) from None


class _NoAnswer(Exception):
    """An asynchronous generator has yielded nothing."""


def _result(function: Callable[..., Any], arguments: Mapping[str, Any], positional: bool) -> Any:
    result = function(*arguments.values()) if positional else function(**arguments)
    if inspect.isasyncgen(result):
        return _completed(_first(result))
    if inspect.iscoroutine(result):
        return _completed(result)
    if inspect.isgenerator(result):
        try:
            return next(result)
        finally:
            result.close()
    return result


async def _first(answers: Any) -> Any:
    try:
        return await anext(answers)
    except StopAsyncIteration:
        raise _NoAnswer from None
    finally:
        await answers.aclose()


def _completed(coroutine: Any) -> Any:
    """Its result.  In a thread: this one may run an event loop."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.extend((True, asyncio.run(coroutine)))
        except BaseException as error:
            found.extend((False, error))

    thread = threading.Thread(target=run, name="tisfast-sample")
    thread.start()
    thread.join()
    if not found[0]:
        raise found[1]
    return found[1]


# ---- errors


def _check_names(slots: Sequence[Slot], title: str, what: str) -> None:
    names = [slot.name for slot in slots]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise BadRequest(f"{title} has two {what} with the name '{twice[0]}'")
    if not slots and what == "outputs":
        raise BadRequest(f"{title} has no outputs: a model answers something")


def _too_little(title: str, what: str, name: str) -> BadRequest:
    return BadRequest(
        f"{title}: its signature does not say dtype and shape of {what}. Say it in one of three ways:\n"
        f"  def f({name}: NDArray[np.float32]) -> NDArray[np.float32]       (numpy.typing; Annotated[..., Shape(-1, "
        "4)], float, int, str, bool, bytes and lists of these, too)\n"
        f"  tisfast.serve(f, sample=(np.zeros(4, np.float32),))       (f is called once)\n"
        f'  tisfast.serve(f, inputs=[Tensor("{name}", np.float32, (-1,))], outputs=[Tensor("y", np.float32, (-1,))])'
    )


def _tensor(slot: Slot) -> dict[str, Any]:
    return {"name": slot.name, "data_type": slot.datatype.config, "dims": list(slot.dims)}


def call_text(signature: Signature) -> str:
    """`Signature.call` as JSON."""
    return json.dumps(signature.call(), indent=1) + "\n"
