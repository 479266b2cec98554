"""Sequence batching: controls, states, strategies, and every refusal with its place and hint."""

from __future__ import annotations

import pytest

from tests.config.loading import load, told
from tisfast import limits
from tisfast.config.sequence_controls import ControlInput
from tisfast.config.sequence_settings import SequenceSettings
from tisfast.config.sequence_states import InitialState, State

SEQUENCES = [
    (
        "sequence_batching { oldest { preferred_batch_size: [ 0, -3 ] } }",
        "1:54 sequence_batching.oldest.preferred_batch_size[0] | sequence batching preferred batch size must be "
        "positive for m | it is 0",
        "1:57 sequence_batching.oldest.preferred_batch_size[1] | sequence batching preferred batch size must be "
        "positive for m | it is -3",
    ),
    (
        "sequence_batching { oldest { preferred_batch_size: 2 } }",
        "1:52 sequence_batching.oldest.preferred_batch_size[0] | sequence batching preferred batch size must be "
        "<= max batch size for m | 2 is above max_batch_size 0",
    ),
    (
        "sequence_batching { oldest { max_candidate_sequences: -1 } }",
        "1:30 sequence_batching.oldest.max_candidate_sequences | 'max_candidate_sequences' is -1, below 0 for m | "
        "leave it out for as many as max_batch_size",
    ),
    (
        "sequence_batching { oldest { max_candidate_sequences: 65537 } }",
        "1:30 sequence_batching.oldest.max_candidate_sequences | 'max_candidate_sequences' is 65537, above 65536 "
        "for m | further sequences wait for a place anyway",
    ),
    (
        "sequence_batching { direct { max_queue_delay_microseconds: 4611686018427388 } }",
        "1:30 sequence_batching.direct.max_queue_delay_microseconds | 'max_queue_delay_microseconds' is "
        "4611686018427388, above 4611686018427387 for m | give a smaller one",
    ),
    (
        "sequence_batching { oldest { max_queue_delay_microseconds: 4611686018427388 } }",
        "1:30 sequence_batching.oldest.max_queue_delay_microseconds | 'max_queue_delay_microseconds' is "
        "4611686018427388, above 4611686018427387 for m | give a smaller one",
    ),
    (
        "sequence_batching { direct { minimum_slot_utilization: 1.5 } }",
        "1:30 sequence_batching.direct.minimum_slot_utilization | sequence batching minimum slot utilization must "
        "be in range (0.0, 1.0] for m | it is 1.5",
    ),
    (
        "sequence_batching { direct { minimum_slot_utilization: -0.25 } }",
        "1:30 sequence_batching.direct.minimum_slot_utilization | sequence batching minimum slot utilization must "
        "be in range (0.0, 1.0] for m | it is -0.25",
    ),
    (
        "sequence_batching { direct { minimum_slot_utilization: nan } }",
        "1:30 sequence_batching.direct.minimum_slot_utilization | sequence batching minimum slot utilization must "
        "be in range (0.0, 1.0] for m | it is nan",
    ),
    (
        "max_batch_size: 257 sequence_batching { }",
        "1:1 max_batch_size | max_batch_size 257 is above 256, as many sequences as an instance serves by the "
        "direct strategy, for m | give the model more instances, or use oldest { max_candidate_sequences: N }",
    ),
    (
        "max_batch_size: 257 sequence_batching { direct { } }",
        "1:1 max_batch_size | max_batch_size 257 is above 256, as many sequences as an instance serves by the "
        "direct strategy, for m | give the model more instances, or use oldest { max_candidate_sequences: N }",
    ),
    (
        "model_transaction_policy { decoupled: true } sequence_batching { oldest { preserve_ordering: true } }",
        "1:75 sequence_batching.oldest.preserve_ordering | 'preserve_ordering' is known, but not served yet for "
        "sequences of decoupled models for m | remove it: the order within a sequence is kept",
    ),
    (
        "response_cache { enable: true } sequence_batching { }",
        "1:18 response_cache.enable | Response Cache does not currently support model m with sequence batching "
        "scheduler. Please disable the response cache.",
    ),
    (
        "sequence_batching { control_input { control { int32_false_true: [ 0, 1 ] } } }",
        '1:35 sequence_batching.control_input[0].name | sequence batching control tensor must have a name for m | '
        'add name: "..."',
    ),
    (
        'sequence_batching { control_input { name: "S" control { int32_false_true: [ 0, 1 ] } }\ncontrol_input { '
        'name: "S" control { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } } }',
        "2:17 sequence_batching.control_input[1].name | sequence batching control tensor 'S' is specified for "
        "multiple control kinds for m | give each kind a tensor of its own",
    ),
    (
        'sequence_batching { control_input { name: "S" control [ { int32_false_true: [ 0, 1 ] }, { kind: '
        'CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] } }',
        "1:37 sequence_batching.control_input[0].name | sequence batching control tensor 'S' is specified for "
        "multiple control kinds for m | give each kind a tensor of its own",
    ),
    (
        'sequence_batching { control_input { name: "S" control { int32_false_true: [ 0, 1 ] } }\ncontrol_input { '
        'name: "T" control { int32_false_true: [ 0, 1 ] } } }',
        "2:35 sequence_batching.control_input[1].control[0] | sequence batching specifies multiple "
        "CONTROL_SEQUENCE_START tensors for m | keep one of them",
    ),
    (
        'input { name: "S" data_type: TYPE_FP32 dims: 1 }\nsequence_batching { control_input { name: "S" control '
        '{ int32_false_true: [ 0, 1 ] } } }',
        "2:37 sequence_batching.control_input[0].name | sequence batching control tensor 'S' is an input of its "
        "own for m | remove it from 'input': the server adds it",
    ),
    (
        'sequence_batching { control_input { name: "S" control { } } }',
        "1:55 sequence_batching.control_input[0].control[0] | sequence batching must specify either "
        "'int32_false_true', 'fp32_false_true' or 'bool_false_true' for CONTROL_SEQUENCE_START for m | for "
        "example int32_false_true: [ 0, 1 ]",
    ),
    (
        'sequence_batching { control_input { name: "R" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ '
        '0, 1 ] bool_false_true: [ false, true ] } } }',
        "1:113 sequence_batching.control_input[0].control[0].bool_false_true | sequence batching specifies more "
        "than one from 'int32_false_true', 'fp32_false_true' and 'bool_false_true' for CONTROL_SEQUENCE_READY for "
        "m | keep one",
    ),
    (
        'sequence_batching { control_input { name: "S" control { int32_false_true: 0 } } }',
        "1:57 sequence_batching.control_input[0].control[0].int32_false_true | sequence batching control "
        "'int32_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_START for m | it has 1: what is "
        "false, then what is true",
    ),
    (
        'sequence_batching { control_input { name: "E" control { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, '
        '1, 2 ] } } }',
        "1:84 sequence_batching.control_input[0].control[0].fp32_false_true | sequence batching control "
        "'fp32_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_END for m | it has 3: what is false, "
        "then what is true",
    ),
    (
        'sequence_batching { control_input { name: "C" control { kind: CONTROL_SEQUENCE_CORRID int32_false_true: '
        '[ 0, 1 ] data_type: TYPE_INT32 } } }',
        "1:87 sequence_batching.control_input[0].control[0].int32_false_true | sequence batching must not specify "
        "either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for CONTROL_SEQUENCE_CORRID for m | it "
        "carries the sequence's id",
    ),
    (
        'sequence_batching { control_input { name: "C" control { kind: CONTROL_SEQUENCE_CORRID data_type: '
        'TYPE_FP32 } } }',
        "1:87 sequence_batching.control_input[0].control[0].data_type | unexpected data type for control "
        "CONTROL_SEQUENCE_CORRID for m. Allowed data types are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 "
        "and TYPE_STRING | for example data_type: TYPE_UINT64",
    ),
    (
        'sequence_batching { control_input { name: "C" control { kind: CONTROL_SEQUENCE_CORRID } } }',
        "1:55 sequence_batching.control_input[0].control[0].data_type | unexpected data type for control "
        "CONTROL_SEQUENCE_CORRID for m. Allowed data types are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 "
        "and TYPE_STRING | for example data_type: TYPE_UINT64",
    ),
    (
        'sequence_batching { control_input { name: "C" control { kind: CONTROL_SEQUENCE_CORRID data_type: '
        'TYPE_UINT64 } }\ncontrol_input { name: "D" control { kind: CONTROL_SEQUENCE_CORRID data_type: '
        'TYPE_UINT64 } } }',
        "2:35 sequence_batching.control_input[1].control[0] | sequence batching specifies multiple "
        "CONTROL_SEQUENCE_CORRID tensors for m | keep one of them",
    ),
    (
        "sequence_batching { max_sequence_idle_microseconds: 4611686018427388 }",
        "1:21 sequence_batching.max_sequence_idle_microseconds | 'max_sequence_idle_microseconds' is "
        "4611686018427388, above 4611686018427387 for m | give a smaller one",
    ),
]  # fmt: skip

