"""Random ModelConfig messages for round trips: any field of any message, set or not."""

from hypothesis import strategies as st

from tisfast.config import scalars, schema

NUMBERS = {
    scalars.INT32: st.integers(-(2**31), 2**31 - 1),
    scalars.INT64: st.integers(-(2**63), 2**63 - 1),
    scalars.UINT32: st.integers(0, 2**32 - 1),
    scalars.UINT64: st.integers(0, 2**64 - 1),
    scalars.FLOAT: st.floats(width=32, allow_nan=False),
    scalars.DOUBLE: st.floats(allow_nan=False),
    scalars.BOOL: st.booleans(),
    scalars.STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
}


@st.composite
def messages(draw, descriptor=None, depth=0):
    """A message of `descriptor` (ModelConfig when None) with a few of its fields set."""
    message = schema.model_config() if descriptor is None else schema.class_of(descriptor)()
    fields = list(message.DESCRIPTOR.fields)
    for field in draw(st.lists(st.sampled_from(fields), max_size=4, unique_by=lambda f: f.name)) if fields else []:
        taken = field.containing_oneof is not None and message.WhichOneof(field.containing_oneof.name)
        if not taken:
            fill(draw, message, field, depth)
    return message


def fill(draw, message, field, depth):
    values = value_of(field.message_type.fields_by_name["value"] if is_map(field) else field, depth)
    if is_map(field):
        entry = schema.class_of(field.message_type)()
        entry.key = draw(value_of(field.message_type.fields_by_name["key"], depth))
        assign(entry, field.message_type.fields_by_name["value"], draw(values))
        schema.put_entry(getattr(message, field.name), field, entry)
    elif schema.is_repeated(field):
        getattr(message, field.name).extend(draw(st.lists(values, max_size=3)))
    else:
        assign(message, field, draw(values))


def assign(message, field, value):
    if field.message_type is None:
        setattr(message, field.name, value)
    else:
        getattr(message, field.name).CopyFrom(value)
        getattr(message, field.name).SetInParent()


def is_map(field):
    return schema.map_entry(field) is not None


def value_of(field, depth):
    if field.message_type is not None:
        return messages(field.message_type, depth + 1)
    if field.cpp_type == scalars.ENUM:
        return st.sampled_from([value.number for value in field.enum_type.values])
    return NUMBERS[field.cpp_type]
