"""One inference request in the making; see draft.pxd.  Layer 2 (wire).

A plan is shared by all requests with the same head, so nothing of one request is written into it.  What differs between them
(the id, where tensors lie, their bytes where those vary) is here, and lives no longer than the request takes to be made.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t
from tisfast.wire.infer_plan cimport InferPlan


@cython.no_gc  # what it refers to does not refer to it, and there is one for each request
@cython.freelist(64)
cdef class InferBody:
    """See draft.pxd."""


@cython.no_gc
@cython.freelist(8)
cdef class Draft:
    """See draft.pxd."""

    cdef str who(self):
        return f"[request id: {self.id or '<id_unknown>'}] "


cdef Draft new_draft(InferPlan plan, str id, list values):
    cdef Draft draft = Draft.__new__(Draft)
    cdef int i
    draft.plan = plan
    draft.id = id
    draft.values = values
    draft.inputs = draft.few_inputs
    draft.places = draft.few_places
    if plan.count > DRAFT_INPUTS:
        draft.more = PyBytes_FromStringAndSize(NULL, plan.count * (sizeof(DraftInput) + 2 * sizeof(uint64_t)))
        draft.inputs = <DraftInput *>PyBytes_AS_STRING(draft.more)
        draft.places = <uint64_t *>(draft.inputs + plan.count)
    for i in range(plan.count):
        draft.inputs[i] = [plan.tensors[i].offset, plan.tensors[i].nbytes, False]
    return draft
