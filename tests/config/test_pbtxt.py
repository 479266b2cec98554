"""Reading config.pbtxt: places and hints of everything that can be wrong, and round trips through protobuf's printer."""

# ruff: noqa: E501 - one case, one line
import json
import warnings
from pathlib import Path

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.config.messages import messages
from tisfast import limits
from tisfast.config import schema
from tisfast.config.error_report import Report
from tisfast.config.pbtxt import parse_text

ACCEPTED = json.loads((Path(__file__).parent / "golden" / "accepted.json").read_text())

READABLE = sorted(set(ACCEPTED) - {"dupkey", "bool_01", "negsp"})  # protobuf's Python reader refuses the last two


def errors_of(text):
    report = Report("c")
    parse_text(text, report)
    return [str(error) for error in report.errors]


BROKEN = {
    "unknown key, near": ("max_batch_sise: 8", "c:1:1: unknown key 'max_batch_sise' in the model configuration; did you mean 'max_batch_size'?"),
    "unknown key, synonym": ("input { shape: 4 }", "c:1:9: unknown key 'shape' in 'input'; did you mean 'dims'?"),
    "unknown key, wrong case": ("\nBackend: 'x'", "c:2:1: unknown key 'Backend' in the model configuration; did you mean 'backend'?"),
    "unknown key, misplaced": ("preferred_batch_size: [ 4 ]", "c:1:1: unknown key 'preferred_batch_size' in the model configuration; 'preferred_batch_size' belongs in 'dynamic_batching'"),
    "unknown key, misplaced deeper": ("dynamic_batching { backend: 'x' }", "c:1:20: unknown key 'backend' in 'dynamic_batching'; 'backend' belongs in the model itself, outside of every bracket"),
    "unknown key, far": ("parameters { q: 1 }", "c:1:14: unknown key 'q' in 'parameters'; possible here: key, value"),
    "quoted key": ("'name': 'x'", "c:1:1: a key stands in quotes: 'name'; write it without quotes"),
    "equals sign": ("max_batch_size = 8", "c:1:16: '=' after 'max_batch_size'; write ':'"),
    "no colon": ("max_batch_size 8", "c:1:16: expected ':' after 'max_batch_size', found '8'"),
    "no value": ("max_batch_size:", "c:1:16: 'max_batch_size' has no value, found the end of the file; give an int32"),
    "no value in brackets": ("input { name: }", "c:1:15: 'name' has no value, found '}'; give a string in quotes"),
    "string for int": ('max_batch_size: "8"', "c:1:17: 'max_batch_size' takes an int32, found string \"8\"; write max_batch_size: 8"),
    "float for int": ("max_batch_size: 8.0", "c:1:17: 'max_batch_size' takes an int32, found '8.0'"),
    "word for int": ("max_batch_size: many", "c:1:17: 'max_batch_size' takes an int32, found 'many'"),
    "brackets for int": ("max_batch_size: { a: 1 }", "c:1:17: 'max_batch_size' has no value, found '{'; give an int32"),
    "list for int": ("max_batch_size: [ 8 ]", "c:1:17: 'max_batch_size' has no value, found '['; give an int32"),
    "too large": ("max_batch_size: 2147483648", "c:1:17: 'max_batch_size' is 2147483648, outside int32; give a number from -2147483648 to 2147483647"),
    "negative unsigned": ("version_policy { latest { num_versions: -1 } }", "c:1:41: 'num_versions' is -1, outside uint32; give a number from 0 to 4294967295"),
    "bad octal": ("max_batch_size: 09", "c:1:17: 'max_batch_size' takes an int32, found '09'"),
    "hexadecimal float": ("sequence_batching { control_input { control { fp32_false_true: 0x1 } } }", "c:1:64: 'fp32_false_true' takes a number, found '0x1'"),
    "octal float": ("sequence_batching { control_input { control { fp32_false_true: -01.5 } } }", "c:1:64: 'fp32_false_true' takes a number, found '-01.5'"),
    "int for string": ("name: 5", "c:1:7: 'name' takes a string in quotes, found '5'; write name: \"5\""),
    "word for string": ("name: add_sub", "c:1:7: 'name' takes a string in quotes, found 'add_sub'; write name: \"add_sub\""),
    "open string": ('name: "add_sub\nmax_batch_size: 1', "c:1:7: 'name' takes a string in quotes, found '\"add_sub'; the closing quote is missing on this line"),
    "bad escape": (r'name: "\q"', "c:1:7: unknown escape '\\q' in a string; write '\\\\' for a backslash"),
    "bytes": (r'name: "\377"', "c:1:7: the string is not UTF-8: byte 0xff; write the characters themselves"),
    "surrogate": (r'name: "\ud800"', "c:1:7: the string holds U+D800, which is no character"),
    "bool word": ("input { optional: yes }", "c:1:19: 'optional' takes true or false, found 'yes'; write true"),
    "bool string": ('input { optional: "false" }', "c:1:19: 'optional' takes true or false, found string \"false\"; write false"),
    "enum of another framework": ("input { data_type: TYPE_FLOAT }", "c:1:20: unknown value 'TYPE_FLOAT' for 'data_type'; did you mean 'TYPE_FP32'?"),
    "enum without prefix": ("instance_group { kind: GPU }", "c:1:24: unknown value 'GPU' for 'kind'; did you mean 'KIND_GPU'?"),
    "enum wire name": ("input { data_type: BYTES }", "c:1:20: unknown value 'BYTES' for 'data_type'; did you mean 'TYPE_STRING'?"),
    "enum small letters": ("input { data_type: type_fp32 }", "c:1:20: unknown value 'type_fp32' for 'data_type'; did you mean 'TYPE_FP32'?"),
    "enum in quotes": ('instance_group { kind: "KIND_CPU" }', "c:1:24: 'kind' takes a name without quotes, found string \"KIND_CPU\"; write kind: KIND_CPU, without quotes"),
    "enum nonsense": ("instance_group { kind: XYZZY }", "c:1:24: unknown value 'XYZZY' for 'kind'; possible: KIND_AUTO, KIND_GPU, KIND_CPU, KIND_MODEL"),
    "enum number": ("instance_group { kind: 9 }", "c:1:24: 'kind' has no value of number 9; write one of KIND_AUTO, KIND_GPU, KIND_CPU, KIND_MODEL"),
    "scalar for message": ("dynamic_batching: true", "c:1:19: 'dynamic_batching' takes { ... }, found 'true'"),
    "second value": ('name: "a"\nname: "b"', "c:2:1: 'name' is given a second time, first on line 1; keep one of them"),
    "second choice": ("dynamic_batching { }\nsequence_batching { }", "c:2:1: 'sequence_batching' cannot stand beside 'dynamic_batching' (line 1); keep one of them: they are choices of 'scheduling_choice'"),
    "second map key": ('parameters { key: "a" }\nparameters { key: "a" }', "c:2:12: 'parameters' has the key 'a' twice; keep one of them"),
    "trailing comma": ("input { dims: [ 4, ] }", "c:1:20: the list of 'dims' ends with ','; remove the ','"),
    "missing comma": ("input { dims: [ 4 4 ] }", "c:1:19: expected ',' or ']' in 'dims', found '4'; put a ',' between the items of a list"),
    "open brace": ("input {\n  dims: 4\n", "c:3:1: the '{' of 'input' (line 1, column 7) is not closed: found the end of the file; add '}'"),
    "open bracket": ("input [\n{ dims: 4 }\n", "c:3:1: the '[' of 'input' (line 1, column 7) is not closed: found the end of the file; add ']'"),
    "brace closed by bracket": ("input [ { dims: 4 ] ", "c:1:19: the '{' of 'input' (line 1, column 9) is not closed: found ']'; add '}'"),
    "stray closer": ('name: "x" }', "c:1:11: '}' closes nothing; remove it, or look for a bracket closed too early"),
    "stray character": ("$", "c:1:1: expected a key, found '$'"),
    "stray quote": ('"abc', "c:1:1: expected a key, found '\"abc'; a '\"' is missing"),
    "extension": ("[a.b]: 3", "c:1:1: expected a key, found '['"),
    "json": ('{ "name": "x" }', "c:1:1: expected a key, found '{'; a config.pbtxt is no JSON: leave the outer braces out, and the quotes around keys and names"),
    "a second brace": ("name: 'x' {}", "c:1:11: expected a key, found '{'"),
    "near enum in quotes": ('input { data_type: "FP32" }', "c:1:20: 'data_type' takes a name without quotes, found string \"FP32\"; write data_type: TYPE_FP32, without quotes"),
    "text for a parameter": ('parameters { key: "F" value: "bar" }', "c:1:30: 'value' takes { ... }, found string \"bar\"; write value { string_value: \"bar\" }"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_an_error_has_its_place_and_hint(case):
    text, expected = BROKEN[case]
    assert errors_of(text)[0] == expected


@pytest.mark.parametrize("case", sorted(set(BROKEN) - {"quoted key"}))
def test_one_mistake_is_one_error(case):
    assert len(errors_of(BROKEN[case][0])) == 1


def test_every_error_of_a_file_is_reported():
    text = """
name: add_sub
max_batch_size: "8"
input [
  { name: "A" data_type: TYPE_FLOAT dims: [ 4, "x" ] },
  { nam: "B" }
]
optimisation { }
"""
    assert [(error.split(": ")[0]) for error in errors_of(text)] == [
        "c:2:7", "c:3:17", "c:5:26", "c:5:48", "c:6:5", "c:8:1",
    ]  # fmt: skip


def test_errors_carry_the_key_path():
    report = Report("c")
    parse_text("input [ { dims: 1 }, { dims: [ 1, x ] } ]", report)
    assert report.errors[0].key == "input[1].dims[1]"


def test_errors_are_bounded():
    report = Report("c")
    parse_text("$ " * 1000, report)
    assert len(report.errors) == limits.CONFIG_ERRORS_MAX
    assert report.left_off == 1000 - limits.CONFIG_ERRORS_MAX


def test_a_file_of_absurd_size_is_not_read():
    report = Report("c")
    parse_text("#" * (limits.CONFIG_BYTES_MAX + 1), report)
    assert report.malformed


def test_deep_nesting_of_unknown_keys_is_stepped_over():
    assert len(errors_of("x " + "{ a " * 20000 + "}" * 20000)) == 1


@pytest.mark.parametrize("name", READABLE)
def test_real_files_read_as_protobuf_reads_them(name):
    text = ACCEPTED[name]["pbtxt"]
    report = Report("c")
    ours = parse_text(text, report)
    assert not report.errors
    assert ours == text_format.Parse(text, schema.model_config())


@settings(max_examples=60, deadline=None)
@given(messages(), st.booleans(), st.booleans())
def test_what_protobuf_prints_reads_back_equal(message, one_line, angles):
    text = text_format.MessageToString(message, as_one_line=one_line, pointy_brackets=angles)
    report = Report("c")
    assert parse_text(text, report) == message, text
    assert not report.errors


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["name", "input", "dims", "parameters", "key", "value", "kind", "KIND_CPU", "{", "}", "<", ">", "[", "]", ":", ",", ";", "-", "1", "2.5", "0x1f", '"a"', "'b'", '"', "#", "\n", "$", "=", "9e9", "true"]
        ),
        max_size=40,
    )
)  # fmt: skip
def test_no_text_makes_the_reader_raise(words):
    report = Report("c")
    parse_text(" ".join(words), report)
    lines = " ".join(words).count("\n") + 1
    assert all(1 <= error.line <= lines and error.column >= 1 for error in report.errors)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_characters_are_survived(text):
    errors_of(text)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(READABLE), st.data())
def test_we_accept_no_damaged_file_that_protobuf_refuses(name, data):
    text = ACCEPTED[name]["pbtxt"]
    at = data.draw(st.integers(0, len(text) - 1)) if text else 0
    damaged = text[:at] + text[at + data.draw(st.integers(1, 3)) :]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of escapes that are none
            text_format.Parse(damaged, schema.model_config())
    except text_format.ParseError:
        assert errors_of(damaged)
