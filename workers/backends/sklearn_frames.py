"""Frames of pandas, for estimators that ask for columns by their names."""

from tisfast_worker.backend import framework


class Frames:
    """Makes frames with these columns."""

    def __init__(self, names):
        """Raises FrameworkMissing."""
        self._pandas, self._names = framework("pandas"), names

    def of_columns(self, columns):
        """From one array for each column."""
        return self._pandas.DataFrame(dict(zip(self._names, columns)), copy=False)

    def of_array(self, array):
        """From one array for all."""
        return self._pandas.DataFrame(array, columns=self._names, copy=False)
