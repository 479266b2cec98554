"""The engine's statistics as metrics of the server, reported from a thread of their own."""

import queue
import threading

import triton_python_backend_utils as pb_utils


class WordCounts:
    """Makes a logger when the engine asks for one, and ends it."""

    def __init__(self, labels):
        self._labels, self._made = labels, []

    def __call__(self, args):
        self._made.append(_Logger(self._labels))
        return self._made[-1]

    def finalize(self):
        for each in self._made:
            each.finalize()


class _Logger:
    def __init__(self, labels):
        counter = pb_utils.MetricFamily(
            name="story:words_total", description="Words that were said", kind=pb_utils.MetricFamily.COUNTER
        )
        lengths = pb_utils.MetricFamily(
            name="story:word_letters", description="Letters of a word", kind=pb_utils.MetricFamily.HISTOGRAM
        )
        self._families = counter, lengths
        self._counter = counter.Metric(labels=labels)
        self._lengths = lengths.Metric(labels=labels, buckets=[2.0, 4.0])
        self._queue = queue.Queue()
        self._thread = threading.Thread(target=self._report)
        self._thread.start()

    def record(self, letters):
        self._queue.put_nowait((self._counter, "increment", 1))
        self._queue.put_nowait((self._lengths, "observe", letters))

    def finalize(self):
        self._queue.put(None)
        self._thread.join()

    def _report(self):
        while (item := self._queue.get()) is not None:
            metric, verb, value = item
            getattr(metric, verb)(value)
