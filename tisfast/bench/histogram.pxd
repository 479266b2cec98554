"""The histogram's members, so that a loop counts without the GIL: `tf_histogram_record(&h.counts, ns)`.  Layer 5."""

from libc.stdint cimport int64_t, uint64_t


cdef extern from "tf_histogram.h" nogil:
    const unsigned TF_HISTOGRAM_PAGES
    const unsigned TF_HISTOGRAM_PAGE

    struct tf_histogram:
        uint64_t **pages
        uint64_t count
        uint64_t lost
        int64_t sum
        int64_t minimum
        int64_t maximum
        double squares

    void tf_histogram_record(tf_histogram *h, int64_t duration_ns) noexcept
    uint64_t *tf_histogram_counters(tf_histogram *h, unsigned page) noexcept
    uint64_t tf_histogram_low(unsigned page, unsigned at) noexcept


cdef class Histogram:
    # Owner of the pages: this object.  Its address holds as long as it lives.
    cdef tf_histogram counts

    cdef uint64_t *_page(self, unsigned page) except NULL
