"""Read protobuf text (config.pbtxt) into a ModelConfig, noting every error with its place.  Layer 2 (config).

Our own reader instead of protobuf's: that one stops at the first error and forgets where the good keys stood, which the
checks that come later have to say.  It takes what protobuf's C++ reader takes: `:` optional before brackets, `{}` or
`<>`, lists in `[]`, `,` or `;` after a field, adjacent strings joined, `#` comments; and like it refuses a second value
for a single field and two members of a oneof.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from tisfast import limits
from tisfast.config import lexer, scalars, schema, suggest
from tisfast.config.error_report import Hint, KeyPath, Report, owner
from tisfast.config.lexer import Token
from tisfast.config.scalars import BadValue
from tisfast.config.schema import Field

OPENERS: Final = {"{": "}", "<": ">", "[": "]"}
CLOSERS: Final = frozenset(OPENERS.values())
SHOWN_MAX: Final = 60
"""Characters of a word that an error shows."""


def parse_text(text: str, report: Report) -> schema.Message:
    """The ModelConfig in `text`, as far as it could be read; errors and places go to the report."""
    message = schema.model_config()
    if len(text) > limits.CONFIG_BYTES_MAX:
        report.add(f"the file has {len(text)} characters, more than {limits.CONFIG_BYTES_MAX}")
        report.malformed = True
        return message
    _Parser(text, report).fields(message, (), None)
    return message


class _Parser:
    """Recursive descent over the tokens; each step of each loop takes at least one token, so it ends."""

    def __init__(self, text: str, report: Report) -> None:
        self.tokens = lexer.tokens(text)
        self.lines = lexer.Lines(text)
        self.report = report
        self.at = 0
        self.noted: list[KeyPath] = []
        self.root = schema.message_class("ModelConfig").DESCRIPTOR

    # ---- tokens
    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        token = self.tokens[self.at]
        if token.kind != lexer.END:
            self.at += 1
        return token

    def accept(self, symbols: str) -> bool:
        """Take the next token if it is one of these symbols."""
        if self.next.kind == lexer.SYMBOL and self.next.text in symbols:
            self.at += 1
            return True
        return False

    def fail(self, message: str, path: KeyPath, token: Token, hint: Hint = "") -> None:
        self.report.add(message, path, hint=hint, place=self.lines.place(token.offset))

    def note(self, path: KeyPath, token: Token) -> None:
        self.report.places.setdefault(path, self.lines.place(token.offset))
        self.noted.append(path)

    # ---- messages
    def fields(self, message: schema.Message, path: KeyPath, opener: Token | None) -> None:
        """The fields of one message, up to the bracket that closes `opener`, or to the end of the file."""
        seen: dict[str, Token] = {}
        while self.next.kind != lexer.END:
            token = self.next
            if token.kind == lexer.SYMBOL and token.text in CLOSERS:
                if opener is None:
                    self.stray_closer(path)
                    continue
                if token.text == OPENERS[opener.text]:
                    self.take()
                else:
                    self.unclosed(opener, path, token)
                return
            if not self.key_ahead(path):
                continue
            self.field(message, path, seen)
        if opener is not None:
            self.unclosed(opener, path, self.next)

    def stray_closer(self, path: KeyPath) -> None:
        token = self.take()
        self.report.malformed = True
        self.fail(f"{token.shown()} closes nothing", path, token, "remove it, or look for a bracket closed too early")

    def unclosed(self, opener: Token, path: KeyPath, found: Token) -> None:
        self.report.malformed = True
        line, column = self.lines.place(opener.offset)
        what = f"the '{opener.text}' of {owner(path)} (line {line}, column {column}) is not closed"
        self.fail(f"{what}: found {found.shown()}", path, found, f"add '{OPENERS[opener.text]}'")

    def key_ahead(self, path: KeyPath) -> bool:
        """Whether a key comes next; if not, say so and step over what does."""
        token = self.next
        if token.kind == lexer.NAME:
            return True
        following = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        if token.kind == lexer.STRING and following.text == ":":
            self.fail(f"a key stands in quotes: {token.text}", path, token, "write it without quotes")
            return True
        hint = "a '\"' is missing" if token.kind == lexer.BAD and token.text[0] in "\"'" else ""
        if token.text == "{" and self.at == 0:
            hint = "a config.pbtxt is no JSON: leave the outer braces out, and the quotes around keys and names"
        self.fail(f"expected a key, found {token.shown()}", path, token, hint)
        if token.kind != lexer.SYMBOL or token.text not in OPENERS:
            self.take()
            return False
        self.skip_value()
        if self.accept(":"):  # an extension, [name]: value
            self.skip_value()
        return False

    def field(self, message: schema.Message, path: KeyPath, seen: dict[str, Token]) -> None:
        """One `key: value`, whatever its kind, and the separator after it."""
        token = self.take()
        name = token.text.strip("\"'")
        field = message.DESCRIPTOR.fields_by_name.get(name)
        colon = self.colon(name, path)
        if field is None:
            self.unknown(name, message, path, token)
        else:
            self.note((*path, name), token)
            target = self.target(message, field, path, token, seen)
            self.value(target, field, path, colon, token)
        self.accept(",;")

    def colon(self, name: str, path: KeyPath) -> bool:
        if self.next.text == "=":
            self.fail(f"'=' after '{name}'", path, self.next, "write ':'")
            return self.accept("=")
        return self.accept(":")

    def unknown(self, name: str, message: schema.Message, path: KeyPath, token: Token) -> None:
        guess = "" if self.report.full else suggest.near_key(name, message.DESCRIPTOR)
        self.report.broke((*path, guess or name))
        hint = partial(suggest.key_hint, name, message.DESCRIPTOR, self.root)
        self.fail(f"unknown key '{name:.{SHOWN_MAX}}' in {owner(path)}", (*path, name), token, hint)
        self.skip_value()

    def target(
        self, message: schema.Message, field: Field, path: KeyPath, token: Token, seen: dict[str, Token]
    ) -> schema.Message:
        """The target of the value: the message, or a throw-away one when the field already has its only value."""
        if schema.is_repeated(field):
            return message
        slot = field.containing_oneof.name if field.containing_oneof is not None else field.name
        first = seen.setdefault(slot, token)
        if first is token:
            return message
        line = self.lines.place(first.offset).line
        if first.text == field.name:
            self.fail(f"'{field.name}' is given a second time, first on line {line}", (*path, field.name), token,
                      "keep one of them")  # fmt: skip
        else:
            self.fail(f"'{field.name}' cannot stand beside '{first.text}' (line {line})", (*path, field.name), token,
                      f"keep one of them: they are choices of '{slot}'")  # fmt: skip
        return type(message)()

    # ---- values
    def value(self, message: schema.Message, field: Field, path: KeyPath, colon: bool, token: Token) -> None:
        one = self.one_message if field.message_type is not None else self.one_scalar
        if field.message_type is None and not colon:
            self.fail(f"expected ':' after '{field.name}', found {self.next.shown()}", (*path, field.name), self.next)
        if schema.is_repeated(field) and self.next.text == "[":
            self.listed(one, message, field, (*path, field.name))
            return
        index = self.written(message, field) if schema.is_repeated(field) else None
        one(message, field, (*path, field.name) if index is None else (*path, field.name, index))

    @staticmethod
    def written(message: schema.Message, field: Field) -> int:
        return len(getattr(message, field.name))

    def listed(self, one: Any, message: schema.Message, field: Field, path: KeyPath) -> None:
        """`[ value, value ]`.  Commas are asked for, but their lack does not confuse us."""
        opener = self.take()
        index = self.written(message, field)
        while self.next.kind != lexer.END:
            if self.accept("]"):
                return
            if self.next.text in "}>" and self.next.kind == lexer.SYMBOL:
                break
            before = self.at
            one(message, field, (*path, index))
            index += 1
            if self.at == before:
                self.take()
            if self.accept(","):
                if self.next.text == "]":
                    self.fail(f"the list of '{field.name}' ends with ','", path, self.next, "remove the ','")
            elif self.next.text not in ("]", "}", ">") and self.next.kind != lexer.END:
                found = f"expected ',' or ']' in '{field.name}', found {self.next.shown()}"
                self.fail(found, path, self.next, "put a ',' between the items of a list")
        self.unclosed(opener, path, self.next)

    def one_message(self, message: schema.Message, field: Field, path: KeyPath) -> None:
        opener = self.next
        self.note(path, opener)
        if opener.text not in ("{", "<"):
            found = f"'{field.name}' takes {{ ... }}, found {opener.shown()}"
            self.refuse(field, path, BadValue(found, _message_hint(field, opener)))
            self.skip_value()
            return
        self.take()
        if schema.map_entry(field) is not None:
            self.map_entry(message, field, path, opener)
            return
        container = getattr(message, field.name)
        child = container.add() if schema.is_repeated(field) else container
        if not schema.is_repeated(field):
            child.SetInParent()
        self.fields(child, path, opener)

    def map_entry(self, message: schema.Message, field: Field, path: KeyPath, opener: Token) -> None:
        """`{ key: K value: V }` of a map.  Fields of the value have the map's key in their paths."""
        entry = schema.class_of(field.message_type)()
        before = len(self.noted)
        self.fields(entry, path, opener)
        container = getattr(message, field.name)
        place = self.report.places.setdefault
        here = (*path[:-1], entry.key)
        if entry.key in container:
            self.fail(f"'{field.name}' has the key {entry.key!r} twice", path, opener, "keep one of them")
        schema.put_entry(container, field, entry)
        if self.report.is_broken((*path, "value")):
            self.report.broke(here)
        place(here, self.lines.place(opener.offset))
        for noted in self.noted[before:]:
            if noted[len(path)] == "value":
                place((*here, *noted[len(path) + 1 :]), self.report.places[noted])

    def one_scalar(self, message: schema.Message, field: Field, path: KeyPath) -> None:
        token = self.next
        if isinstance(path[-1], int):
            self.note(path, token)
        try:
            value = self.scalar(field)
        except BadValue as error:
            self.refuse(field, path, error, token)
            return
        if schema.is_repeated(field):
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)

    def refuse(self, field: Field, path: KeyPath, error: BadValue, token: Token | None = None) -> None:
        self.report.broke(path)
        self.fail(error.message, path, token or self.next, error.hint)

    def scalar(self, field: Field) -> Any:
        """Take one scalar value.  Raises BadValue, having stepped over what stood there."""
        sign = "-" if self.accept("-") else ""
        token = self.next
        if token.kind in (lexer.END, lexer.SYMBOL):
            if token.text in ("{", "<", "[", "-"):
                self.skip_value()
            raise BadValue(f"'{field.name}' has no value, found {token.shown()}", f"give {scalars.wanted(field)}")
        self.take()
        if field.cpp_type == scalars.STRING:
            return self.string(field, token, sign)
        while token.kind == lexer.STRING and self.next.kind == lexer.STRING:
            self.take()
        return _number(field, token, sign)

    def string(self, field: Field, token: Token, sign: str) -> str:
        if token.kind != lexer.STRING or sign:
            raise BadValue(f"'{field.name}' takes a string in quotes, found {_shown(token, sign)}",
                           _string_hint(field, token, sign))  # fmt: skip
        parts = [scalars.unquoted(token.text)]
        while self.next.kind == lexer.STRING:
            parts.append(scalars.unquoted(self.take().text))
        return "".join(parts)

    def skip_value(self) -> None:
        """Step over one value of whatever kind, brackets and all."""
        depth = 0
        self.accept("-")
        while self.next.kind != lexer.END:
            text = self.next.text if self.next.kind == lexer.SYMBOL else ""
            if text in CLOSERS:
                if depth == 0:
                    return
                depth -= 1
            elif text in OPENERS:
                depth += 1
            kind = self.take().kind
            if depth == 0 and not (kind == lexer.STRING and self.next.kind == lexer.STRING):
                return


