"""Settings of the sequence batcher; what Triton refuses is beside its own words in golden/ (test_defaults.py)."""
# ruff: noqa: E501 - one configuration, one line

from __future__ import annotations

import pytest

from tisfast import limits
from tisfast.config.error_report import ConfigErrors
from tisfast.config.model_config import finish, parse
from tisfast.config.sequence_controls import ControlInput
from tisfast.config.sequence_settings import SequenceSettings
from tisfast.config.sequence_states import InitialState, State

MODEL = 'backend: "python" max_batch_size: 8 input { name: "A" data_type: TYPE_FP32 dims: 4 } '


def sequence(text, more=""):
    return finish(parse(f"{MODEL} {more} sequence_batching {{ {text} }}", "f"), "m").scheduler.sequence


def errors_of(text, more=""):
    with pytest.raises(ConfigErrors) as caught:
        sequence(text, more)
    return [error.message for error in caught.value.errors]


def test_without_sequences_there_are_no_settings():
    assert finish(parse(MODEL, "f"), "m").scheduler.sequence is None


def test_the_default_is_a_slot_for_each_place_of_the_batch():
    assert sequence("") == SequenceSettings(slots=8, oldest=False, idle_ns=10**9)


def test_direct():
    found = sequence("max_sequence_idle_microseconds: 5 direct { max_queue_delay_microseconds: 7 minimum_slot_utilization: 0.5 }")
    assert (found.idle_ns, found.delay_ns, found.minimum_slot_utilization) == (5000, 7000, 0.5)


def test_oldest():
    found = sequence("oldest { max_candidate_sequences: 3 preferred_batch_size: [ 4, 2 ] max_queue_delay_microseconds: 7 }")
    assert (found.oldest, found.slots, found.preferred_batch_sizes, found.delay_ns) == (True, 3, (2, 4), 7000)
    assert sequence("oldest { }").slots == 8
    assert sequence("oldest { }").preferred_batch_sizes == (8,)


def test_direct_slots_are_bounded_and_the_bound_is_said_at_its_place():
    text = MODEL.replace("max_batch_size: 8", f"\nmax_batch_size: {limits.SUBMIT_SLOTS + 1}\n")
    with pytest.raises(ConfigErrors) as caught:
        finish(parse(f"{text} sequence_batching {{ direct {{ }} }}", "m/config.pbtxt"), "m")
    (error,) = caught.value.errors
    assert (error.file, error.line, error.key) == ("m/config.pbtxt", 2, "max_batch_size")
    assert "max_batch_size 257 is above 256, as many sequences as an instance serves by the direct strategy" in error.message
    assert finish(parse(f"{text} sequence_batching {{ oldest {{ }} }}", "f"), "m").scheduler.sequence.slots == 257


def test_order_between_the_sequences_of_a_decoupled_model_is_refused_by_name():
    decoupled = "model_transaction_policy { decoupled: true }"
    (message,) = errors_of("oldest { preserve_ordering: true }", decoupled)
    assert message.startswith("'preserve_ordering' is known, but not served yet for sequences of decoupled models for m")
    assert sequence("oldest { preserve_ordering: true }").preserve_ordering


def test_controls():
    assert sequence("""control_input [
        { name: "S" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ -1, 7.5 ] } },
        { name: "C" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } } ]""").controls == (
        ControlInput("S", "START", 11, -1.0, 7.5),
        ControlInput("C", "CORRID", 13),
    )


def test_a_control_is_no_input_of_its_own():
    text = 'control_input { name: "A" control { int32_false_true: [ 0, 1 ] } }'
    assert errors_of(text) == ["sequence batching control tensor 'A' is an input of its own for m"]


def test_states():
    found = sequence("""state {
        input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ -1, 2 ] use_same_buffer_for_input_output: true
        use_growable_memory: true initial_state { name: "x" data_type: TYPE_INT32 dims: [ 3, 2 ] data_file: "y" } }""").states
    assert found == (State("I", "O", 8, (-1, 2), True, True, InitialState((3, 2), "y", 24)),)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ('output_name: "O" data_type: TYPE_INT32 dims: 1', "must specify 'input_name'"),
        ('input_name: "A" output_name: "O" data_type: TYPE_INT32 dims: 1', "is the name of another tensor"),
        ('input_name: "I" output_name: "O" data_type: TYPE_INT32', "must specify 'dims'"),
        ('input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: 0', "dimension must be integer >= 1"),
        ('input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: -1 initial_state { name: "x" '
         'data_type: TYPE_INT32 dims: 99999999999 zero_data: true }', "bytes, more than"),
    ],
)  # fmt: skip
def test_states_that_are_none(state, text):
    assert text in errors_of(f"state {{ {state} }}")[0]


def test_bounds():
    most = limits.CANDIDATE_SEQUENCES_MAX
    assert "above" in errors_of(f"oldest {{ max_candidate_sequences: {most + 1} }}")[0]
    assert "above" in errors_of(f"max_sequence_idle_microseconds: {2**63}")[0]


def test_an_order_that_is_not_kept_is_refused():
    more = "model_transaction_policy { decoupled: true }"
    assert "'preserve_ordering'" in errors_of("oldest { preserve_ordering: true }", more)[0]
    assert sequence("oldest { preserve_ordering: true }").preserve_ordering
