"""What each kind of field takes in config.pbtxt: numbers at their limits, texts and escapes, names; beside protobuf."""

from __future__ import annotations

import math

import pytest
from google.protobuf import text_format

from tests.config.loading import shown
from tisfast.config import schema
from tisfast.config.error_report import Report
from tisfast.config.pbtxt import parse_text

# One field of each kind: what stands before the value, and behind it.
INT32 = ("max_batch_size: ", "")
INT64 = ("input { dims: ", " }")
UINT32 = ("version_policy { latest { num_versions: ", " } }")
UINT64 = ("dynamic_batching { max_queue_delay_microseconds: ", " }")
FLOAT = ("sequence_batching { direct { minimum_slot_utilization: ", " } }")
DOUBLE = ("model_metrics { metric_control { histogram_options { buckets: ", " } } }")
BOOL = ("input { optional: ", " }")
ENUM = ("instance_group { kind: ", " }")
TEXT = ("name: ", "")
KINDS = {"int32": INT32, "int64": INT64, "uint32": UINT32, "uint64": UINT64, "float": FLOAT, "double": DOUBLE,
         "bool": BOOL, "enum": ENUM, "text": TEXT}  # fmt: skip


def read(kind, value):
    """The message, and the errors in it as they are shown."""
    report = Report("f")
    message = parse_text(value.join(KINDS[kind]), report)
    return message, [shown(error) for error in report.errors]


def leaf(message):
    """The only value that is set in a message."""
    while hasattr(message, "ListFields"):
        ((_, message),) = message.ListFields() or [(None, None)]
        if isinstance(message, (str, int, float)) or message is None:
            break
        if not hasattr(message, "ListFields"):
            (message,) = message
    return message


TAKEN = [
    ("int32", "0x7fffffff", 2**31 - 1), ("int32", "2147483647", 2**31 - 1), ("int32", "-2147483648", -(2**31)),
    ("int32", "-0x80000000", -(2**31)), ("int32", "017", 15), ("int32", "-017", -15), ("int32", "0XaB", 171),
    ("int32", "- 5", -5), ("int32", "-#c\n5", -5), ("int32", "00000000000017", 15),
    ("int64", "9223372036854775807", 2**63 - 1), ("int64", "-9223372036854775808", -(2**63)),
    ("int64", "0x7fffffffffffffff", 2**63 - 1),
    ("uint32", "4294967295", 2**32 - 1), ("uint32", "0xffffffff", 2**32 - 1), ("uint32", "037777777777", 2**32 - 1),
    ("uint64", "18446744073709551615", 2**64 - 1), ("uint64", "0xffffffffffffffff", 2**64 - 1),
    ("float", "1", 1.0), ("float", "1.", 1.0), ("float", ".5", 0.5), ("float", "1.5f", 1.5), ("float", "2F", 2.0),
    ("float", "-1.5e-1", -0.15), ("float", "1e3", 1000.0), ("float", "inf", math.inf), ("float", "-inf", -math.inf),
    ("float", "Infinity", math.inf), ("float", "-INFINITY", -math.inf), ("float", "3.5e38", math.inf),
    ("double", "1e308", 1e308), ("double", "-1E+308", -1e308), ("double", "4.9e-324", 5e-324),
    ("double", "1e999", math.inf),
    ("double", "0.1", 0.1), ("double", "12345678901234567890", 12345678901234567890.0),
    ("bool", "true", True), ("bool", "True", True), ("bool", "t", True), ("bool", "1", True),
    ("bool", "01", True), ("bool", "0x1", True),
    ("enum", "KIND_GPU", 1), ("enum", "3", 3), ("enum", "KIND_MODEL", 3),
    ("text", '"a"', "a"), ("text", "'a'", "a"), ("text", '"a" "b"', "ab"), ("text", "'a'\n# c\n\"b\" 'c'", "abc"),
    ("text", r'"\n\t\r\a\b\f\v\\\'\"\?"', "\n\t\r\a\b\f\v\\'\"?"), ("text", r'"\101\60\7x"', "A0\x07x"),
    ("text", r'"\x41\x4\X4a"', "A\x04J"), ("text", r'"\u00e9\U0001F600"', "é\U0001f600"), ("text", r'"\303\251"', "é"),
    ("text", r'"\xc3\xa9"', "é"), ("text", '"é"', "é"), ("text", r'"\0"', "\0"), ("text", '"#{[<"', "#{[<"),
    ("text", '"\t"', "\t"), ("text", r'"\400"', "\0"),
]  # fmt: skip
NOT_OF_PROTOBUFS_PYTHON = {
    "- 5", "-#c\n5", r'"\X4a"', r'"\x41\x4\X4a"', r'"\400"', '"\t"', "017", "-017", "00000000000017", "037777777777",
    "3.5e38", "01", "0x1", r'"\n\t\r\a\b\f\v\\\'\"\?"', "1e999",
}  # fmt: skip
"""What C++'s reader, which is Triton's, takes, and Python's does not, or otherwise."""