STATES = [
    (
        'sequence_batching { state { output_name: "O" data_type: TYPE_INT32 dims: 1 } }',
        '1:27 sequence_batching.state[0].input_name | sequence batching state must specify \'input_name\' for m | '
        'add input_name: "..."',
    ),
    (
        'sequence_batching { state { input_name: "I" data_type: TYPE_INT32 dims: 1 } }',
        '1:27 sequence_batching.state[0].output_name | sequence batching state must specify \'output_name\' for m '
        '| add output_name: "..."',
    ),
    (
        'input { name: "A" data_type: TYPE_FP32 dims: 1 } output { name: "B" data_type: TYPE_FP32 dims: 1 '
        '}\nsequence_batching { state { input_name: "A" output_name: "B" data_type: TYPE_INT32 dims: 1 } }',
        "2:29 sequence_batching.state[0].input_name | sequence batching state 'input_name' 'A' is the name of "
        "another tensor for m | give it a name of its own: the server adds both to the model's",
        "2:45 sequence_batching.state[0].output_name | sequence batching state 'output_name' 'B' is the name of "
        "another tensor for m | give it a name of its own: the server adds both to the model's",
    ),
    (
        'sequence_batching { state { input_name: "I" output_name: "O" dims: 1 } }',
        "1:27 sequence_batching.state[0].data_type | sequence batching state 'I' must specify 'data_type' for m | "
        "for example data_type: TYPE_FP32",
    ),
    (
        'sequence_batching { state { input_name: "I" output_name: "O" data_type: TYPE_INT32 } }',
        "1:27 sequence_batching.state[0].dims | sequence batching state 'I' must specify 'dims' for m | for "
        "example dims: [ 4 ], without the batch dimension; -1 where it varies",
    ),
    (
        'sequence_batching { state { input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ 1, 0 ] } }',
        "1:95 sequence_batching.state[0].dims[1] | sequence batching state 'I' dimension must be integer >= 1, or "
        "-1 to indicate a variable-size dimension for m | dims[1] is 0",
    ),
    (
        'sequence_batching { state { input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ -1, 2 ] '
        'use_growable_memory: true } }',
        "1:100 sequence_batching.state[0].use_growable_memory | In order to 'use_growable_memory', you must also "
        "enable 'use_single_buffer' for state input name 'I'. for m | set use_same_buffer_for_input_output: true",
    ),
    (
        'sequence_batching { state { input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ -1, 2 ] '
        'initial_state { name: "x" data_type: TYPE_INT32 dims: [ 3, 2 ] zero_data: true } initial_state { name: '
        '"x" data_type: TYPE_INT32 dims: [ 3, 2 ] zero_data: true } } }',
        "1:195 sequence_batching.state[0].initial_state[1] | initial_state field for state input 'I' must contain "
        "exactly one or zero element. Found '2' elements. | keep one",
    ),
    (
        'sequence_batching { state { input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ -1, 2 ] '
        'initial_state { name: "x" data_type: TYPE_FP32 dims: [ 3, 2 ] zero_data: true } } }',
        "1:126 sequence_batching.state[0].initial_state[0].data_type | The data type used for 'initial_state' "
        "field of state 'I' does not match the state data type. | in model m",
    ),
    (
        'sequence_batching { state { input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ -1, 2 ] '
        'initial_state { data_type: TYPE_INT32 dims: [ 3, 2 ] zero_data: true } } }',
        "1:114 sequence_batching.state[0].initial_state[0].name | Field 'name' must be set when using "
        "initial_state for state input 'I'. | in model m",
    ),
    (
        'sequence_batching { state { input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ -1, 2 ] '
        'initial_state { name: "x" data_type: TYPE_INT32 dims: 3 zero_data: true } } }',
        "1:148 sequence_batching.state[0].initial_state[0].dims | Number of dimensions in 'initial_state' doesn't "
        "match the size of 'state' dimensions for state input 'I'. 1 != 2 | in model m",
    ),
    (
        'sequence_batching { state { input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ -1, 2 ] '
        'initial_state { name: "x" data_type: TYPE_INT32 dims: [ -1, 2 ] zero_data: true } } }',
        "1:148 sequence_batching.state[0].initial_state[0].dims | 'initial_state' field for state input name 'I' "
        "contains variable dimensions. | in model m",
    ),
    (
        'sequence_batching { state { input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ -1, 2 ] '
        'initial_state { name: "x" data_type: TYPE_INT32 dims: [ 3, 4 ] zero_data: true } } }',
        "1:148 sequence_batching.state[0].initial_state[0].dims | 'initial_state' dim for input name 'I' doesn't "
        "match 'state' dim description. 4 != 2 | in model m",
    ),
    (
        'sequence_batching { state { input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ -1, 2 ] '
        'initial_state { name: "x" data_type: TYPE_INT32 dims: [ 3, 2 ] } } }',
        "1:114 sequence_batching.state[0].initial_state[0].data_file | initial_state setting expects state'I' to "
        "have state_data set | in model m",
    ),
    (
        'sequence_batching { state { input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ -1, 2 ] '
        'initial_state { name: "x" data_type: TYPE_INT32 dims: [ 134217729, 2 ] zero_data: true } } }',
        "1:148 sequence_batching.state[0].initial_state[0].dims | 'initial_state' of state input 'I' has "
        "1073741832 bytes, more than 1073741824 | in model m",
    ),
    (
        'sequence_batching { state [ { input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ -1, 2 ] }, '
        '{ input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ -1, 2 ] } ] }',
        "1:107 sequence_batching.state[1].input_name | sequence batching state 'input_name' 'I' is the name of "
        "another tensor for m | give it a name of its own: the server adds both to the model's",
        "1:123 sequence_batching.state[1].output_name | sequence batching state 'output_name' 'O' is the name of "
        "another tensor for m | give it a name of its own: the server adds both to the model's",
    ),
    (
        'sequence_batching { control_input { name: "I" control { int32_false_true: [ 0, 1 ] } } state { '
        'input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ -1, 2 ] } }',
        "1:96 sequence_batching.state[0].input_name | sequence batching state 'input_name' 'I' is the name of "
        "another tensor for m | give it a name of its own: the server adds both to the model's",
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", SEQUENCES)
def test_sequences_that_cannot_be_are_told_with_their_place_and_hint(row):
    text, *expected = row
    assert told(text) == expected


@pytest.mark.parametrize("row", STATES)
def test_states_that_cannot_be_are_told_with_their_place_and_hint(row):
    text, *expected = row
    assert told(text) == expected


def sequences(text, size=8):
    return load(f"max_batch_size: {size} sequence_batching {{ {text} }}").scheduler.sequence


SECOND = 10**9


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("", {}),
        ("direct { }", {}),
        ("max_sequence_idle_microseconds: 5", {"idle_ns": 5000}),
        ("direct { max_queue_delay_microseconds: 7 }", {"delay_ns": 7000}),
        ("direct { minimum_slot_utilization: 0.5 }", {"minimum_slot_utilization": 0.5}),
        ("direct { minimum_slot_utilization: 1 }", {"minimum_slot_utilization": 1.0}),
        ("oldest { }", {"oldest": True, "preferred_batch_sizes": (8,)}),
        ("oldest { max_candidate_sequences: 0 }", {"oldest": True, "preferred_batch_sizes": (8,)}),
        ("oldest { max_candidate_sequences: 3 }", {"oldest": True, "slots": 3, "preferred_batch_sizes": (8,)}),
        ("oldest { preferred_batch_size: [ 4, 2, 4 ] }", {"oldest": True, "preferred_batch_sizes": (2, 4)}),
        (
            "oldest { max_queue_delay_microseconds: 7 preserve_ordering: true }",
            {"oldest": True, "delay_ns": 7000, "preserve_ordering": True, "preferred_batch_sizes": (8,)},
        ),
        ("iterative_sequence: true", {"iterative": True}),
    ],
)
def test_each_field_of_sequence_batching_becomes_a_value(text, changed):
    assert sequences(text) == SequenceSettings(**{"slots": 8, "oldest": False, "idle_ns": SECOND, **changed})


