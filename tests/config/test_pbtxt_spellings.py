"""One message may be written in many ways: all that protobuf's text format allows read back as the same message."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.config.loading import shown
from tests.config.messages import messages
from tisfast.config import scalars, schema
from tisfast.config.error_report import Report
from tisfast.config.pbtxt import parse_text

ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", '"': '\\"', "'": "\\'", "\0": "\\0"}
SPACES = st.sampled_from(["", " ", "\n", "\t ", '  # a comment { [ "\n', "\r\n"])
GAPS = st.sampled_from([" ", "\n", " # x\n", "\t"])


class Writer:
    """Writes a message, and has hypothesis choose among the ways to do so."""

    def __init__(self, draw) -> None:
        self.draw = draw

    def message(self, message) -> str:
        text = ""
        for field in message.DESCRIPTOR.fields:
            values = self.values_of(message, field)
            if len(values) > 1 and schema.map_entry(field) is None and self.draw(st.booleans()):
                text += self.listed(field, values)
            else:
                text += "".join(self.one(field, value) for value in values)
        return text

    def values_of(self, message, field) -> list:
        value = getattr(message, field.name)
        if schema.map_entry(field) is not None:
            return [self.entry(field, key, value[key]) for key in value]
        if schema.is_repeated(field):
            return list(value)
        if field.message_type is not None or field.containing_oneof is not None:
            return [value] if message.HasField(field.name) else []
        return [value] if value or (isinstance(value, float) and str(value) == "-0.0") else []

    def entry(self, field, key, value):
        made = schema.class_of(field.message_type)(key=key)
        if field.message_type.fields_by_name["value"].message_type is None:
            made.value = value
        else:
            made.value.CopyFrom(value)
            made.value.SetInParent()
        return made

    def one(self, field, value) -> str:
        colon = ":" if field.message_type is None or self.draw(st.booleans()) else ""
        separator = self.draw(st.sampled_from([",", ";", ""]))
        gap = self.draw(GAPS) if not colon or not separator else self.draw(SPACES)
        return f"{field.name}{self.draw(SPACES)}{colon}{gap}{self.value(field, value)}{self.draw(GAPS)}{separator} "

    def listed(self, field, values) -> str:
        space = self.draw(SPACES)
        inner = f"{space},{space}".join(self.value(field, value) for value in values)
        colon = ":" if field.message_type is None or self.draw(st.booleans()) else ""
        return f"{field.name}{colon}{space}[{space}{inner}{space}] "

    def value(self, field, value) -> str:
        kind = field.cpp_type
        if kind == scalars.MESSAGE:
            opener, closer = self.draw(st.sampled_from(["{}", "<>"]))
            return f"{opener} {self.message(value)}{closer}"
        if kind == scalars.ENUM:
            named = field.enum_type.values_by_number[value].name
            return self.draw(st.sampled_from([named, str(value)]))
        if kind == scalars.BOOL:
            return self.draw(st.sampled_from(["true", "True", "t", "1"] if value else ["false", "False", "f", "0"]))
        if kind == scalars.STRING:
            return self.text(value)
        if kind in scalars.INTEGER_RANGES:
            sign, digits = "-" * (value < 0), abs(value)
            ways = [str(digits), hex(digits), f"0{digits:o}", hex(digits).replace("0x", "0X")]
            return sign + self.draw(st.sampled_from(ways))
        text = repr(value)
        return self.draw(st.sampled_from([text, text.upper(), text.replace("e", "E")])) if "n" in text else text

    def text(self, value) -> str:
        cut = self.draw(st.integers(0, len(value)))
        if not cut:
            return self.literal(value)
        return f"{self.literal(value[:cut])}{self.draw(SPACES)}{self.literal(value[cut:])}"

    def literal(self, value) -> str:
        quote = self.draw(st.sampled_from("\"'"))
        return quote + "".join(self.character(letter, quote) for letter in value) + quote

    def character(self, letter, quote) -> str:
        if letter == "\0" or (ord(letter) < 128 and self.draw(st.integers(0, 9)) == 0):
            return f"\\{ord(letter):03o}"
        if letter in ESCAPES and (letter in "\n\\" or letter == quote or self.draw(st.booleans())):
            return ESCAPES[letter]
        if self.draw(st.integers(0, 9)) == 0:
            return "".join(f"\\x{byte:02x}" for byte in letter.encode())
        return letter


@st.composite
def spelled(draw):
    message = draw(messages())
    return message, Writer(draw).message(message)


@settings(max_examples=150, deadline=None)
@given(spelled())
def test_every_spelling_of_a_message_is_read_as_that_message(case):
    message, text = case
    report = Report("f")
    assert parse_text(text, report) == message, text
    assert [shown(error) for error in report.errors] == []


@settings(max_examples=100, deadline=None)
@given(spelled(), st.data())
def test_a_piece_cut_out_of_a_text_never_ends_the_reader(case, data):
    _, text = case
    start = data.draw(st.integers(0, len(text)))
    damaged = text[:start] + text[start + data.draw(st.integers(0, 5)) :]
    report = Report("f")
    parse_text(damaged, report)
    lines = damaged.count("\n") + 1
    assert all(1 <= error.line <= lines and error.column >= 1 for error in report.errors)


@settings(max_examples=100, deadline=None)
@given(spelled(), st.sampled_from(["$", "}", "zebra: 1 ", "zebra { a: [ 1, { } ] } ", "'"]))
def test_a_mistake_at_the_end_leaves_what_stands_before_it_as_it_is(case, mistake):
    message, text = case
    report = Report("f")
    assert parse_text(f"{text}\n{mistake}", report) == message
    assert len(report.errors) == 1 and report.errors[0].line == text.count("\n") + 2


ONE = 'input { name: "A" dims: 1 dims: 2 }'


@pytest.mark.parametrize(
    "text",
    [
        'input: { name: "A" dims: [ 1, 2 ] }', 'input < name: "A", dims: 1; dims: 2 >',
        'input [ { name: "A" dims: [ 1, 2 ] } ]', 'input: [ < name: "A" dims: [ 1 ] dims: 2 > ]',
        'input {\n# A\nname: "" "A" dims: 0x1 dims: 02 } ',
        'input { name: "\\101" dims: [ 1, 2 ]; };', 'input [ ] input { name: "A" dims: [ ] dims: [ 1, 2 ] }',
    ],
)  # fmt: skip
def test_ways_to_write_one_input(text):
    report, other = Report("f"), Report("f")
    found = parse_text(text, report)
    assert not report.errors and found == parse_text(ONE, other)
