"""The fil backend: forests of XGBoost, LightGBM, scikit-learn and treelite, with Triton's parameters.

Scores come from treelite's own library, or from the package that wrote the model where a parameter asks for it: to
import that takes 2 s and 70 MB of each instance.
"""

import json
import os

from tisfast_worker import file_signature, limits
from tisfast_worker.backend import ArrayBackend, framework
from tisfast_worker.backend_options import OptionError, Options
from tisfast_worker.serve import backend_module
from tisfast_worker.serving_context import current

INPUT, OUTPUT, CONTRIBUTIONS = "input__0", "output__0", "treeshap_output"
TREELITE, AUTO, PACKAGE = ENGINES = ("treelite", "auto", "package")
_BINARY, _MULTI_CLASS = 0, 2  # treelite's task types
_TUNING = (
    "algo", "threads_per_tree", "storage_type", "blocks_per_sm", "layout", "chunk_size", "transfer_threshold",
    "use_experimental_optimizations",
)  # fmt: skip


class ForestSettings:
    """What the configuration's parameters say.  is_classifier, threads: None where they do not."""

    def __init__(self, config, kinds):
        """`kinds`: values of model_type.  Raises OptionError."""
        said = Options(config)
        self.kind = said.text("model_type")
        if self.kind and self.kind not in kinds:
            raise OptionError(
                f"{self.kind} not recognized as a valid serialization format. parameter 'model_type' can be "
                f"{', '.join(kinds)}"
            )
        self.is_classifier = said.flag("is_classifier")
        old = said.text("output_class")  # its name before 25.09
        if old in ("true", "false"):
            self.is_classifier = old == "true"
        self.predict_proba = said.flag("predict_proba", False)
        self.threshold = said.fraction("threshold", 0.5)
        self.allow_unknown_field = said.flag("xgboost_allow_unknown_field", False)
        threads = said.number("cpu_nthread", -1)
        self.threads = threads if threads > 0 else None
        self.engine = said.choice("engine", ENGINES, TREELITE)
        self.said = said.said
        self.without_effect = said.present(_TUNING)