@pytest.mark.parametrize(("text", "size", "slots"), [
    ("", 0, 1),
    ("", limits.SUBMIT_SLOTS, limits.SUBMIT_SLOTS),
    ("oldest { }", 0, 1),
    ("oldest { }", limits.SUBMIT_SLOTS + 1, limits.SUBMIT_SLOTS + 1),
    (f"oldest {{ max_candidate_sequences: {limits.CANDIDATE_SEQUENCES_MAX} }}", 0, limits.CANDIDATE_SEQUENCES_MAX),
])  # fmt: skip
def test_sequences_that_an_instance_serves_at_one_time(text, size, slots):
    assert sequences(text, size).slots == slots


CONTROLS = [
    ("int32_false_true: [ 0, 1 ]", ControlInput("C", "START", 8, 0, 1)),
    ("kind: CONTROL_SEQUENCE_START int32_false_true: [ -2147483648, 2147483647 ]",
     ControlInput("C", "START", 8, -(2**31), 2**31 - 1)),
    ("kind: CONTROL_SEQUENCE_READY fp32_false_true: [ -0.5, 1e3 ]", ControlInput("C", "READY", 11, -0.5, 1000.0)),
    ("kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ]", ControlInput("C", "END", 1, False, True)),
    ("kind: CONTROL_SEQUENCE_END bool_false_true: [ true, false ]", ControlInput("C", "END", 1, True, False)),
    ("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64", ControlInput("C", "CORRID", 5)),
    ("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT64", ControlInput("C", "CORRID", 9)),
    ("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT32", ControlInput("C", "CORRID", 4)),
    ("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT32", ControlInput("C", "CORRID", 8)),
    ("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING", ControlInput("C", "CORRID", 13)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "control"), CONTROLS)
