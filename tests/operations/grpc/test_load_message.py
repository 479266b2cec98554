"""Long contents of a load call are kept from protobuf's parser, and come to the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tisfast import limits, tuning
from tisfast.descriptors import message_class
from tisfast.errors import Internal, TisError, Unsupported
from tisfast.operations.grpc.load_message import load_order, without_files
from tisfast.operations.grpc.methods import parsed
from tisfast.operations.model_control import grpc_load_order
from tisfast.repo.load_override import LoadOrder

LONG = tuning.CONTROL_CUT_BYTES + 1
KIND = "inference.RepositoryModelLoadRequest"


def parse(message):
    return parsed(KIND, message)


def load(name="m", **parameters):
    return message_class(KIND)(model_name=name, parameters=parameters).SerializeToString()


def read_whole(message):
    """As it would be read without cutting."""
    request = parse(message)
    if request.repository_name:
        raise Unsupported("named repository")
    return grpc_load_order(request.model_name, request.parameters)


def test_long_contents_stay_where_they_are():
    files = {f"file:1/{n}": {"bytes_param": bytes([n]) * LONG * n} for n in range(4)}
    message = load(config={"string_param": "{}"}, **files)
    short, cut = without_files(message)
    assert len(short) < LONG and len(cut) == 3
    assert all(view.obj is message for view in cut.values())
    assert load_order(message, parse) == read_whole(message)


def test_of_two_contents_of_one_name_the_last_one_counts():
    message = load(**{"file:1/x": {"bytes_param": b"1" * LONG}}) + load(**{"file:1/x": {"bytes_param": b"2" * LONG}})
    assert load_order(message, parse).files == {"1/x": b"2" * LONG}


def test_a_long_content_of_another_kind_is_refused_as_a_short_one():
    for value in ({"string_param": "x" * LONG}, {"string_param": "x"}):
        with pytest.raises(TisError, match=r"invalid value type for load parameter 'file:1/x'"):
            load_order(load(**{"file:1/x": value}), parse)
    assert load_order(load(config={"string_param": "x" * LONG}), parse) == LoadOrder("m", "x" * LONG)


def test_a_repository_cannot_be_named():
    message = message_class(KIND)(model_name="m", repository_name="r").SerializeToString()
    with pytest.raises(Unsupported, match="'repository_name' specification is not supported"):
        load_order(message, parse)


FILES = {"file:1/x": {"bytes_param": b"x" * LONG}, "file:1/y": {"bytes_param": b"y"}}
WHOLE = load(config={"string_param": "{}"}, **FILES)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(WHOLE)), st.integers(0, 255), st.binary(max_size=12))
def test_what_is_damaged_is_an_order_or_a_clear_error(at, byte, more):
    at = at % 40 if at % 2 else at  # most of what can break is at the start
    for damaged in (WHOLE[:at], WHOLE[:at] + bytes([byte]) + WHOLE[at + 1 :], WHOLE + more):
        try:
            expected = read_whole(damaged)
        except TisError:
            with pytest.raises(TisError):
                load_order(damaged, parse)
        else:
            assert load_order(damaged, parse) == expected


def test_a_message_of_very_many_fields_is_left_to_the_parser():
    message = b"\x20\x01" * (limits.OVERRIDE_FILES_MAX + 100) + load(**{"file:1/x": {"bytes_param": b"x" * LONG}})
    assert without_files(message) == (message, {})
    with pytest.raises(Internal, match="Unable to parse request"):
        load_order(b"\x0f" * LONG, parse)
