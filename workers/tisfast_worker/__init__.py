"""The worker runtime: what runs in a model's own process, under any CPython 3.8 or newer, on the standard library alone.

Modules, lowest first: limits, dtypes, failure, served | msgpack, zmtp, native | tensor, dlpack, request, response,
model_config, logger (the faces of triton_python_backend_utils) | model, record, answer | control, loop | instance, nursery.
"""
