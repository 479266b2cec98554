"""The packages that write forests: faster than treelite for many rows, and Shapley values."""

from tisfast_worker import limits
from tisfast_worker.backend import framework


class XgboostForest:
    """A Booster of XGBoost."""

    PACKAGE = "xgboost"

    def __init__(self, package, path, threads):
        """Raises what the package raises."""
        self._package = package
        self._booster = package.Booster({"nthread": threads})
        self._booster.load_model(path)
        self._booster.set_param({"nthread": threads})

    def predict(self, rows):
        """Scores, as treelite gives them: [rows, classes]."""
        return self._booster.inplace_predict(rows, validate_features=False).reshape(len(rows), -1)

    def contributions(self, rows):
        """Shapley values: [rows, (features + 1) times the classes]."""
        matrix = self._package.DMatrix(rows, nthread=1)
        return self._booster.predict(matrix, pred_contribs=True, validate_features=False).reshape(len(rows), -1)


class LightgbmForest:
    """A Booster of LightGBM."""

    PACKAGE = "lightgbm"

    def __init__(self, package, path, threads):
        """Raises what the package raises."""
        self._booster, self._threads = package.Booster(model_file=path), threads

    def predict(self, rows):
        """See XgboostForest."""
        return self._booster.predict(rows, num_threads=self._threads).reshape(len(rows), -1)

    def contributions(self, rows):
        """See XgboostForest."""
        return self._booster.predict(rows, num_threads=self._threads, pred_contrib=True).reshape(len(rows), -1)


def load(kind, path, threads):
    """A forest in the package that wrote it.  Raises FrameworkMissing, and what the package raises."""
    return kind(framework(kind.PACKAGE), path, threads)


def agrees(numpy, forest, scores, features):
    """Whether the package's scores are treelite's, `scores(rows)`: some of its objectives mean something else here."""
    chance = numpy.random.default_rng(0)
    rows = chance.standard_normal((limits.PROBE_ROWS, features), numpy.float32) * 10
    rows[::7, ::3] = numpy.nan
    try:
        theirs, ours = forest.predict(rows), scores(rows)
    except Exception:  # a trial, whatever the package says: treelite has read the file
        return False
    return theirs.shape == ours.shape and numpy.allclose(theirs, ours, rtol=1e-4, atol=1e-6, equal_nan=True)
