"""Counts of durations with a stated error: a quantile is at most 1/2048 (0.05 %) away from the duration itself.

Exact: the count, the sum, minimum and maximum, and what is merged.  A histogram of latencies between 0.1 and 10 ms
takes about 60 KB.  Layer 5 (bench).

GIL: held, but recording needs none (`tf_histogram_record` of the .pxd).
"""

from libc.math cimport ceil, sqrt
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

import struct

import numpy as np

_HEAD = struct.Struct("<4sIQqqqd")  # mark, counters, count, sum, minimum, maximum, squares
_MARK = b"TFH1"
_COUNTER = np.dtype([("place", "<u4"), ("count", "<u8")])  # place: page x 1024 + place in it


cdef class Histogram:
    """Durations in ns, counted."""

    def __dealloc__(self):
        for page in range(TF_HISTOGRAM_PAGES):
            free(self.counts.pages[page])

    cdef uint64_t *_page(self, unsigned page) except NULL:
        cdef uint64_t *counters = tf_histogram_counters(&self.counts, page)
        if counters == NULL:
            raise MemoryError("no memory for 8 KB of a histogram's counters")
        return counters

    def record(self, int64_t ns, /) -> None:
        """Count one duration; below 0 it counts as 0."""
        tf_histogram_record(&self.counts, ns)
        if self.counts.lost:
            raise MemoryError("no memory for 8 KB of a histogram's counters")

    def record_all(self, durations, /) -> None:
        """Count many: an array of int64."""
        cdef bytes data = np.ascontiguousarray(durations, np.int64).tobytes()  # typed views would double this module
        cdef const int64_t *each = <const int64_t *><const char *>data
        cdef Py_ssize_t i, count = len(data) // 8
        with nogil:  # they may be millions
            for i in range(count):
                tf_histogram_record(&self.counts, each[i])
        if self.counts.lost:
            raise MemoryError("no memory for 8 KB of a histogram's counters")

    @property
    def count(self) -> int:
        """Durations."""
        return self.counts.count

    @property
    def lost(self) -> int:
        """Durations that were not counted, as there was no memory."""
        return self.counts.lost

    @property
    def sum(self) -> int:
        """Of all durations, ns."""
        return self.counts.sum

    @property
    def minimum(self) -> int:
        """ns, 0 when there is none."""
        return self.counts.minimum

    @property
    def maximum(self) -> int:
        """ns, 0 when there is none."""
        return self.counts.maximum

    @property
    def mean(self) -> float:
        """ns, 0 when there is none."""
        return self.counts.sum / <double>self.counts.count if self.counts.count else 0.0

    @property
    def deviation(self) -> float:
        """Standard deviation of a sample, ns; 0 below two durations."""
        cdef double n = <double>self.counts.count
        if n < 2:
            return 0.0
        cdef double rest = self.counts.squares - <double>self.counts.sum * (<double>self.counts.sum / n)
        return sqrt(rest / (n - 1)) if rest > 0 else 0.0

    def quantile(self, double q, /) -> int:
        """The duration that a share q (0 to 1) of all does not exceed, in ns; 0 when there is none."""
        if not 0 <= q <= 1:
            raise ValueError(f"a quantile is a share between 0 and 1, and {q} is none")
        cdef double rank = ceil(q * <double>self.counts.count - 1e-9)  # 0.07 x 100 is a little above 7
        return self.at_rank(<uint64_t>rank if rank >= 1 else 1)

    def at_rank(self, uint64_t rank, /) -> int:
        """The duration in this place, 1 for the least; past the last it is the greatest.  0 when there is none."""
        cdef uint64_t seen = 0
        cdef uint64_t low, high
        cdef unsigned page, at
        cdef uint64_t *counters
        if self.counts.count == 0:
            return 0
        if rank <= 1:
            return self.counts.minimum
        for page in range(TF_HISTOGRAM_PAGES):
            counters = self.counts.pages[page]
            if counters == NULL:
                continue
            for at in range(TF_HISTOGRAM_PAGE):
                seen += counters[at]
                if seen >= rank:
                    if rank >= self.counts.count:
                        return self.counts.maximum
                    low = tf_histogram_low(page, at)
                    high = low + ((<uint64_t>1 << (page - 1)) - 1 if page else 0)
                    return min(max(<int64_t>(low + (high - low) // 2), self.counts.minimum), self.counts.maximum)
        return self.counts.maximum

    def merge(self, Histogram other not None, /) -> None:
        """Add the counts of another."""
        cdef unsigned page, at
        cdef uint64_t *mine
        cdef uint64_t *others
        if other.counts.count == 0:
            return
        for page in range(TF_HISTOGRAM_PAGES):
            others = other.counts.pages[page]
            if others == NULL:
                continue
            mine = self._page(page)
            for at in range(TF_HISTOGRAM_PAGE):
                mine[at] += others[at]
        if self.counts.count == 0 or other.counts.minimum < self.counts.minimum:
            self.counts.minimum = other.counts.minimum
        self.counts.maximum = max(self.counts.maximum, other.counts.maximum)
        self.counts.count += other.counts.count
        self.counts.lost += other.counts.lost
        self.counts.sum += other.counts.sum
        self.counts.squares += other.counts.squares

    def above(self, int64_t ns, /) -> int:
        """Durations in counters that reach above this one."""
        cdef unsigned page, at
        cdef uint64_t found = 0, wide
        for page in range(TF_HISTOGRAM_PAGES):
            if self.counts.pages[page] == NULL:
                continue
            wide = <uint64_t>1 << (page - 1) if page else 1
            for at in range(TF_HISTOGRAM_PAGE):
                if <int64_t>(tf_histogram_low(page, at) + wide - 1) > ns:
                    found += self.counts.pages[page][at]
        return found

    def _counters(self):
        cdef unsigned page
        found = []
        for page in range(TF_HISTOGRAM_PAGES):
            if self.counts.pages[page] == NULL:
                continue
            row = np.frombuffer((<const char *>self.counts.pages[page])[:TF_HISTOGRAM_PAGE * 8], np.uint64)
            places = np.flatnonzero(row)
            pairs = np.empty(len(places), _COUNTER)
            pairs["place"] = places + page * TF_HISTOGRAM_PAGE
            pairs["count"] = row[places]
            found.append(pairs)
        return np.concatenate(found) if found else np.empty(0, _COUNTER)

    def to_bytes(self) -> bytes:
        """All of it, for another process: 12 bytes for each counter that is not 0."""
        pairs = self._counters()
        head = _HEAD.pack(
            _MARK, len(pairs), self.counts.count, self.counts.sum, self.counts.minimum, self.counts.maximum,
            self.counts.squares,
        )
        return head + pairs.tobytes()

    @staticmethod
    def from_bytes(bytes data not None) -> Histogram:
        """What `to_bytes` made.  ValueError where it is anything else."""
        cdef Histogram histogram = Histogram()
        cdef uint32_t place
        cdef uint64_t more
        cdef const char *at
        if len(data) < _HEAD.size or data[:4] != _MARK:
            raise ValueError(f"{len(data)} bytes are no histogram: they do not begin with {_MARK!r} and its totals")
        _mark, counters, count, total, minimum, maximum, squares = _HEAD.unpack_from(data)
        if len(data) != _HEAD.size + counters * _COUNTER.itemsize:
            raise ValueError(f"a histogram of {counters} counters has {len(data)} bytes: it was cut or added to")
        pairs = np.frombuffer(data, _COUNTER, counters, _HEAD.size)
        if int(pairs["count"].sum()) != count or (pairs["place"] >= TF_HISTOGRAM_PAGES * TF_HISTOGRAM_PAGE).any():
            raise ValueError(f"the counters of a histogram do not add up to its {count} durations")
        at = <const char *>data + <Py_ssize_t>_HEAD.size
        for _ in range(<Py_ssize_t>counters):
            memcpy(&place, at, sizeof(place))
            memcpy(&more, at + sizeof(place), sizeof(more))
            at += sizeof(place) + sizeof(more)
            histogram._page(place // TF_HISTOGRAM_PAGE)[place % TF_HISTOGRAM_PAGE] += more
        histogram.counts.count = count
        histogram.counts.sum = total
        histogram.counts.minimum = minimum
        histogram.counts.maximum = maximum
        histogram.counts.squares = squares
        return histogram
