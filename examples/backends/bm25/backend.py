"""A backend of its own: full-text search (BM25) in the lines of a `corpus.txt`, of which it returns the best.

    tisfast serve --model-repository examples/search --backend-directory examples/backends
"""

import collections
import math
import os
import re

import numpy as np

from tisfast.backend import ArrayBackend, Options

WORD = re.compile(r"\w+")
K, B = 1.2, 0.75  # how soon repeated words stop to count, and how much the length of a document does


class Backend(ArrayBackend):
    """One corpus, as the weight of each of its words in each of its documents."""

    takes_text = True

    def load(self):
        """Read and weigh the documents."""
        with open(os.path.join(self.model.version_dir, "corpus.txt"), encoding="utf-8") as file:
            self.documents = np.array([line.strip() for line in file if line.strip()], object)
        self.best = min(Options(self.model.config).number("best", 3), len(self.documents))
        counts = [collections.Counter(WORD.findall(text.lower())) for text in self.documents]
        lengths = np.array([count.total() for count in counts])
        spread = K * (1 - B + B * lengths / lengths.mean())
        self.weights = {}
        for word in set().union(*counts):
            times = np.array([count[word] for count in counts])
            among = np.count_nonzero(times)
            rare = math.log(1 + (len(counts) - among + 0.5) / (among + 0.5))
            self.weights[word] = rare * times * (K + 1) / (times + spread)

    def describe(self):
        """See ArrayBackend."""
        found = [("DOCUMENT", "BYTES", [-1, self.best]), ("SCORE", "FP32", [-1, self.best])]
        return {"inputs": [("QUERY", "BYTES", [-1, 1])], "outputs": found}

    def execute_arrays(self, inputs):
        """See ArrayBackend."""
        nothing = np.zeros(len(self.documents))
        words = [WORD.findall(query.lower()) for query in inputs["QUERY"][:, 0]]
        scores = np.array([sum((self.weights.get(word, nothing) for word in each), nothing) for each in words])
        order = np.argsort(-scores, axis=1, kind="stable")[:, : self.best]
        return {"DOCUMENT": self.documents[order], "SCORE": np.take_along_axis(scores, order, 1).astype(np.float32)}
