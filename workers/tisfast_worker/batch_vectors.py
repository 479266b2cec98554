"""The tensors that `batch_input` in a configuration asks for: made of a batch, not sent by a client."""


def _counts(numpy, shapes):
    return numpy.array([int(numpy.prod(shape)) for shape in shapes])


def _element_count(numpy, shapes, dtype):
    return _counts(numpy, shapes).astype(dtype)


def _accumulated(numpy, shapes, dtype):
    return _counts(numpy, shapes).cumsum().astype(dtype)


def _accumulated_with_zero(numpy, shapes, dtype):
    return numpy.concatenate([[0], _counts(numpy, shapes).cumsum()]).astype(dtype)


def _max_as_shape(numpy, shapes, dtype):
    """Its length is what it says: the largest element count."""
    return numpy.zeros(_counts(numpy, shapes).max(), dtype)


def _item_shape(numpy, shapes, dtype):
    """One row for each entry of each request's batch: its dimensions, without the batch's."""
    return numpy.array([shape[1:] for shape in shapes for _ in range(shape[0])]).astype(dtype)


def _item_shape_flat(numpy, shapes, dtype):
    return _item_shape(numpy, shapes, dtype).reshape(-1)


VECTORS = {
    "BATCH_ELEMENT_COUNT": _element_count,
    "BATCH_ACCUMULATED_ELEMENT_COUNT": _accumulated,
    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO": _accumulated_with_zero,
    "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE": _max_as_shape,
    "BATCH_ITEM_SHAPE": _item_shape,
    "BATCH_ITEM_SHAPE_FLATTEN": _item_shape_flat,
}