@pytest.mark.parametrize(("kind", "value", "expected"), TAKEN)
def test_each_kind_of_field_takes_its_values(kind, value, expected):
    message, errors = read(kind, value)
    assert not errors
    assert leaf(message) == (pytest.approx(expected) if kind == "float" and math.isfinite(expected) else expected)


@pytest.mark.parametrize(("kind", "value"), [case[:2] for case in TAKEN if case[1] not in NOT_OF_PROTOBUFS_PYTHON])
def test_protobufs_own_reader_takes_the_same(kind, value):
    assert read(kind, value)[0] == text_format.Parse(value.join(KINDS[kind]), schema.model_config())


@pytest.mark.parametrize("value", ["false", "False", "f", "0"])
def test_what_is_false(value):
    message, errors = read("bool", value)
    assert not errors and message.input[0].optional is False


def test_what_is_no_number_is_a_number_of_its_own():
    message, errors = read("float", "nan")
    assert not errors and math.isnan(message.sequence_batching.direct.minimum_slot_utilization)


@pytest.mark.parametrize("value", ["0", "-0", "0x0", "00"])
@pytest.mark.parametrize("kind", ["int32", "int64", "uint32", "uint64"])
def test_nothing_may_be_written_in_many_ways(kind, value):
    message, errors = read(kind, value)
    assert not errors and not leaf(message)


