"""What an estimator of scikit-learn was fitted on: the columns of its table, and what they hold.

A fitted estimator knows how many columns it had and, where it was fitted on a frame, their names.  What they hold is
told by the transformers that see them first: categories, texts, or else numbers.
"""

TEXT, NUMBER, WHOLE, TRUTH = "BYTES", "FP64", "INT64", "BOOL"


class Column:
    """name: "" where there are none; dtype: KServe's name; sample: a value that the estimator has seen."""

    __slots__ = ("dtype", "name", "sample")

    def __init__(self, name, dtype=NUMBER, sample=0.0):
        """See the class."""
        self.name, self.dtype, self.sample = name, dtype, sample


class Table:
    """columns; texts: the estimator takes a list of texts in place of a table; named: it was fitted on a frame."""

    def __init__(self, estimator):
        """Of a fitted estimator; no columns where it does not tell."""
        names = getattr(estimator, "feature_names_in_", None)
        count = getattr(estimator, "n_features_in_", None)
        self.named = names is not None
        self.texts = not self.named and _reads_texts(estimator)
        if self.texts:
            self.columns = [Column("", TEXT, "a")]
            return
        keys = list(names) if self.named else list(range(count or 0))
        found = _kinds(estimator, keys)
        self.columns = [_column(str(key) if self.named else "", kind) for key, kind in zip(keys, found)]

    @property
    def alike(self):
        """Whether all columns hold the same."""
        return len({column.dtype for column in self.columns}) == 1


def needs_frame(estimator):
    """Whether an estimator that was fitted on a frame may ask for columns by their names."""
    parts = [estimator, *estimator.get_params(deep=True).values()] if hasattr(estimator, "get_params") else [estimator]
    return any(_asks_by_name(part) for part in parts)


def _asks_by_name(part):
    kind = type(part)
    if not hasattr(part, "fit"):
        return False
    return kind.__name__ in ("ColumnTransformer", "FunctionTransformer") or not kind.__module__.startswith("sklearn.")


def _column(name, kind):
    return Column(name) if kind is None else Column(name, *kind)


def _first(estimator):
    """What of a pipeline, search or union sees the table first."""
    for attribute in ("steps", "transformer_list"):
        inner = getattr(estimator, attribute, None)
        if inner:
            return inner[0][1]
    return getattr(estimator, "best_estimator_", None)


def _reads_texts(estimator):
    inner = _first(estimator)
    while inner is not None:
        estimator, inner = inner, _first(inner)
    return hasattr(estimator, "build_analyzer")


def _kinds(estimator, keys):
    """(dtype, sample) of each column, None where nothing is known.  keys: the columns' names or numbers."""
    if estimator is not None and not isinstance(estimator, str):
        for attribute, look in _LOOKS.items():
            inner = getattr(estimator, attribute, None)
            if inner is not None:
                return look(inner, keys)
    return [None] * len(keys)


def _of_categories(categories, keys):
    return [_kind(each) for each in categories] if len(categories) == len(keys) else [None] * len(keys)


def _of_statistics(statistics, keys):
    return _of_categories([[each] for each in statistics], keys)


def _of_texts(_, keys):
    return [(TEXT, "a")] * len(keys)


def _of_union(transformers, keys):
    return _merged([_kinds(inner, keys) for _, inner in transformers])


def _kind(values):
    for value in values:
        if isinstance(value, str):
            return TEXT, value
    value = values[0] if len(values) else 0.0
    name = type(value).__name__
    if name.startswith("bool"):
        return TRUTH, bool(value)
    if name.startswith(("int", "uint")):
        return WHOLE, int(value)
    return NUMBER, float(value)


def _of_transformers(transformers, keys):
    found = dict.fromkeys(keys)
    for _, inner, columns in transformers:
        if isinstance(inner, str) and inner == "drop":
            continue
        picked = _picked(columns, keys)
        for key, kind in zip(picked, _kinds(inner, picked)):
            found[key] = found[key] or kind
    return [found[key] for key in keys]


def _picked(columns, keys):
    """The keys that a ColumnTransformer's choice of columns means: names, numbers, a slice or a mask."""
    if isinstance(columns, slice):
        if isinstance(columns.start, str) or isinstance(columns.stop, str):
            first, last = (keys.index(each) if each in keys else None for each in (columns.start, columns.stop))
            return keys[first : None if last is None else last + 1]
        return keys[columns]
    if isinstance(columns, str) or not hasattr(columns, "__iter__"):
        columns = [columns]
    columns = list(columns)
    if columns and type(columns[0]).__name__.startswith("bool"):
        return [key for key, chosen in zip(keys, columns) if chosen]
    return [each if each in keys and isinstance(each, str) else keys[int(each)] for each in columns]


def _of_steps(steps, keys):
    """By the first step that tells, as long as the table keeps its columns on the way."""
    found = [None] * len(keys)
    for _, step in steps:
        if getattr(step, "n_features_in_", len(keys)) != len(keys):
            break
        found = _merged([found, _kinds(step, keys)])
    return found


def _merged(lists):
    """The first that is known of each column."""
    return [next((kind for kind in kinds if kind is not None), None) for kinds in zip(*lists)]


_LOOKS = {
    "transformers_": _of_transformers, "steps": _of_steps, "transformer_list": _of_union, "best_estimator_": _kinds,
    "build_analyzer": _of_texts, "categories_": _of_categories, "statistics_": _of_statistics,
}  # fmt: skip
"""What is told by which attribute of a fitted estimator."""
