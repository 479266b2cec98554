"""Every deliberate difference between calls of models here and in Triton 2.51 (tests/oracle/bls), with its reason.

A call that is not here must come to the same (test_bls.alike); a call that is here must differ, and both as written:
Triton's, then tisfast's.
"""

# ruff: noqa: E501  (a table: one call, one line)
from __future__ import annotations

from typing import Any, Final

# fmt: off
TABLE: Final[dict[str, dict[str, tuple[Any, Any]]]] = {
    "The code is that of the cause, so that a model that passes the error on answers its own client with it; 2.51 says INTERNAL of everything.": {
        "codes of errors": ({'returned': [1, 1, 1]}, {'returned': [2, 1, 2]}),
    },
    "Newer Triton's responses have parameters; 2.51's have none.": {
        "parameters of an answer": ({'raised': 'AttributeError', 'text': "'c_python_backend_utils.InferenceResponse' object has no attribute 'parameters'"}, {'returned': {'p': 7, 'q': 'r', 's': True}}),
    },
    "The refusal names Python's type, not C++'s.": {
        "parameters": ({'raised': 'TritonModelException', 'text': "Expect N8pybind114dictE, got <class 'str'>"}, {'raised': 'TritonModelException', 'text': "Expect parameters to be a dict, got <class 'str'>"}),
        "parameters that are no JSON": ({'raised': 'TritonModelException', 'text': "Expect N8pybind114dictE, got <class 'str'>"}, {'raised': 'TritonModelException', 'text': "Expect parameters to be a dict, got <class 'str'>"}),
    },
    "A wrong argument is explained in words, not by a C++ signature (as in differences.py).": {
        "inputs of None": ({'raised': 'TypeError', 'text': '__init__(): incompatible constructor arguments.'}, {'raised': 'TypeError', 'text': 'InferenceRequest: inputs must be a list, or another sequence, not None'}),
        "inputs that are no tensors": ({'raised': 'TypeError', 'text': '__init__(): incompatible constructor arguments.'}, {'raised': 'TypeError', 'text': 'InferenceRequest: an item of inputs must be a Tensor, not an object of type str'}),
        "outputs of None": ({'raised': 'TypeError', 'text': '__init__(): incompatible constructor arguments.'}, {'raised': 'TypeError', 'text': 'InferenceRequest: requested_output_names must be a list, or another sequence, not None'}),
        "outputs in a text": ({'raised': 'TypeError', 'text': '__init__(): incompatible constructor arguments.'}, {'raised': 'TypeError', 'text': 'InferenceRequest: requested_output_names must be a list, or another sequence, not an object of type str'}),
        "an output of None": ({'raised': 'TypeError', 'text': '__init__(): incompatible constructor arguments.'}, {'raised': 'TypeError', 'text': "InferenceRequest: an item of requested_output_names must be a str or bytes, not None"}),
        "a model name of None": ({'raised': 'TypeError', 'text': '__init__(): incompatible constructor arguments.'}, {'raised': 'TypeError', 'text': 'InferenceRequest: model_name must be a str or bytes, not None'}),
        "a request id of None": ({'raised': 'TypeError', 'text': '__init__(): incompatible constructor arguments.'}, {'raised': 'TypeError', 'text': 'InferenceRequest: request_id must be a str or bytes, not None'}),
        "a correlation of None": ({'raised': 'TypeError', 'text': '__init__(): incompatible constructor arguments.'}, {'raised': 'TypeError', 'text': 'InferenceRequest: correlation_id must be an integer or a str, not None'}),
        "flags of text": ({'raised': 'TypeError', 'text': '__init__(): incompatible constructor arguments.'}, {'raised': 'TypeError', 'text': 'InferenceRequest: flags must be an integer, not an object of type str'}),
        "ready, a number for a version": ({'raised': 'TypeError', 'text': 'is_model_ready(): incompatible function arguments.'}, {'raised': 'TypeError', 'text': 'is_model_ready(): model_version must be a str or bytes, not an object of type int'}),
    },
    "The rings to the server have one writer, and a forked child that shares them would mix its words with its parent's: refused, with what to do instead.": {
        "in a process": ({'returned': {'outputs': {'B': [1.0, 1.0]}}}, {'returned': {'raised': 'TritonModelException', 'text': 'exec(): this process was forked from instance asker_0, and only the instance itself speaks to the server; ask from there (before the fork, or in a thread), and hand the child what came back'}}),
    },
    "2.51 never gives the last response of a stream that ends in an error, and its client waits for ever.": {
        "a stream that fails": ('silence', {'returned': [{'outputs': {'OUT': [0]}}, {'outputs': {'OUT': [1]}}, {'error': 'trouble'}]}),
    },
    "Newer Triton's iterators can be waited for in coroutines and be cancelled; 2.51's cannot, and hang when they are asked again after their end.": {
        "a stream in a coroutine": ({'raised': 'TypeError', 'text': "'async for' requires an object with __aiter__ method, got c_python_backend_utils.ResponseIterator"}, {'returned': [{'outputs': {'OUT': [0]}}, {'outputs': {'OUT': [1]}}, {'outputs': {'OUT': [2]}}, {'outputs': {}}]}),
        "a stream that is cancelled": ({'raised': 'AttributeError', 'text': "'c_python_backend_utils.ResponseIterator' object has no attribute 'cancel'"}, {'returned': [{'outputs': {'OUT': [0]}}, {'error': 'trouble'}]}),
        "a stream that is cancelled too late": ('silence', {'returned': [{'outputs': {'OUT': [0]}}, {'outputs': {}}]}),
    },
}
# fmt: on

BY_CASE: Final[dict[str, tuple[Any, Any]]] = {name: pair for calls in TABLE.values() for name, pair in calls.items()}
CRASHES: Final = frozenset({"ready by a version that is no number"})
"""What 2.51 dies of now and then, after or in place of its answer: then there is nothing to compare with."""
