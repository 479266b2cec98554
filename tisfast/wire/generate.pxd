# The generate extension: a flat JSON object instead of tensors.  Layer 2 (wire).
from libc.stdint cimport uint64_t
from tisfast.native.memory cimport Arena
from tisfast.wire.record cimport Answer, InferInput
from tisfast.wire.signature cimport ModelSignature
from tisfast.wire.text_buffer cimport TextBuffer

# text: the whole body.  Raises TisError with Triton's status and wording.
cdef InferInput read_generate(ModelSignature model, Arena arena, bytes text, uint64_t max_input_bytes)

# Appends an answer as such an object.  Raises TisError when an output has no JSON form.
cdef int render_generate(TextBuffer text, Answer answer) except -1
