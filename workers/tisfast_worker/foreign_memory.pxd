# Types for the compiled form of foreign_memory.py; see setup.py.
cimport cython


cdef class Share:
    cdef public object begin, end, failed, failed_until, fd, guarded, handle, let_go, number, opened, serial


cdef class ForeignMemory:
    cdef public object _faults, _faults_counted, _guard_arm, _guard_lost, _library, _lock, _nudge, _pagemap, _returned
    cdef public object _seen, _serials, _socket, _unheld, _unheld_messages, _windows_written, device_lost, devices
    cdef public object inputs, told, unneeded
    cdef public dict _ahead, _idle, _shares
    cdef public list open
    cdef public set written
    cdef public Py_ssize_t _idle_count

    @cython.locals(idle=list, share=Share)
    cdef _window(self, dict shares, place, nbytes, lease, name)
    cpdef is_written(self, window)
    cpdef is_lost(self, window)
    @cython.locals(windows=list, free=list, at="Py_ssize_t")
    cpdef settle(self)
    cdef _may_differ(self, window, faults)
    cdef _keep(self, window)
    @cython.locals(found=Share)
    cdef _serial(self, dict shares, share)
