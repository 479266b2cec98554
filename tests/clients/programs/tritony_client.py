"""tritony's client, which tries again until its model is there.  Argument: http or grpc."""

import os

os.environ.update({"TRITON_RETRIES": "10", "TRITON_LOAD_DELAY": "0.05", "TRITON_BACKOFF_COEFF": "0.01"})

import numpy as np  # noqa: E402 - tritony reads the variables when it is imported
from steps import UNKNOWN, addresses, arguments, refused, waiting  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402
from tritony import InferenceClient  # noqa: E402

(WAY,) = arguments()
URL = addresses()[0 if WAY == "http" else 1]
waiting()
client = InferenceClient.create_with("sum", URL, protocol=WAY)
assert [(each.name, each.dtype) for each in client.default_model_spec.model_input] == [("A", "FP32"), ("B", "FP32")]
rows = np.arange(40, dtype=np.float32).reshape(20, 2)  # which it cuts into batches of max_batch_size
np.testing.assert_array_equal(np.asarray(client({"A": rows, "B": rows})).reshape(20, 2), 2 * rows)
with refused(InferenceServerException, UNKNOWN):
    client({"A": rows, "B": rows}, model_name="nobody")
