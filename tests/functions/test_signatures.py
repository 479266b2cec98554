"""What a function takes and gives, read off its hints, a sample call or Tensors; and what says too little."""

import asyncio
import functools
import json
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, NamedTuple, Optional, TypedDict

import numpy as np
import pytest
from numpy.typing import NDArray

import tisfast
from tisfast import Shape, Tensor
from tisfast.errors import BadRequest
from tisfast.functions.options import execution_of
from tisfast.functions.signature import Given, name_of, read_signature

F = np.float32
Rows = Annotated[NDArray[F], Shape(-1, 4)]
HINTS = [
    (NDArray[F], "FP32", (-1,), "array"),
    (NDArray[np.bool_], "BOOL", (-1,), "array"),
    (NDArray[np.str_], "BYTES", (-1,), "text_array"),
    (NDArray[np.object_], "BYTES", (-1,), "array"),
    (np.ndarray[tuple[int, int], np.dtype[np.int8]], "INT8", (-1, -1), "array"),
    (Rows, "FP32", (-1, 4), "array"),
    (Annotated[NDArray[F], (2, 3)], "FP32", (2, 3), "array"),
    (Annotated[NDArray[F], "a comment"], "FP32", (-1,), "array"),
    (float, "FP64", (1,), "item"),
    (int, "INT64", (1,), "item"),
    (bool, "BOOL", (1,), "item"),
    (bytes, "BYTES", (1,), "item"),
    (str, "BYTES", (1,), "text"),
    (np.float32, "FP32", (1,), "numpy_item"),
    (list[str], "BYTES", (-1,), "texts"),
    (list[int], "INT64", (-1,), "list"),
    (Optional[float], "FP64", (1,), "item"),  # noqa: UP045 - people write it
    (NDArray[F] | None, "FP32", (-1,), "array"),
    (Rows | None, "FP32", (-1, 4), "array"),
    (Annotated[NDArray[F] | None, Shape(-1, 4)], "FP32", (-1, 4), "array"),
]


def read(function, *, batched=False, **given):
    return read_signature(function, "f", Given(**given), batched=batched)


def told(slots):
    return [(slot.name, slot.datatype.wire, slot.dims) for slot in slots]


@pytest.mark.parametrize(("hint", "datatype", "dims", "kind"), HINTS, ids=[str(each[0]) for each in HINTS])
def test_a_hint_tells_type_and_shape(hint, datatype, dims, kind):
    def f(x, y=None):
        return x

    f.__annotations__ = {"x": hint, "y": hint, "return": NDArray[F]}
    found = read(f)
    assert [(s.name, s.datatype.wire, s.dims, s.kind, s.optional) for s in found.inputs] == [
        ("x", datatype, dims, kind, False),
        ("y", datatype, dims, kind, True),
    ]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="this Python has no `type` statement")
def test_an_alias_is_what_it_stands_for():
    names = {"NDArray": NDArray, "np": np, "Annotated": Annotated, "Shape": Shape, "Iterator": Iterator}
    exec(  # other Pythons cannot read it
        "type Array[A, B] = np.ndarray[B, np.dtype[A]]\n"
        "type Floats = NDArray[np.float32]\n"
        "type Rows = Annotated[Floats | None, Shape(-1, 4)]\n"
        "type Answers = Iterator[Floats]\n"
        "def f(a: Array[np.int8, tuple[int, int]], b: Floats, c: Rows = None) -> Answers: ...",
        names,
    )
    found = read(names["f"])
    assert told(found.inputs) == [("a", "INT8", (-1, -1)), ("b", "FP32", (-1,)), ("c", "FP32", (-1, 4))]
    assert found.streams and told(found.outputs) == [("output", "FP32", (-1,))]


class Pair(NamedTuple):
    low: NDArray[F]
    high: int


class Named(TypedDict):
    score: float
    label: str


@pytest.mark.parametrize(
    ("hint", "outputs"),
    [
        (NDArray[F], [("output", "FP32", (-1,))]),
        (tuple[NDArray[F], float], [("output_0", "FP32", (-1,)), ("output_1", "FP64", (1,))]),
        (Pair, [("low", "FP32", (-1,)), ("high", "INT64", (1,))]),
        (Named, [("score", "FP64", (1,)), ("label", "BYTES", (1,))]),
    ],
)
def test_what_is_returned_may_be_several_outputs(hint, outputs):
    def f(x):
        return x

    f.__annotations__ = {"x": float, "return": hint}
    assert told(read(f).outputs) == outputs


def stream(n: int) -> Iterator[str]:
    yield "x"


async def async_stream(n: int) -> AsyncIterator[str]:
    yield "x"


async def later(n: int) -> int:
    return n