class Backend(ArrayBackend):
    """One forest."""

    def load(self):
        """Read the file, with treelite."""
        import numpy  # noqa: PLC0415 - there where this runs

        self._numpy = numpy
        self._files = files = backend_module("fil_files")
        kinds = [files.LEGACY, files.JSON, files.UBJ, files.LIGHTGBM, files.CHECKPOINT]
        self._settings = settings = ForestSettings(self.model.config, kinds)
        self._treelite = treelite = framework("treelite")
        self._path = self._find()
        self._kind = files.agreed_kind(self._path, settings.kind)
        self._forest = files.read(treelite, self._path, self._kind, settings.allow_unknown_field)
        self._package = None
        self._look_into()

    def _find(self):
        path = os.path.join(self.model.version_dir, self.model.file)
        if not self.model.file or not os.path.isfile(path):
            raise self._files.ForestError(f"unable to find '{path}' for model instance '{self.model.instance}'")
        return path

    def _look_into(self):
        """What the forest computes, by its own words and the parameters."""
        header, settings = self._forest.get_header_accessor(), self._settings
        if int(header.get_field("num_target")[0]) != 1:
            raise self._files.ForestError("Multi-target model not supported: train one model for each target")
        task = int(header.get_field("task_type")[0])
        self._features, self._classes = self._forest.num_feature, int(header.get_field("num_class")[0])
        self._classifies = settings.is_classifier
        if self._classifies is None:
            self._classifies = task in (_BINARY, _MULTI_CLASS)
        if settings.predict_proba and task == _MULTI_CLASS:
            vector = int(header.get_field("leaf_vector_shape")[1])
            header.set_field("postprocessor", "softmax" if vector == 1 else "identity_multiclass")
        config = json.loads(self.model.config)
        sizes = {item["name"]: _size(item) for item in config.get("output", ())}
        self._labels = self._classifies and not settings.predict_proba
        binary = self._classifies and settings.predict_proba and self._classes == 1
        self._both = binary and sizes.get(OUTPUT) == 2  # of a binary classifier: of no, and of yes
        self._explains = CONTRIBUTIONS in sizes

    def describe(self):
        """See ArrayBackend."""
        columns = 1 if self._labels else 2 if self._both else self._classes
        outputs = [(OUTPUT, "FP32", [-1, columns])]
        if self._explains:
            outputs.append((CONTRIBUTIONS, "FP32", [-1, (self._features + 1) * self._classes]))
        return {"inputs": [(INPUT, "FP32", [-1, self._features])], "outputs": outputs}

    def complete(self):
        """See ArrayBackend; a batch may have the rows of a table."""
        config, rows_max = json.loads(self.model.config), self.model.default_max_batch_size
        if rows_max > 0:
            rows_max = max(rows_max, limits.TABLE_ROWS_MAX)
        return json.dumps(file_signature.completed(config, file_signature.FileSignature(self.describe()), rows_max))

    def initialize(self):
        """Find the package that wrote the model, if it is to predict."""
        packages, files, settings = backend_module("fil_packages"), self._files, self._settings
        kind = {files.JSON: packages.XgboostForest, files.UBJ: packages.XgboostForest,
                files.LIGHTGBM: packages.LightgbmForest}.get(self._kind)  # fmt: skip
        self._threads = settings.threads or self.model.threads
        self._explainer = None
        if self._explains or settings.engine != TREELITE:
            if kind is None:
                raise files.ForestError(
                    f"{self._path} holds {files.NAMES[self._kind]}, of which only treelite makes "
                    f"something: output '{CONTRIBUTIONS}' and engine '{settings.engine}' need XGBoost's JSON or "
                    "UBJSON, or LightGBM's text"
                )
            self._explainer = packages.load(kind, self._path, self._threads)
        if settings.engine != TREELITE:
            self._use_package(packages)
        self._tell()

    def _use_package(self, packages):
        if not packages.agrees(self._numpy, self._explainer, self._scores, self._features):
            raise self._files.ForestError(
                f"{self._explainer.PACKAGE} and treelite differ in what they make of {self._path} "
                "with these parameters (its objective may be one that they finish differently): write engine: "
                f"'{TREELITE}'"
            )
        self._package = self._explainer
        self._package_rows_min = 1 if self._settings.engine == PACKAGE else limits.TREELITE_ROWS_MAX + 1

    def _tell(self):
        log, settings, name = current().log, self._settings, self.model.name
        beside = "" if self._package is None else f", and {self._package.PACKAGE} from {self._package_rows_min} rows on"
        said = "".join(f"; Configuring {each}" for each in settings.said)
        log("VERBOSE", f"treelite {self._treelite.__version__}{beside}; {self._threads} thread(s){said}", "fil.py", 0)
        if settings.without_effect:
            names = ", ".join(settings.without_effect)
            text = f"model '{name}': parameters that only tune have no effect here: {names}"
            log("INFO", text, "fil.py", 0, once="tuning")
        if self.model.kind == "GPU":
            log("WARN", f"model '{name}' asks for a GPU, and its trees are walked on the CPU", "fil.py", 0, once="gpu")

    def execute_arrays(self, inputs):
        """See ArrayBackend."""
        rows = inputs[INPUT]
        if rows.ndim != 2 or not len(rows):
            rows = rows.reshape(-1, self._features)
        found = {OUTPUT: self._answer(self._best_scores(rows))}
        if self._explains:
            found[CONTRIBUTIONS] = self._explainer.contributions(rows).astype(self._numpy.float32, copy=False)
        return found

    def free(self):
        """See Backend."""
        self._forest = self._package = self._explainer = None

    def _best_scores(self, rows):
        if self._package is not None and len(rows) >= self._package_rows_min:
            return self._package.predict(rows)
        return self._scores(rows)

    def _scores(self, rows):
        """[rows, classes], FP32 or FP64."""
        if not len(rows):
            return self._numpy.zeros((0, self._classes), self._numpy.float32)
        threads = self._settings.threads or (self._threads if len(rows) >= limits.ROWS_PER_THREAD_MIN else 1)
        return self._treelite.gtil.predict(self._forest, rows, nthread=threads).reshape(len(rows), -1)

    def _answer(self, scores):
        """What the client gets of scores: themselves, or the class."""
        numpy = self._numpy
        if self._labels and self._classes > 1:
            return scores.argmax(axis=1).astype(numpy.float32).reshape(-1, 1)
        scores = scores.astype(numpy.float32, copy=False)
        if self._labels:
            return (scores > self._settings.threshold).astype(numpy.float32)
        if self._both:
            return numpy.concatenate([1 - scores, scores], axis=1)
        return scores


def _size(item):
    """Elements of a row of a configured tensor."""
    size = 1
    for dim in item.get("dims", ()):
        size *= int(dim)
    return size
