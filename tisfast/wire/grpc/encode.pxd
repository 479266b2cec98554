# Small protobuf fields, by way of Python values.  Layer 2 (wire).

cdef bytes varint(object value)
# A field of wire type LEN.
cdef bytes field(int number, bytes data)
# proto3 leaves out what is empty.
cdef bytes text_field(int number, str text)
# A map<string, InferParameter>.  Raises Internal for a value that it cannot hold.
cdef bytes encoded_parameters(int number, dict values)