def test_generators_stream_and_coroutines_are_known():
    found = [read(each) for each in (stream, async_stream, later)]
    assert [(each.streams, each.asynchronous) for each in found] == [(True, False), (True, True), (False, True)]
    assert [told(each.outputs)[0][1] for each in found] == ["BYTES", "BYTES", "INT64"]
    with pytest.raises(BadRequest, match="any number of answers .* batch="):
        read(stream, batched=True)


def bare(x, y: NDArray[F]):
    return x


def half(x: NDArray[F]):
    return x


def vague(x: NDArray[Any]) -> NDArray[F]:
    return x


def no_names(*values: NDArray[F]) -> NDArray[F]:
    return values[0]


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (bare, "argument 'x'"),
        (half, "what it returns"),
        (vague, "argument 'x'"),
        (max, "its arguments"),
        (no_names, "its arguments"),
    ],
)
def test_a_signature_that_says_too_little_is_told_with_three_ways(function, what):
    with pytest.raises(BadRequest) as error:
        read(function)
    text = str(error.value)
    assert f"dtype and shape of {what}" in text
    assert "NDArray[np.float32]" in text and "sample=" in text and "inputs=[Tensor(" in text


def test_a_sample_call_tells_the_rest():
    def f(x, name, values):
        return {"y": x.astype(np.float64), "n": len(values), "name": name}

    found = read(f, sample=(np.zeros((3, 4), np.int16), "a", [1.5]))
    assert told(found.inputs) == [("x", "INT16", (-1, 4)), ("name", "BYTES", (1,)), ("values", "FP64", (-1,))]
    assert told(found.outputs) == [("y", "FP64", (-1, 4)), ("n", "INT64", (1,)), ("name", "BYTES", (1,))]


def test_samples_have_rows_where_there_are_batches():
    found = read(lambda x, t: (x.sum(1), t), sample={"x": np.zeros((3, 4), F), "t": ["a", "b", "c"]}, batched=True)
    assert told(found.inputs) == [("x", "FP32", (4,)), ("t", "BYTES", (1,))]
    assert told(found.outputs) == [("output_0", "FP32", (1,)), ("output_1", "BYTES", (1,))]


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "inside of an event loop"])
def test_samples_of_coroutines_and_generators_are_called_once(inside):
    calls = []

    async def f(x):
        calls.append(x)
        return x

    async def g(x):
        calls.append(x)
        yield x

    def h(x):
        calls.append(x)
        yield x

    async def beside():
        return [read(each, sample=(np.zeros(2, F),)) for each in (f, g, h)]

    found = asyncio.run(beside()) if inside else [read(each, sample=(np.zeros(2, F),)) for each in (f, g, h)]
    assert [told(each.outputs) for each in found] == [[("output", "FP32", (-1,))]] * 3
    assert len(calls) == 3


def test_a_sample_that_raises_raises():
    with pytest.raises(ZeroDivisionError):
        read(lambda x: x / 0, sample=(1,))


async def yields_nothing(x):
    if x > 100:
        yield x


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: None, "output 'output' of the sample is None, of which no tensor can be made"),
        (lambda x: {"y": object()}, "output 'y' of the sample is <object .*, of which no tensor can be made"),
        (lambda x: [[1, 2], [3]], r"output 'output' of the sample is \[\[1, 2\], \[3\]\], of which no array"),
        (lambda x: {3: x}, "names an output 3; names are of type str"),
        (lambda x: iter(()), "output 'output' of the sample is <"),
        (yields_nothing, "yields nothing for the sample"),
    ],
)
def test_a_sample_that_gives_no_tensor_is_refused(function, words):
    with pytest.raises(BadRequest, match=f"function 'f'.*{words}"):
        read(function, sample=(1,))


def test_a_sample_that_is_no_tensor_is_refused():
    with pytest.raises(BadRequest, match="argument 'x' of the sample is None, of which no tensor can be made"):
        read(half, sample=(None,))


def test_arguments_of_any_name_are_to_be_named():
    def f(**values: NDArray[F]) -> NDArray[F]:
        return values["x"]

    with pytest.raises(BadRequest, match=r"of its arguments: \*\*kwargs says no names. Say it in one of three ways"):
        read(f)
    with pytest.raises(BadRequest, match="others by name only, .* give a dictionary"):
        read(f, sample=(np.zeros(2, F),))
    assert told(read(f, sample={"x": np.zeros(2, F)}).inputs) == [("x", "FP32", (-1,))]
    assert told(read(f, inputs=[Tensor("x")]).inputs) == [("x", "FP32", (-1,))]


def test_tensors_go_before_everything():
    found = read(
        half, inputs=[Tensor(dtype=np.int32, shape=(2, -1))], outputs=[Tensor("a", str, ()), Tensor(dtype=bytes)]
    )
    assert told(found.inputs) == [("x", "INT32", (2, -1))]
    assert told(found.outputs) == [("a", "BYTES", (1,)), ("output_1", "BYTES", (-1,))]


