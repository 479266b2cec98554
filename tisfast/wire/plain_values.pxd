# Requests and answers as plain values that go to another process, and back.  Layer 2 (wire).
from tisfast.native.memory cimport Arena, Block, MemoryFile
from tisfast.wire.record cimport Answer, InferInput
from tisfast.wire.signature cimport ModelSignature

# Of a request whose blocks are all in `blocks`, which are named by their positions there.
cdef tuple describe_input(InferInput request, list blocks)

# The same request over blocks of this process.  Nothing of it is believed: raises Internal when its record, or a place in
# it, lies outside the blocks.  `regions`: where those are looked up that its outputs go to; raises NotFound, BadRequest.
cdef InferInput rebuild_input(ModelSignature model, tuple description, list blocks, regions)

# Of an answer, and the memory files that its outputs lie in.  What goes to clients' regions has been written to them
# (outputs.prepare), and only its head is left to render.
cdef tuple describe_answer(Answer answer, list files)

# `bases`: a buffer over each of the files, None where its bytes are not needed.
cdef Answer rebuild_answer(ModelSignature model, tuple description, list bases)

# Address of a buffer's first byte; it stays valid while somebody holds the buffer.
cdef unsigned char *address_of(object buffer) except? NULL
