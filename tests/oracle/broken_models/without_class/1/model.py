"""No TritonPythonModel."""