def test_functions_without_names_are_called_in_order():
    found = read(max, inputs=[Tensor(), Tensor()], outputs=[Tensor()])
    assert [each.name for each in found.inputs] == ["input_0", "input_1"] and found.positional


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"inputs": ["x"]}, "no tisfast.Tensor"),
        ({"inputs": Tensor("x")}, "inputs must be a list of tisfast.Tensor, not Tensor"),
        ({"inputs": [Tensor("x")], "outputs": 3}, "outputs must be a list of tisfast.Tensor, not 3"),
        ({"inputs": [Tensor("x", F, 3)]}, r"3 is no shape: give the sizes of its dimensions, as in \(-1, 4\)"),
        ({"inputs": [Tensor("x", optional=True)]}, "input 'x' is optional, and the argument 'x' has no default"),
        ({"inputs": [Tensor("x")], "outputs": [Tensor("y", optional=True)]}, "output 'y' is optional"),
        ({"inputs": [Tensor("x", np.complex64)]}, "no data type that is served"),
        ({"inputs": [Tensor("x", F, (0,))]}, "0 is no size of a dimension"),
        ({"inputs": [Tensor("x"), Tensor("x")], "outputs": [Tensor()]}, "two inputs with the name 'x'"),
        ({"inputs": [Tensor("x")], "outputs": []}, "has no outputs"),
        ({"sample": (1, 2)}, "takes 1 arguments, and the sample has 2"),
    ],
)
def test_what_is_wrong_is_named(given, words):
    with pytest.raises(BadRequest, match=words):
        read(half, **given)


def needs(a, b, c=1):
    return a


def in_order(a, b, /, c=1):
    return a


def anything(a, **more):
    return a


@pytest.mark.parametrize(
    ("function", "names", "words"),
    [
        (needs, ["zzz"], "has no argument 'zzz' for the input of that name; its arguments are: a, b, c"),
        (needs, ["a"], "needs its argument 'b', and there is no input for it; its arguments are: a, b, c"),
        (needs, ["", "", "", ""], "has no argument 'input_3'"),
        (in_order, ["x"], "needs its argument 'b'"),
        (in_order, ["x", "y", "z"], "has no argument 'z'"),
        (anything, ["b"], "needs its argument 'a'"),
    ],
)
def test_inputs_that_a_function_cannot_be_called_with_are_refused(function, names, words):
    with pytest.raises(BadRequest, match=f"function 'f' {words}"):
        read(function, inputs=[Tensor(name) for name in names], outputs=[Tensor("out")])
    if all(names):
        with pytest.raises(BadRequest, match=f"function 'f' {words}"):
            read(function, sample=dict.fromkeys(names, 1.0), outputs=[Tensor("out")])


def test_an_input_that_may_be_left_out_is_the_last_where_inputs_have_no_names():
    found = read(max, inputs=[Tensor("a"), Tensor("b", optional=True)], outputs=[Tensor("out")])
    assert [slot.optional for slot in found.inputs] == [False, True]
    with pytest.raises(BadRequest, match="input 'a' may be left out, and inputs go over in order"):
        read(max, inputs=[Tensor("a", optional=True), Tensor("b")], outputs=[Tensor("out")])


@pytest.mark.parametrize(
    ("function", "names"), [(needs, ["b", "a"]), (in_order, ["x", "y"]), (in_order, ["a", "b"]), (anything, ["a", "q"])]
)
def test_inputs_that_a_function_takes_are_served(function, names):
    found = read(function, inputs=[Tensor(name) for name in names], outputs=[Tensor("out")])
    assert [slot.name for slot in found.inputs] == names


def test_one_value_does_not_go_with_batches():
    def f(x: float) -> float:
        return x

    with pytest.raises(BadRequest, match=r"argument 'x' is one float.*list\[float\]"):
        read(f, batched=True)
    with pytest.raises(BadRequest, match="argument 'x' of the sample is one value"):
        read(lambda x: x, sample=(1.0,), batched=True)


def test_a_hint_of_what_is_not_there_is_told():
    def f(x):
        return x

    f.__annotations__ = {"x": "Nowhere"}
    with pytest.raises(BadRequest, match="Nowhere"):
        read(f)


class Model:
    def predict(self, x: NDArray[F]) -> NDArray[F]:
        return x

    def __call__(self, x: float) -> float:
        return x


