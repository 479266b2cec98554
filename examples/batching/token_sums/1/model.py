"""Texts of different lengths in one batch: the model gets all tokens in one array, and where each text ends."""

import numpy as np


class TritonPythonModel:
    """Sums the tokens of each text, and doubles each token."""

    def execute_batch(self, inputs):
        """TOKENS: [all tokens of the batch]; ENDS: where each request's tokens end (`batch_input` in the config)."""
        tokens, ends = inputs["TOKENS"], inputs["ENDS"]
        starts = np.concatenate([[0], ends[:-1]])
        sums = np.add.reduceat(tokens, starts, dtype=np.int32)
        return {"SUM": sums.reshape(-1, 1), "DOUBLED": tokens * 2}