def _number(field: Field, token: Token, sign: str) -> Any:
    """A token as the number, bool or enum that the field takes."""
    kind, text = field.cpp_type, token.text
    if kind == scalars.ENUM:
        if token.kind == lexer.NUMBER and text.isdigit():
            return scalars.enum_number(field, sign + text)
        if token.kind == lexer.STRING:
            hint = partial(_enum_hint, field, text[1:-1])
            raise BadValue(f"'{field.name}' takes a name without quotes, found {token.shown()}", hint)
        return scalars.enum_of(field, sign + text)
    if kind == scalars.BOOL:
        if text in scalars.BOOLS and not sign:
            return scalars.BOOLS[text]
        if token.kind == lexer.NUMBER and not sign and text.lower() in ("0x0", "0x1", "00", "01"):
            return text.endswith("1")
        raise BadValue(f"'{field.name}' takes true or false, found {_shown(token, sign)}", _bool_hint(text))
    try:
        if token.kind in (lexer.STRING, lexer.BAD):  # of which int() and float() would take 1_000
            raise ValueError
        if kind in scalars.INTEGER_RANGES:
            return scalars.checked_integer(field, int(sign + "1") * scalars.integer_of(text))
        return float(sign + "1") * scalars.float_of(text)
    except ValueError:
        number = text[1:-1] if token.kind == lexer.STRING and text[1:-1].isdigit() else ""
        raise BadValue(f"'{field.name}' takes {scalars.wanted(field)}, found {_shown(token, sign)}",
                       f"write {field.name}: {number}" if number else "") from None  # fmt: skip


