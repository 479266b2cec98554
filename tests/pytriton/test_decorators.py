"""The decorators of PyTriton, alone and in stacks."""

import asyncio
import inspect
import pickle

import numpy as np
import pytest

from tests.pytriton.bound import bind, column, config, requests, values
from tisfast.pytriton.decorated import decorator
from tisfast.pytriton.decorators import (
    ModelConfigDict,
    batch,
    convert_output,
    fill_optionals,
    first_value,
    get_model_config,
    get_triton_context,
    pad_batch,
    sample,
    triton_context,
)
from tisfast.pytriton.exceptions import PyTritonBadParameterError, PyTritonRuntimeError, PyTritonValidationError
from tisfast.pytriton.model_config import DynamicBatcher
from tisfast.pytriton.model_config.triton_model_config import TensorSpec

NOT_BOUND = "Wrapped function or object must bound with triton to get  __triton_context__"
TWO = ({"a": [1, 2], "b": [3, 4]}, {"a": [5], "b": [6]})


@batch
def add(a, b):
    return {"o": a + b}


class Model:
    """All kinds of methods."""

    def __init__(self, factor):
        self.factor = factor

    @batch
    def method(self, a, b):
        return [a * self.factor, b]

    @batch
    def __call__(self, a, b):
        return [a * self.factor, b]

    @batch
    @staticmethod
    def static(a, b):
        return {"o": a, "p": b}

    def __str__(self):
        return f"times {self.factor}"


# ---- batch


def test_batch_joins_requests_and_cuts_results():
    assert values(add(requests(*TWO))) == [{"o": [4, 6]}, {"o": [11]}]


def test_batch_gives_the_input_of_one_request_as_it_is():
    request = requests(TWO[0])[0]
    assert batch(lambda a, b: {"o": a})([request])[0]["o"].base is request["a"]


@pytest.mark.parametrize("kind", [list, tuple])
def test_batch_maps_lists_on_the_outputs_of_the_model(kind):
    f = bind(batch(lambda a, b: kind([a + b, a - b])))
    assert values(f(requests(*TWO))) == [{"o": [4, 6], "p": [-2, -2]}, {"o": [11], "p": [-1]}]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1], "Outputs length different than config outputs length"),
        (np.ones(3), "Unsupported output type <class 'numpy.ndarray'>."),
        (None, "Unsupported output type <class 'NoneType'>."),
    ],
)
def test_what_are_no_outputs_is_refused(returned, message):
    with pytest.raises(PyTritonValidationError) as caught:
        bind(batch(lambda a, b: returned))(requests(*TWO))
    assert caught.value.message == message


def test_a_list_needs_a_bound_callable():
    with pytest.raises(PyTritonValidationError, match=NOT_BOUND):
        batch(lambda a, b: [a, b])(requests(*TWO))


def test_batch_refuses_outputs_of_another_batch():
    with pytest.raises(ValueError, match=r"different batch sizes: o: \(1, 1\). Expected batch size: 3. "):
        batch(lambda a, b: {"o": a[:1], "p": b})(requests(*TWO))


def test_batch_refuses_different_sets_of_inputs():
    with pytest.raises(PyTritonValidationError, match="Cannot batch requests with different set of inputs keys"):
        add(requests({"a": [1]}, {"b": [1]}))


def test_batch_cuts_each_item_of_a_generator():
    @batch
    def stream(a, b):
        yield {"o": a}
        yield {"o": b}

    assert [values(item) for item in stream(requests(*TWO))] == [
        [{"o": [1, 2]}, {"o": [5]}],
        [{"o": [3, 4]}, {"o": [6]}],
    ]


def test_batch_awaits_coroutines_and_asynchronous_generators():
    @batch
    async def once(a, b):
        return {"o": a}

    @batch
    async def stream(a, b):
        yield {"o": a}
        yield {"o": b}

    async def collect():
        return values(await once(requests(*TWO))), [values(item) async for item in stream(requests(*TWO))]

    expected = [{"o": [1, 2]}, {"o": [5]}]
    assert asyncio.run(collect()) == (expected, [expected, [{"o": [3, 4]}, {"o": [6]}]])