REFUSED = [
    (
        "int32",
        "2147483648",
        "1:17 max_batch_size | 'max_batch_size' is 2147483648, outside int32 | give a number from -2147483648 to "
        "2147483647",
    ),
    (
        "int32",
        "-2147483649",
        "1:17 max_batch_size | 'max_batch_size' is -2147483649, outside int32 | give a number from -2147483648 to "
        "2147483647",
    ),
    (
        "int32",
        "0x80000000",
        "1:17 max_batch_size | 'max_batch_size' is 2147483648, outside int32 | give a number from -2147483648 to "
        "2147483647",
    ),
    ("int32", "8.0", "1:17 max_batch_size | 'max_batch_size' takes an int32, found '8.0'"),
    ("int32", "1e3", "1:17 max_batch_size | 'max_batch_size' takes an int32, found '1e3'"),
    ("int32", "many", "1:17 max_batch_size | 'max_batch_size' takes an int32, found 'many'"),
    (
        "int32",
        '"8"',
        '1:17 max_batch_size | \'max_batch_size\' takes an int32, found string "8" | write max_batch_size: 8',
    ),
    ("int32", '"x"', '1:17 max_batch_size | \'max_batch_size\' takes an int32, found string "x"'),
    ("int32", "-many", "1:17 max_batch_size | 'max_batch_size' takes an int32, found '-many'"),
    ("int32", "09", "1:17 max_batch_size | 'max_batch_size' takes an int32, found '09'"),
    ("int32", "0x", "1:17 max_batch_size | 'max_batch_size' takes an int32, found '0x'"),
    ("int32", "1_000", "1:17 max_batch_size | 'max_batch_size' takes an int32, found '1_000'"),
    ("int32", "true", "1:17 max_batch_size | 'max_batch_size' takes an int32, found 'true'"),
    (
        "int32",
        "-",
        "1:17 max_batch_size | 'max_batch_size' has no value, found the end of the file | give an int32",
    ),
    ("int32", "٣", "1:17 max_batch_size | 'max_batch_size' takes an int32, found '٣'"),
    (
        "int32",
        "- ",
        "1:17 max_batch_size | 'max_batch_size' has no value, found the end of the file | give an int32",
    ),
    ("int32", "", "1:17 max_batch_size | 'max_batch_size' has no value, found the end of the file | give an int32"),
    (
        "int64",
        "9223372036854775808",
        "1:15 input[0].dims[0] | 'dims' is 9223372036854775808, outside int64 | give a number from "
        "-9223372036854775808 to 9223372036854775807",
    ),
    (
        "int64",
        "-9223372036854775809",
        "1:15 input[0].dims[0] | 'dims' is -9223372036854775809, outside int64 | give a number from "
        "-9223372036854775808 to 9223372036854775807",
    ),
    ("int64", "x", "1:15 input[0].dims[0] | 'dims' takes an int64, found 'x'"),
    ("int64", "1.5", "1:15 input[0].dims[0] | 'dims' takes an int64, found '1.5'"),
    (
        "uint32",
        "-1",
        "1:41 version_policy.latest.num_versions | 'num_versions' is -1, outside uint32 | give a number from 0 to "
        "4294967295",
    ),
    (
        "uint32",
        "4294967296",
        "1:41 version_policy.latest.num_versions | 'num_versions' is 4294967296, outside uint32 | give a number "
        "from 0 to 4294967295",
    ),
    ("uint32", "x", "1:41 version_policy.latest.num_versions | 'num_versions' takes a uint32, found 'x'"),
    (
        "uint64",
        "-1",
        "1:50 dynamic_batching.max_queue_delay_microseconds | 'max_queue_delay_microseconds' is -1, outside "
        "uint64 | give a number from 0 to 18446744073709551615",
    ),
    (
        "uint64",
        "18446744073709551616",
        "1:50 dynamic_batching.max_queue_delay_microseconds | 'max_queue_delay_microseconds' is "
        "18446744073709551616, outside uint64 | give a number from 0 to 18446744073709551615",
    ),
    (
        "uint64",
        "0x10000000000000000",
        "1:50 dynamic_batching.max_queue_delay_microseconds | 'max_queue_delay_microseconds' is "
        "18446744073709551616, outside uint64 | give a number from 0 to 18446744073709551615",
    ),
    (
        "float",
        "half",
        "1:56 sequence_batching.direct.minimum_slot_utilization | 'minimum_slot_utilization' takes a number, "
        "found 'half'",
    ),
    (
        "float",
        "0x1",
        "1:56 sequence_batching.direct.minimum_slot_utilization | 'minimum_slot_utilization' takes a number, "
        "found '0x1'",
    ),
    (
        "float",
        "01",
        "1:56 sequence_batching.direct.minimum_slot_utilization | 'minimum_slot_utilization' takes a number, "
        "found '01'",
    ),
    (
        "float",
        "-01.5",
        "1:56 sequence_batching.direct.minimum_slot_utilization | 'minimum_slot_utilization' takes a number, "
        "found '-01.5'",
    ),
    (
        "float",
        '"0.5"',
        '1:56 sequence_batching.direct.minimum_slot_utilization | \'minimum_slot_utilization\' takes a number, '
        'found string "0.5"',
    ),
    (
        "float",
        "1.5.5",
        "1:56 sequence_batching.direct.minimum_slot_utilization | 'minimum_slot_utilization' takes a number, "
        "found '1.5.5'",
    ),
    (
        "float",
        "infinit",
        "1:56 sequence_batching.direct.minimum_slot_utilization | 'minimum_slot_utilization' takes a number, "
        "found 'infinit'",
    ),
    (
        "float",
        "1e",
        "1:56 sequence_batching.direct.minimum_slot_utilization | 'minimum_slot_utilization' takes a number, "
        "found '1e'",
    ),
    (
        "float",
        "-",
        "1:56 sequence_batching.direct.minimum_slot_utilization | 'minimum_slot_utilization' has no value, found "
        "'}' | give a number",
    ),
    (
        "float",
        "00",
        "1:56 sequence_batching.direct.minimum_slot_utilization | 'minimum_slot_utilization' takes a number, "
        "found '00'",
    ),
    (
        "float",
        "1_0",
        "1:56 sequence_batching.direct.minimum_slot_utilization | 'minimum_slot_utilization' takes a number, "
        "found '1_0'",
    ),
    (
        "float",
        "٣",
        "1:56 sequence_batching.direct.minimum_slot_utilization | 'minimum_slot_utilization' takes a number, "
        "found '٣'",
    ),
    ("bool", "TRUE", "1:19 input[0].optional | 'optional' takes true or false, found 'TRUE' | write true"),
    ("bool", "yes", "1:19 input[0].optional | 'optional' takes true or false, found 'yes' | write true"),
    ("bool", "on", "1:19 input[0].optional | 'optional' takes true or false, found 'on' | write true"),
    ("bool", "no", "1:19 input[0].optional | 'optional' takes true or false, found 'no' | write false"),
    ("bool", "OFF", "1:19 input[0].optional | 'optional' takes true or false, found 'OFF' | write false"),
    ("bool", "2", "1:19 input[0].optional | 'optional' takes true or false, found '2'"),
    ("bool", "-1", "1:19 input[0].optional | 'optional' takes true or false, found '-1'"),
    (
        "bool",
        '"true"',
        '1:19 input[0].optional | \'optional\' takes true or false, found string "true" | write true',
    ),
    (
        "bool",
        '"off"',
        '1:19 input[0].optional | \'optional\' takes true or false, found string "off" | write false',
    ),
    ("bool", "x", "1:19 input[0].optional | 'optional' takes true or false, found 'x'"),
    ("bool", "02", "1:19 input[0].optional | 'optional' takes true or false, found '02'"),
    ("enum", "GPU", "1:24 instance_group[0].kind | unknown value 'GPU' for 'kind' | did you mean 'KIND_GPU'?"),
    (
        "enum",
        "kind_gpu",
        "1:24 instance_group[0].kind | unknown value 'kind_gpu' for 'kind' | did you mean 'KIND_GPU'?",
    ),
    (
        "enum",
        "KIND_TPU",
        "1:24 instance_group[0].kind | unknown value 'KIND_TPU' for 'kind' | did you mean 'KIND_GPU'?",
    ),
    (
        "enum",
        "4",
        "1:24 instance_group[0].kind | 'kind' has no value of number 4 | write one of KIND_AUTO, KIND_GPU, "
        "KIND_CPU, KIND_MODEL",
    ),
    (
        "enum",
        "-1",
        "1:24 instance_group[0].kind | 'kind' has no value of number -1 | write one of KIND_AUTO, KIND_GPU, "
        "KIND_CPU, KIND_MODEL",
    ),
    (
        "enum",
        '"KIND_GPU"',
        '1:24 instance_group[0].kind | \'kind\' takes a name without quotes, found string "KIND_GPU" | write '
        'kind: KIND_GPU, without quotes',
    ),
    (
        "enum",
        '"GPU"',
        '1:24 instance_group[0].kind | \'kind\' takes a name without quotes, found string "GPU" | write kind: '
        'KIND_GPU, without quotes',
    ),
    (
        "enum",
        '"x"',
        '1:24 instance_group[0].kind | \'kind\' takes a name without quotes, found string "x" | write one of '
        'KIND_AUTO, KIND_GPU, KIND_CPU, KIND_MODEL',
    ),
    (
        "enum",
        "1.0",
        "1:24 instance_group[0].kind | unknown value '1.0' for 'kind' | possible: KIND_AUTO, KIND_GPU, KIND_CPU, "
        "KIND_MODEL",
    ),
    (
        "enum",
        "0x1",
        "1:24 instance_group[0].kind | unknown value '0x1' for 'kind' | possible: KIND_AUTO, KIND_GPU, KIND_CPU, "
        "KIND_MODEL",
    ),
    ("enum", "KIND_", "1:24 instance_group[0].kind | unknown value 'KIND_' for 'kind' | did you mean 'KIND_GPU'?"),
    ("text", "x", "1:7 name | 'name' takes a string in quotes, found 'x' | write name: \"x\""),
    ("text", "5", "1:7 name | 'name' takes a string in quotes, found '5' | write name: \"5\""),
    ("text", "-5", "1:7 name | 'name' takes a string in quotes, found '-5' | write name: \"-5\""),
    ("text", "true", "1:7 name | 'name' takes a string in quotes, found 'true' | write name: \"true\""),
    ("text", '-"x"', "1:7 name | 'name' takes a string in quotes, found '-\"x\"' | remove the '-'"),
    (
        "text",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "1:7 name | 'name' takes a string in quotes, found 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        "xxx...' | write it in quotes",
    ),
    (
        "text",
        '"open',
        "1:7 name | 'name' takes a string in quotes, found '\"open' | the closing quote is missing on this line",
    ),
    (
        "text",
        "'open",
        "1:7 name | 'name' takes a string in quotes, found ''open' | the closing quote is missing on this line",
    ),
    ("text", '"\\q"', "1:7 name | unknown escape '\\q' in a string | write '\\\\' for a backslash"),
    ("text", '"\\8"', "1:7 name | unknown escape '\\8' in a string | write '\\\\' for a backslash"),
    ("text", '"\\x"', "1:7 name | unknown escape '\\x' in a string | write '\\\\' for a backslash"),
    ("text", '"\\xg"', "1:7 name | unknown escape '\\x' in a string | write '\\\\' for a backslash"),
    ("text", '"\\u12"', "1:7 name | unknown escape '\\u' in a string | write '\\\\' for a backslash"),
    ("text", '"\\U00110000"', "1:7 name | the string holds U+110000, which is no character"),
    ("text", '"\\ud800"', "1:7 name | the string holds U+D800, which is no character"),
    ("text", '"\\udfff"', "1:7 name | the string holds U+DFFF, which is no character"),
    ("text", '"\\377"', "1:7 name | the string is not UTF-8: byte 0xff | write the characters themselves"),
    ("text", '"\\xff"', "1:7 name | the string is not UTF-8: byte 0xff | write the characters themselves"),
    ("text", '"\\303"', "1:7 name | the string is not UTF-8: byte 0xc3 | write the characters themselves"),
    (
        "text",
        '"a" x',
        "1:11 x | unknown key 'x' in the model configuration | possible here: name, platform, backend, runtime, "
        "version_policy, max_batch_size, input, output, batch_input, batch_output, optimization, "
        "dynamic_batching, ...",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "error"), REFUSED)
def test_each_kind_of_field_refuses_other_values(kind, value, error):
    assert read(kind, value)[1] == [error]


@pytest.mark.parametrize("digits", [20, 4300, 5000, 100_000])
@pytest.mark.parametrize("kind", ["int32", "int64", "uint32", "uint64", "enum", "bool", "text"])
def test_a_number_of_many_digits_is_refused_in_few_words(kind, digits):
    (error,) = read(kind, "9" * digits)[1]
    assert len(error) < 5000 and "999999999" in error


@pytest.mark.parametrize("digits", [20, 5000])
def test_a_hexadecimal_number_of_many_digits_is_refused(digits):
    (error,) = read("uint64", "0x" + "f" * digits)[1]
    assert "max_queue_delay_microseconds" in error


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_number_of_many_digits_may_be_a_fraction(digits):
    message, errors = read("double", "0." + "9" * digits)
    assert not errors and leaf(message) == 1.0
