# An answer made of tensors that lie in several places: those of an ensemble's steps.  Layer 2 (wire).
from tisfast.wire.record cimport Answer, InferInput

# tensors: of the outputs that there are, by their names in request.model.  parameters: JSON object text, b"" for none.
# The answer keeps the tensors' memory alive.  Raises Internal for a tensor that is not as the model's configuration says.
cdef Answer join_answer(InferInput request, list tensors, bytes parameters)