def test_names_and_hints_of_methods_objects_and_partial_functions():
    def f(x: NDArray[F], by: float) -> NDArray[F]:
        return x * by

    assert name_of(f) == "f" and name_of(Model) == "Model" and name_of(Model()) == "Model"
    assert name_of(Model().predict) == "Model" and name_of(lambda x: x) == "function"
    assert name_of(functools.partial(f, by=2.0)) == "f"
    assert told(read(Model()).inputs) == [("x", "FP64", (1,))]
    assert told(read(Model().predict).inputs) == [("x", "FP32", (-1,))]
    found = read(functools.partial(f, by=2.0)).inputs
    assert [(each.name, each.optional) for each in found] == [("x", False), ("by", True)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": -1}, "batch must be a whole number from 0 to 65536, not -1"),
        ({"batch": 1.5}, "batch must be a whole number"),
        ({"delay": 0.1}, "give batch="),
        ({"batch": 2, "delay": -1}, "delay must be a number of seconds"),
        ({"instances": 2, "processes": 2}, "not both"),
        ({"processes": 65}, "processes must be a whole number from 0 to 64, not 65"),
        ({"processes": True}, "processes must be a whole number from 0 to 64, not True"),
        ({"batch": "x"}, "batch must be a whole number from 0 to 65536, not 'x'"),
        ({"batch": 2, "delay": float("nan")}, "delay must be a number of seconds from 0 to 4611686018, not nan"),
        ({"batch": 2, "delay": 1e10}, "delay must be a number of seconds from 0 to 4611686018, not 10000000000"),
        ({"batch": 2, "delay": True}, "delay must be a number of seconds from 0 to 4611686018, not True"),
        ({"environment": 3}, "environment must be a path, or a list of requirements as text, not 3"),
        ({"environment": [3]}, r"environment must be a path, or a list of requirements as text, not \[3\]"),
    ],
)
def test_options_that_cannot_be(options, words):
    with pytest.raises(BadRequest, match=words):
        execution_of(options, "function 'f'")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"host": 3}, "host must be an address as text, like '127.0.0.1', not 3"),
        ({"http_port": None}, "http_port must be a whole number from 0 to 65535, not None"),
        ({"grpc_port": True}, "grpc_port must be a whole number from 0 to 65535, not True"),
        ({"metrics_port": 70000}, "metrics_port must be a whole number from 0 to 65535, not 70000"),
        ({"log": "yes"}, "log must be True or False, not 'yes'"),
        ({"flags": "--log-verbose=1"}, "flags must be a list of text, .* not '--log-verbose=1'"),
        ({"environ": {"A": 3}}, "environ: the value of A must be text without zeros, not 3"),
        ({"environ": {"A=": "3"}}, "environ has 'A=', which is no name of a variable"),
        ({"name": "a/b"}, "'a/b' is no name of a model: .* no '/'"),
        ({"name": "x" * 256}, "is no name of a model: it has 1 to 255 bytes"),
    ],
)
def test_options_of_the_server_that_cannot_be(options, words):
    with pytest.raises(BadRequest, match=words):
        tisfast.serve(half, **options)


def test_an_option_that_nobody_knows_is_named():
    with pytest.raises(BadRequest, match="tisfast.serve has no option 'bacth'; there are: .*batch"):
        tisfast.serve(half, bacth=3)
    with pytest.raises(BadRequest, match="tisfast.export has no option 'http_port'"):
        tisfast.export(half, "/nowhere", http_port=1)


def test_the_configuration():
    found = read(half, outputs=[Tensor("y")], batched=True).config(8, 0.25, 2)
    assert json.loads(json.dumps(found)) == {
        "backend": "python",
        "max_batch_size": 8,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [-1]}],
        "instance_group": [{"count": 2, "kind": "KIND_CPU"}],
        "dynamic_batching": {"max_queue_delay_microseconds": 250000},
    }


def test_the_package_has_what_it_says_and_nothing_else():
    assert all(getattr(tisfast, name) for name in tisfast.__all__)
    with pytest.raises(AttributeError, match="no attribute 'server'"):
        _ = tisfast.server


def only_in_order(a: float, b: float = 1.0, c: float = 2.0, /) -> float:
    return a + b + c


def with_a_name_beside(a: float, /, *, b: float = 1.0) -> float:
    return a + b


def last_optional(a: float, b: float = 1.0, /) -> float:
    return a + b


def test_arguments_without_names_go_in_order_or_are_refused():
    assert read_signature(last_optional, "f", Given(None, None, None), batched=False).positional
    with pytest.raises(BadRequest, match="argument 'b' may be left out, and arguments behind it take no name"):
        read_signature(only_in_order, "f", Given(None, None, None), batched=False)
    with pytest.raises(BadRequest, match="arguments that take no name beside 'b'"):
        read_signature(with_a_name_beside, "f", Given(None, None, None), batched=False)
    swapped = [Tensor("b", np.float64, (1,)), Tensor("a", np.float64, (1,))]
    with pytest.raises(BadRequest, match="takes its arguments in order"):
        read_signature(last_optional, "f", Given(swapped, None, None), batched=False)
