"""The plan of an inference request; see infer_plan.pxd.  Layer 2 (wire)."""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset
from tisfast.native.region cimport Region, Regions
from tisfast.wire.signature cimport ModelSignature, TensorSpec

from tisfast.errors import NotFound


cdef class OutputChoice:
    """See infer_plan.pxd."""

    cdef bint is_binary(self, int index) noexcept:
        return (self.binary >> index & 1) if self.listed else self.binary_default

    cdef OutputChoice bind(self, Regions regions, ModelSignature model):
        cdef OutputChoice bound = OutputChoice.__new__(OutputChoice)
        cdef OutputForm way
        bound.binary_default = self.binary_default
        bound.listed = self.listed
        bound.in_regions = self.in_regions
        bound.empty_final = self.empty_final
        bound.binary = self.binary
        bound.special = self.special
        bound.ways = dict(self.ways)
        for index, way in self.ways.items():
            if way.region is not None:
                way = in_region(way, find(regions, way.region), (<TensorSpec>model.outputs[<int>index]).name)
                bound.ways[index] = way
                bound.shared |= <uint64_t>1 << <int>index
        return bound


cdef OutputForm in_region(OutputForm way, Region target, str name):
    cdef OutputForm bound = OutputForm.__new__(OutputForm)
    target.check(way.offset, way.nbytes, "output", name)
    bound.region, bound.offset, bound.nbytes, bound.target = way.region, way.offset, way.nbytes, target
    bound.unsized = way.unsized
    return bound


cdef Region find(Regions regions, str name):
    if regions is None:
        raise NotFound(f"Unable to find shared memory region: '{name}'")
    return regions.find(name)


cdef class OutputForm:
    """See infer_plan.pxd."""


@cython.freelist(64)
cdef class InferPlan:
    """See infer_plan.pxd."""

    def __dealloc__(self):
        PyMem_Free(self.tensors)
        PyMem_Free(self.shapes)

    cdef int reserve(self, Py_ssize_t inputs, Py_ssize_t dims) except -1:
        self.tensors = <TensorPlan *>PyMem_Malloc((inputs or 1) * sizeof(TensorPlan))
        self.shapes = <int64_t *>PyMem_Malloc((dims or 1) * sizeof(int64_t))
        if self.tensors == NULL or self.shapes == NULL:
            raise MemoryError()
        memset(self.tensors, 0, inputs * sizeof(TensorPlan))
        self.names = [None] * inputs
        self.count = <int>inputs
        return 0

    cdef str who(self):
        return f"[request id: {self.id or '<id_unknown>'}] "