# ---- what can be decorated


@pytest.mark.parametrize("of", [lambda model: model.method, lambda model: model])
def test_methods_and_objects_know_their_object(of):
    model = Model(2)
    assert values(bind(of(model))(requests(*TWO))) == [{"o": [2, 4], "p": [3, 4]}, {"o": [10], "p": [6]}]


def test_static_methods_and_bound_methods_can_be_decorated():
    assert values(Model.static(requests(*TWO))) == [{"o": [1, 2], "p": [3, 4]}, {"o": [5], "p": [6]}]

    class Plain:
        def __call__(self, a, b):
            return {"o": b}

    assert values(batch(Plain().__call__)(requests(*TWO))) == [{"o": [3, 4]}, {"o": [6]}]


def test_a_decorated_function_looks_like_what_it_decorates():
    assert (add.__name__, add.__module__, str(inspect.signature(add))) == ("add", __name__, "(a, b)")
    assert str(add).startswith("<function add")
    assert pickle.loads(pickle.dumps(add)) is add


# ---- the context


def test_all_forms_of_a_callable_are_one_key():
    configs = ModelConfigDict()
    model = Model(3)
    configs[model.__call__], configs[add], configs[model.method] = (config(max_batch_size=each) for each in (1, 2, 3))
    assert len(configs) == len(list(configs)) == 3
    assert configs[model].max_batch_size == 1
    assert configs[add.__wrapped__].max_batch_size == 2
    assert configs[model.method].max_batch_size == 3
    del configs[add]
    assert add not in configs


def test_nothing_is_known_of_a_callable_that_is_not_bound():
    for ask in (get_triton_context, get_model_config):
        with pytest.raises(PyTritonValidationError, match=NOT_BOUND):
            ask(lambda: None, None)


def test_each_decorator_of_a_stack_finds_the_configuration():
    seen = []

    @decorator
    def look(wrapped, instance, args, kwargs):
        seen.append(get_model_config(wrapped, instance).model_name)
        return wrapped(*args, **kwargs)

    class Stack:
        @look
        @batch
        @look
        @first_value("b")
        @look
        def f(self, a, b):
            return [a * b, a]

    model = Stack()
    assert values(bind(model.f)(requests({"a": [1], "b": [9]}))) == [{"o": [9], "p": [1]}]
    assert seen == ["m"] * 3


def test_decorators_of_wrapt_take_part():
    wrapt = pytest.importorskip("wrapt")

    @wrapt.decorator
    def look(wrapped, instance, args, kwargs):
        assert get_model_config(wrapped, instance).model_name == "m"
        return wrapped(*args, **kwargs)

    class Stack:
        @look
        @batch
        @look
        def f(self, a, b):
            return [a, b]

    model = Stack()
    assert values(bind(model.f)(requests(TWO[1]))) == [{"o": [5], "p": [6]}]


def test_a_callable_can_ask_for_its_context():
    @batch
    @triton_context
    def f(a, b, triton_context):
        assert triton_context.model_configs[f].model_name == "m"
        return {"o": a}

    assert values(bind(f)(requests(TWO[1]))) == [{"o": [5]}]
    with pytest.raises(PyTritonValidationError, match=NOT_BOUND):
        triton_context(lambda triton_context: None)()


def test_outputs_are_named_by_a_given_configuration():
    assert convert_output((1, 2), model_config=config()) == {"o": 1, "p": 2}


# ---- sample, fill_optionals, first_value, pad_batch


def test_sample_gives_the_first_request():
    f = bind(sample(lambda a, b: [a, b]))
    assert values(f(requests(*TWO))) == [{"o": [1, 2], "p": [3, 4]}]


def test_missing_inputs_are_filled_in_for_the_batch_of_each_request():
    f = bind(fill_optionals(b=np.array([9], np.float32))(lambda requests: [each.data for each in requests]))
    assert values(f(requests({"a": [1, 2]}, {"a": [3], "b": [4]}))) == [
        {"a": [1, 2], "b": [9, 9]},
        {"a": [3], "b": [4]},
    ]