def _enum_hint(field: Field, bare: str) -> str:
    names = field.enum_type.values_by_name
    name = bare if bare in names else suggest.near_enum(bare, names)
    return f"write {field.name}: {name}, without quotes" if name else f"write {scalars.wanted(field)}"


def _string_hint(field: Field, token: Token, sign: str) -> str:
    if token.kind == lexer.BAD and token.text[0] in "\"'":
        return "the closing quote is missing on this line"
    if token.kind == lexer.STRING:
        return f"remove the '{sign}'"
    return f'write {field.name}: "{sign}{token.text}"' if len(token.text) <= SHOWN_MAX else "write it in quotes"


def _message_hint(field: Field, found: Token) -> str:
    """A text in the place of a message whose only field is a text, as that of a parameter."""
    inner = field.message_type.fields
    if found.kind == lexer.STRING and len(inner) == 1 and inner[0].cpp_type == scalars.STRING:
        return f"write {field.name} {{ {inner[0].name}: {found.text} }}"
    return ""


def _shown(token: Token, sign: str) -> str:
    return f"'{sign}{token.text}'" if sign else token.shown()


def _bool_hint(text: str) -> str:
    word = text.strip("\"'").lower()
    if word in ("true", "yes", "on"):
        return "write true"
    return "write false" if word in ("false", "no", "off") else ""
