"""The worker runtime: what runs in a model's own process, under any CPython from 3.8, on the standard library alone.

Lowest first: limits, dtypes, failure, served | msgpack, zmtp, native | errors, parameters, dlpack, tensor, request,
response, model_config, logger, lookup (the faces of triton_python_backend_utils) | model, record, output, answer,
completions, plane | control, loop | environment, instance, nursery.
"""
