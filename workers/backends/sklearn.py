"""The sklearn backend: estimators and pipelines of scikit-learn, as joblib, pickle or skops have saved them."""

import json
import os
import warnings

from tisfast_worker import dtypes, file_signature, limits
from tisfast_worker.backend import ArrayBackend
from tisfast_worker.backend_options import Options
from tisfast_worker.serve import backend_module
from tisfast_worker.serving_context import current

ARRAY, COLUMNS = "array", "columns"
TABLE = "X"
METHODS = ("predict", "predict_proba", "transform", "decision_function", "predict_log_proba", "score_samples")
COMPLETED = METHODS[:3]


class Backend(ArrayBackend):
    """One estimator.  Each output is a method of it."""

    takes_text = True

    def load(self):
        """Read the file, and what the estimator was fitted on."""
        import numpy  # noqa: PLC0415 - there where this runs

        self._numpy, self._config = numpy, json.loads(self.model.config)
        self._files, looks = backend_module("sklearn_files"), backend_module("sklearn_columns")
        said = Options(self.model.config)
        trusted = [each.strip() for each in said.text("trusted_types").split(",") if each.strip()]
        wanted = said.choice("inputs", ("", ARRAY, COLUMNS), "")
        jobs = said.number("n_jobs", 1)
        path = os.path.join(self.model.version_dir, self.model.file)
        self._name = path
        self._estimator = self._files.read(path, trusted, self.model)
        self._methods = [method for method in METHODS if callable(getattr(self._estimator, method, None))]
        if not self._methods:
            raise self._files.SklearnError(
                f"{self._name} holds a {type(self._estimator).__name__}, which has no method {' or '.join(COMPLETED)}"
            )
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        _set_jobs(self._estimator, jobs)
        self._table = looks.Table(self._estimator)
        self._frames = None
        if self._table.named and looks.needs_frame(self._estimator):
            self._frames = backend_module("sklearn_frames").Frames([each.name for each in self._table.columns])
        self._choose_inputs(wanted)

    def _choose_inputs(self, wanted):
        """One input, or one for each column."""
        given = [item["name"] for item in self._config.get("input", ())]
        columns = self._table.columns
        names = [each.name or f"{TABLE}{at}" for at, each in enumerate(columns)]
        if given:
            self._by_column = len(given) > 1
        else:
            self._by_column = wanted == COLUMNS or (not wanted and not self._table.alike and len(columns) > 1)
        single = given[0] if given and not self._by_column else TABLE
        self._names = names if self._by_column else [single]

    def describe(self):
        """See ArrayBackend.  Types are what the configuration says, where it does: scikit-learn converts."""
        columns, types = self._table.columns, self._types("input")
        if not columns and not self._config.get("input"):
            raise self._files.SklearnError(
                f"{self._name} does not tell how many columns its {type(self._estimator).__name__} has: write 'input'"
            )
        if self._by_column:
            kinds = {name: (each.dtype, 1) for name, each in zip(self._names, columns)}
        else:
            text = any(each.dtype == "BYTES" for each in columns)
            kind = "BYTES" if text else columns[0].dtype if self._table.alike else "FP64"
            kinds = {self._names[0]: (kind, len(columns) or -1)}
        inputs = [(name, types.get(name, kind), [-1, size]) for name, (kind, size) in kinds.items()]
        return {"inputs": inputs, "outputs": self._outputs()}

    def _outputs(self):
        """By the answers to one row of values that the estimator has seen."""
        types, methods = self._types("output"), self._asked_methods()
        try:
            found = {}
            for method in methods:
                found.update(self._call(method, self._sample()))
        except Exception as error:  # of the estimator's own code
            if not types:
                raise self._files.SklearnError(
                    f"{self._name} cannot be asked for a row of values that it has seen, so its outputs are not known: "
                    f"{type(error).__name__}: {error}. Write 'output', named after methods: {', '.join(self._methods)}"
                ) from None
            dims = {item["name"]: item.get("dims", []) for item in self._config["output"]}
            return [(name, kind, [-1, *map(int, dims[name])]) for name, kind in types.items()]
        for name, kind in types.items():
            self._check_conversion(name, kind, found.get(name))
        return [(name, types.get(name, _kind(array)), [-1, *array.shape[1:]]) for name, array in found.items()]

    def _types(self, role):
        """KServe's names of the types that the configuration says, by tensor.  Raises SklearnError."""
        types = _types(self._config, role)
        for name, kind in types.items():
            if kind == "BF16":
                raise self._files.SklearnError(
                    f"unsupported datatype TYPE_BF16 for {role} '{name}' for model '{self.model.name}': scikit-learn "
                    "computes with FP32 and FP64; write one of them"
                )
        return types

    def _check_conversion(self, name, kind, array):
        """Raises SklearnError where the answer to the sample cannot be sent as what the configuration says."""
        if array is None:
            return
        try:
            array.astype(next(dtype for wire, _, _, dtype in dtypes.TYPES.values() if wire == kind))
        except (ValueError, TypeError) as error:
            raise self._files.SklearnError(
                f"output '{name}' of model '{self.model.name}' cannot be {kind}: {error}; write data_type: "
                f"{_config_name(_kind(array))}"
            ) from None

    def _asked_methods(self):
        """Methods that the configuration has outputs of; without outputs, those that most ask for."""
        names = [item["name"] for item in self._config.get("output", ())]
        if not names:
            return [method for method in self._methods if method in COMPLETED]
        for name in names:
            if _method_of(name) not in self._methods:
                raise self._files.SklearnError(
                    f"unexpected inference output '{name}', allowed outputs are: {', '.join(self._methods)}: they are "
                    f"named after methods of the {type(self._estimator).__name__} in {self._name}"
                )
        wanted = {_method_of(name) for name in names}
        return [method for method in self._methods if method in wanted]

    def _sample(self):
        numpy, columns = self._numpy, self._table.columns
        if self._by_column:
            return {name: _row(numpy, [each]) for name, each in zip(self._names, columns)}
        return {self._names[0]: _row(numpy, columns)}

    def complete(self):
        """See ArrayBackend; a batch may have the rows of a table."""
        rows_max = self.model.default_max_batch_size
        if rows_max > 0:
            rows_max = max(rows_max, limits.TABLE_ROWS_MAX)
        return json.dumps(
            file_signature.completed(self._config, file_signature.FileSignature(self.describe()), rows_max)
        )

    def initialize(self):
        """Know which outputs belong to which method."""
        self._wanted = {}
        for spec in self.model.outputs:
            self._wanted.setdefault(_method_of(spec.name), []).append(spec.name)
        self._dtypes = {spec.name: dtypes.TYPES[spec.code][3] for spec in self.model.outputs}
        if self.model.kind == "GPU":
            text = f"model '{self.model.name}' asks for a GPU, and scikit-learn computes on the CPU"
            current().log("WARN", text, "sklearn.py", 0, once="gpu")

    def execute_arrays(self, inputs):
        """See ArrayBackend.  Methods that no client asks for are not called."""
        found = {}
        asked = [each for each in self._wanted.items() if any(map(self.space.wants, each[1]))]
        for left, (method, names) in zip(range(len(asked) - 1, -1, -1), asked):
            # An estimator may write to its table, as StandardScaler(copy=False) does: the next method needs it whole.
            given = {name: array.copy() for name, array in inputs.items()} if left else inputs
            try:
                arrays = self._call(method, given)
                found.update(
                    {name: arrays[name].astype(self._dtypes[name], copy=False) for name in names if name in arrays}
                )
            except (ValueError, TypeError, KeyError) as error:
                raise self._files.SklearnError(f"{method} of model '{self.model.name}': {error}") from error
        return found

    def free(self):
        """See Backend."""
        self._estimator = None

    def _call(self, method, inputs):
        """The arrays that a method returns, by the outputs' names."""
        found = getattr(self._estimator, method)(self._argument(inputs))
        if isinstance(found, list) and found and hasattr(found[0], "shape"):  # one for each target
            return {f"{method}_{at}": self._plain(each) for at, each in enumerate(found)}
        return {method: self._plain(found)}

    def _plain(self, found):
        """A numpy array of two dimensions or more."""
        if hasattr(found, "toarray"):  # sparse
            found = found.toarray()
        array = self._numpy.asarray(found)
        if array.dtype.kind == "U":
            array = array.astype(object)
        return array.reshape(-1, 1) if array.ndim == 1 else array

    def _argument(self, inputs):
        """What the estimator takes, of arrays by the inputs' names."""
        if self._by_column:
            columns = [inputs[name].reshape(-1) for name in self._names]
            if self._frames is not None:
                return self._frames.of_columns(columns)
            text = any(column.dtype.char == "O" for column in columns)
            return self._numpy.column_stack([column.astype(object) for column in columns] if text else columns)
        array = inputs[self._names[0]]
        if self._table.texts:
            return array.reshape(-1)
        return array if self._frames is None else self._frames.of_array(array)


def _method_of(output):
    """predict_proba, of predict_proba_3."""
    name, _, number = output.rpartition("_")
    return name if number.isdigit() else output


def _config_name(kind):
    return next((config for wire, config, _, _ in dtypes.TYPES.values() if wire == kind), kind)


def _types(config, role):
    known = {config_name: name for name, config_name, _, _ in dtypes.TYPES.values()}
    return {item["name"]: known.get(item.get("data_type"), "FP64") for item in config.get(role, ())}


def _kind(array):
    code = dtypes.CODE_BY_CHAR.get(array.dtype.char)
    return str(array.dtype) if code is None else dtypes.TYPES[code][0]


def _row(numpy, columns):
    """One row of what the columns have seen."""
    text = any(each.dtype == "BYTES" for each in columns)
    return numpy.array([[each.sample for each in columns]], object if text else None)


def _set_jobs(estimator, jobs):
    """Threads of the estimator's own: to start them for a few rows takes longer than the rows do."""
    inner = getattr(estimator, "best_estimator_", estimator)
    if not hasattr(inner, "get_params"):
        return
    names = [name for name in inner.get_params(deep=True) if name.split("__")[-1] == "n_jobs"]
    inner.set_params(**dict.fromkeys(names, jobs))
