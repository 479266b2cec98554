/* Counts of durations: pages of 1024 counters, one page for each power of two from 1024 ns on.
 *
 * Durations below 2048 ns have a counter each; a counter above is as wide as 1/1024 of its least value, so that the
 * middle of it is off by at most 1/2048 (0.05 %).  Two are merged by adding counters, which loses nothing.
 * Owner: whoever holds the struct; one thread at a time.  Never blocks; a page is taken from the heap when the first
 * duration falls into it. */
#ifndef TF_HISTOGRAM_H
#define TF_HISTOGRAM_H

#include <stdint.h>
#include <stdlib.h>

#define TF_HISTOGRAM_PAGES 54u /* up to 2^63 - 1 ns */
#define TF_HISTOGRAM_PAGE 1024u

struct tf_histogram {
    uint64_t *pages[TF_HISTOGRAM_PAGES];
    uint64_t count;
    uint64_t lost; /* not counted: no memory for a page */
    int64_t sum; /* ns; wraps after 292 years of durations */
    int64_t minimum, maximum;
    double squares; /* ns^2 */
};

static inline unsigned tf_histogram_page(uint64_t ns)
{
    return ns < TF_HISTOGRAM_PAGE ? 0 : (unsigned)(54 - __builtin_clzll(ns));
}

/* The counter of a page and a place in it begins here. */
static inline uint64_t tf_histogram_low(unsigned page, unsigned at)
{
    return page == 0 ? at : ((uint64_t)TF_HISTOGRAM_PAGE + at) << (page - 1);
}

static inline uint64_t *tf_histogram_counters(struct tf_histogram *h, unsigned page)
{
    if (h->pages[page] == NULL) h->pages[page] = calloc(TF_HISTOGRAM_PAGE, sizeof(uint64_t));
    return h->pages[page];
}

/* Count a duration; below 0 it counts as 0. */
static inline void tf_histogram_record(struct tf_histogram *h, int64_t duration_ns)
{
    uint64_t ns = duration_ns < 0 ? 0 : (uint64_t)duration_ns;
    unsigned page = tf_histogram_page(ns);
    uint64_t *counters = tf_histogram_counters(h, page);
    if (counters == NULL) {
        h->lost++;
        return;
    }
    counters[page == 0 ? ns : (ns >> (page - 1)) - TF_HISTOGRAM_PAGE]++;
    if (h->count == 0 || (int64_t)ns < h->minimum) h->minimum = (int64_t)ns;
    if ((int64_t)ns > h->maximum) h->maximum = (int64_t)ns;
    h->count++;
    h->sum = (int64_t)((uint64_t)h->sum + ns);
    h->squares += (double)ns * (double)ns;
}

#endif