def test_each_control_becomes_a_value(text, control):
    found = sequences(f'control_input {{ name: "C" control {{ {text} }} }}')
    assert found.controls == (control,)
    assert found.correlation_control == (control if control.kind == "CORRID" else None)


def test_controls_keep_the_order_of_the_file():
    named = (("e", "CONTROL_SEQUENCE_END"), ("s", "CONTROL_SEQUENCE_START"), ("r", "CONTROL_SEQUENCE_READY"))
    one = 'control_input {{ name: "{}" control {{ kind: {} int32_false_true: [ 0, 1 ] }} }} '
    text = "".join(one.format(*each) for each in named)
    assert [(each.name, each.kind) for each in sequences(text).controls] == [
        ("e", "END"), ("s", "START"), ("r", "READY"),
    ]  # fmt: skip


STATE = 'input_name: "I" output_name: "O" data_type: {} dims: [ -1, 2 ]'


@pytest.mark.parametrize(
    ("data_type", "more", "state"),
    [
        ("TYPE_FP32", "", State("I", "O", 11, (-1, 2), False, False, None)),
        ("TYPE_FP32", "use_same_buffer_for_input_output: true", State("I", "O", 11, (-1, 2), True, False, None)),
        (
            "TYPE_FP32",
            "use_same_buffer_for_input_output: true use_growable_memory: true",
            State("I", "O", 11, (-1, 2), True, True, None),
        ),
        (
            "TYPE_INT64",
            'initial_state { name: "x" data_type: TYPE_INT64 dims: [ 3, 2 ] zero_data: true }',
            State("I", "O", 9, (-1, 2), False, False, InitialState((3, 2), "", 48)),
        ),
        (
            "TYPE_BOOL",
            'initial_state { name: "x" data_type: TYPE_BOOL dims: [ 3, 2 ] data_file: "start.raw" }',
            State("I", "O", 1, (-1, 2), False, False, InitialState((3, 2), "start.raw", 6)),
        ),
        (
            "TYPE_STRING",
            'initial_state { name: "x" data_type: TYPE_STRING dims: [ 3, 2 ] zero_data: true }',
            State("I", "O", 13, (-1, 2), False, False, InitialState((3, 2), "", 24)),
        ),
        (
            "TYPE_FP32",
            'initial_state { name: "x" data_type: TYPE_FP32 dims: [ 0, 2 ] zero_data: true }',
            State("I", "O", 11, (-1, 2), False, False, InitialState((0, 2), "", 0)),
        ),
    ],
)
def test_each_field_of_a_state_becomes_a_value(data_type, more, state):
    assert sequences(f"state {{ {STATE.format(data_type)} {more} }}").states == (state,)


def test_states_are_bounded():
    most = limits.SEQUENCE_STATES_MAX
    one = 'state {{ input_name: "i{0}" output_name: "o{0}" data_type: TYPE_INT8 dims: 1 }} '
    assert len(sequences("".join(one.format(n) for n in range(most))).states) == most
    (error,) = told(f"sequence_batching {{ {''.join(one.format(n) for n in range(most + 1))} }}")
    assert error == (
        f"1:21 sequence_batching.state | {most + 1} states for m, more than {most} | join some into one tensor"
    )


def test_a_model_without_sequences_has_none_of_this():
    assert load("max_batch_size: 8").scheduler.sequence is None
