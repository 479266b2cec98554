# Types for the compiled form of loop.py; see setup.py.
cimport cython

from tisfast_worker.answer cimport AnswerWriter
from tisfast_worker.completions cimport Completions
from tisfast_worker.direct cimport Fields as DirectFields
from tisfast_worker.record cimport RequestReader
from tisfast_worker.request cimport ArenaRequest


cdef class Loop:
    cdef public object _advance, _channel, _execute, _foreign, _lease_at, _lease_type, _library, _model, _now, _outputs
    cdef public object _relief, _trace, _uncounted, _unheld, thread
    cdef public AnswerWriter _writer
    cdef public Completions _completions
    cdef public RequestReader _reader
    cdef public DirectFields _slots
    cdef public Py_ssize_t _head
    cdef public list _answers, _free, _leases, _owed, _tickets
    cdef public tuple _times

    cpdef _batch(self, pending)

    @cython.locals(head="Py_ssize_t", first="Py_ssize_t", mask="Py_ssize_t", at="Py_ssize_t", count="Py_ssize_t", slot=tuple)
    cpdef list _take(self, pending)

    @cython.locals(reader=RequestReader, request=ArenaRequest, free=list, leases=list)
    cpdef tuple _requests(self, list slots)
    cpdef _run_model(self, requests)
    @cython.locals(at="Py_ssize_t")
    cpdef _encode(self, list requests, responses)
    cpdef _show(self)
    cpdef _send(self, retained)