def test_without_batching_defaults_are_filled_in_as_they_are():
    f = bind(fill_optionals(b=np.array([9], np.float32))(lambda requests: requests[0]["b"]), batching=False)
    assert f(requests({"a": [1, 2]})).tolist() == [9]


def test_defaults_of_strings_may_be_of_any_length():
    text = [TensorSpec("a", (1,), np.float32), TensorSpec("b", (1,), bytes, optional=True)]
    f = bind(fill_optionals(b=np.array([b"long"]))(lambda requests: requests[0]["b"]), inputs=text)
    assert f(requests({"a": [1]})).tolist() == [[b"long"]]


@pytest.mark.parametrize(
    ("defaults", "message"),
    [
        ({"y": 1, "x": 2}, "Could not found x, y inputs"),
        ({"b": [1]}, "Could not use b=[1] defaults as they are not NumPy arrays"),
        (
            {"b": np.array([1])},
            "Could not use b: dtype=int64 expected_dtype=<class 'numpy.float32'> defaults as they have different than "
            "input signature dtypes",
        ),
        (
            {"b": np.array([1, 2], np.float32)},
            "Could not use b: shape=(2,) expected_shape=(1,) defaults as they have different than input signature "
            "shapes",
        ),
    ],
)
def test_defaults_that_do_not_fit_are_refused_at_the_call(defaults, message):
    with pytest.raises(PyTritonBadParameterError) as caught:
        bind(fill_optionals(**defaults)(lambda requests: None))(requests({"a": [1]}))
    assert caught.value.message == message


def test_first_values_become_scalars():
    found = bind(
        batch(first_value("b", "missing")(lambda a, b: {"o": a * b, "p": np.full_like(a, isinstance(b, np.float32))}))
    )
    assert values(found(requests({"a": [1, 2], "b": [3, 3]}, {"a": [5], "b": [3]}))) == [
        {"o": [3, 6], "p": [1, 1]},
        {"o": [15], "p": [1]},
    ]


def test_first_values_of_requests_are_their_own():
    f = bind(first_value("b")(lambda requests: [request["b"] for request in requests]))
    assert f(requests({"b": [2, 2]}, {"b": [3]})) == [2, 3]


def test_rows_stay_rows_where_that_is_wished_or_they_are_long():
    assert bind(first_value("b", squeeze_single_values=False)(lambda b: b))(b=column(3, 3)).tolist() == [3]
    assert bind(first_value("b")(lambda b: b))(b=np.array([[1, 2], [1, 2]])).tolist() == [1, 2]


def test_first_values_must_be_equal_if_strict():
    with pytest.raises(PyTritonRuntimeError, match="The values on the 'b' input are not equal. To proceed, either"):
        bind(first_value("b")(lambda b: b))(b=column(3, 4))
    assert bind(first_value("b", strict=False)(lambda b: b))(b=column(3, 4)) == 3


def test_first_values_are_of_batches():
    with pytest.raises(PyTritonRuntimeError, match="can only be used with models that support batching"):
        bind(first_value("b")(lambda b: b), batching=False)(b=column(3))
    with pytest.raises(PyTritonBadParameterError, match="The keys __triton_context__ are not allowed as keys"):
        first_value("__triton_context__")


@pytest.mark.parametrize(
    ("fields", "rows", "expected"),
    [
        ({"max_batch_size": 4}, [1, 2], [1, 2, 2, 2]),
        ({"max_batch_size": 8, "batcher": DynamicBatcher(preferred_batch_size=[6, 3])}, [1, 2], [1, 2, 2]),
        ({"max_batch_size": 4, "batcher": DynamicBatcher(preferred_batch_size=[2])}, [1, 2, 3], [1, 2, 3, 3]),
        ({"max_batch_size": 2}, [1, 2], [1, 2]),
    ],
)
def test_batches_are_padded_and_stay_so(fields, rows, expected):
    assert bind(pad_batch(lambda a: a), **fields)(a=column(*rows)).ravel().tolist() == expected
