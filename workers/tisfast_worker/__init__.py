"""The worker runtime: what runs in a model's own process, under any CPython from 3.8, on the standard library alone.

Lowest first: limits, dtypes, failure, serving_context | msgpack, zmtp, native | errors, parameters, dlpack, tensor,
request, response, model_config, logger, pb_utils_functions (the faces of triton_python_backend_utils) | model, record,
output, answer_record, completions, data_plane | control, loop | process_setup, instance, nursery.
"""
