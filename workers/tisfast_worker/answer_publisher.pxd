# Types for the compiled form of answer_publisher.py; see setup.py.
cimport cython

from tisfast_worker.answer_record cimport AnswerWriter
from tisfast_worker.completions cimport Completions
from tisfast_worker.execution cimport Execution


cdef class AnswerPublisher:
    cdef public object _foreign, _now, _outputs, _over, _trace, _turn, _uncounted, _unheld
    cdef public AnswerWriter writer
    cdef public Completions _completions
    cdef public Execution _execution
    cdef public list _answers, _free, _owed

    cpdef encode(self, list requests, responses, Execution execution)
    cpdef show(self, Execution execution)
    @cython.locals(at="Py_ssize_t")
    cpdef _write_all(self, list requests, responses)
    @cython.locals(leases=list, tickets=list, retained=list)
    cpdef _show(self, Execution execution)
    cpdef _send(self, retained)
