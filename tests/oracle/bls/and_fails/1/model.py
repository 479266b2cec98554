class TritonPythonModel:
    """Does not load."""

    def initialize(self, args):
        raise RuntimeError("no luck at all")
