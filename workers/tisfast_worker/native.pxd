# Types for the compiled form of native.py; see setup.py.
cdef class Mapping:
    cdef public object base, memory, nbytes, raw


cdef class Channel(Mapping):
    cdef public object _library, complete, complete_slots, give, give_slots, reply, reply_slots, submit, submit_slots
