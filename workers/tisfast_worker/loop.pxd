# Types for the compiled form of loop.py; see setup.py.
cimport cython

from tisfast_worker.answer_publisher cimport AnswerPublisher
from tisfast_worker.batch_source cimport BatchSource
from tisfast_worker.execution cimport Execution


cdef class Loop:
    cdef public object _completions, _deliver, _foreign, _now, _outputs, _pinned, _reader, _runner, thread
    cdef public Execution execution
    cdef public BatchSource source
    cdef public AnswerPublisher _publisher

    @cython.locals(execution=Execution)
    cpdef serve(self, list slots)
