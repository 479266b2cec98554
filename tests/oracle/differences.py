"""Every deliberate difference between tisfast and Triton 2.51, with its reason: the one table.

A case that is not here must be answered alike (alike.py says what that means).  A case that is here must differ, and
both answers must be, in brief, as written; "..." at the end stands for words of a parser or compiler.
"""

# ruff: noqa: E501  (a table: both answers of a case in one line)
from __future__ import annotations

from typing import Final, NamedTuple

from tests.oracle.cases.regions import KEY


class Deliberate(NamedTuple):
    """Why some cases are answered otherwise; by case: Triton's answer and tisfast's, as alike.brief writes them.

    sometimes: Triton's answer is not always the same, and now and then it is ours.
    """

    row: str
    reason: str
    cases: dict[str, tuple[str, str]]
    sometimes: bool = False


# fmt: off
TABLE: Final[list[Deliberate]] = [
    Deliberate('5.04', '2.51 cuts a level to 32 bits; what does not fit is refused here.', {
        'log: a level of 33 bits': ("200 {'log_file': '', 'log_info': True, 'log_warning': True, 'log_error': True, 'log_verbose_level': 705032704, 'log_format': 'default'} | ...", '500 attempt to access JSON non-unsigned-integer as unsigned-integer: log_verbose_level is 5000000000 | ...'),
    }),
    Deliberate('5.02', 'What is not honoured is refused by name, where 2.51 passes over it.', {
        'log: an unknown setting': ("200 {'log_file': '', 'log_info': True, 'log_warning': True, 'log_error': True, 'log_verbose_level': 0, 'log_format': 'default'} | ...", "400 unknown log setting 'bogus'; the settings are log_file, log_info, log_warning, log_error, log_verbose_level, log_format | ..."),
    }),
    Deliberate('12.02', 'What is not honoured is refused by name, where 2.51 passes over it; a value of trace_mode that is in force may be sent back.', {
        'trace of all: an unknown level': ("200 {'trace_level': ['OFF'], 'trace_rate': '1000', 'trace_count': '-1', 'log_frequency': '0', 'trace_file': '', 'trace_mode': 'triton'} | ...", "400 unknown trace level 'BOGUS'; the levels are OFF, TIMESTAMPS and TENSORS | ..."),
        'trace of a model: an unknown level': ("200 {'trace_level': ['OFF'], 'trace_rate': '1000', 'trace_count': '-1', 'log_frequency': '0', 'trace_file': '', 'trace_mode': 'triton'} | ...", "400 unknown trace level 'BOGUS'; the levels are OFF, TIMESTAMPS and TENSORS | ..."),
        'trace of all: another mode': ("200 {'trace_level': ['OFF'], 'trace_rate': '1000', 'trace_count': '-1', 'log_frequency': '0', 'trace_file': '', 'trace_mode': 'triton'} | ...", '501 trace_mode can not be updated through network protocol; use --trace-config | ...'),
        'trace of a model: another mode': ("200 {'trace_level': ['OFF'], 'trace_rate': '1000', 'trace_count': '-1', 'log_frequency': '0', 'trace_file': '', 'trace_mode': 'triton'} | ...", '501 trace_mode can not be updated through network protocol; use --trace-config | ...'),
        'trace of all: an unknown setting': ("200 {'trace_level': ['OFF'], 'trace_rate': '1000', 'trace_count': '-1', 'log_frequency': '0', 'trace_file': '', 'trace_mode': 'triton'} | ...", "400 unknown trace setting 'bogus'; the settings are trace_level, trace_rate, trace_count, log_frequency | ..."),
        'trace of a model: an unknown setting': ("200 {'trace_level': ['OFF'], 'trace_rate': '1000', 'trace_count': '-1', 'log_frequency': '0', 'trace_file': '', 'trace_mode': 'triton'} | ...", "400 unknown trace setting 'bogus'; the settings are trace_level, trace_rate, trace_count, log_frequency | ..."),
    }),
    Deliberate('12.02', '2.51 takes -1 for 4294967295; a number out of range is refused here.', {
        'trace of all: a negative rate': ("200 {'trace_level': ['OFF'], 'trace_rate': '4294967295', 'trace_count': '-1', 'log_frequency': '0', 'trace_file': '', 'trace_mode': 'triton'} | ...", "400 Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: -1 | ..."),
        'trace of a model: a negative rate': ("200 {'trace_level': ['OFF'], 'trace_rate': '4294967295', 'trace_count': '-1', 'log_frequency': '0', 'trace_file': '', 'trace_mode': 'triton'} | ...", "400 Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: -1 | ..."),
    }),
    Deliberate('1.34', "2.51 loses answers of pipelined requests, now one and now another; here all come, in order.", {
        "pipelined": ("200 OUTPUT0=['2.0', '3.0', '4.0', '5.0'] OUTPUT1=['0.0', '1.0', '2.0', '3.0'] | ...", "200 OUTPUT0=['2.0', '3.0', '4.0', '5.0'] OUTPUT1=['0.0', '1.0', '2.0', '3.0'] | 404 Request for unknown model: 'nobody' is not found | 200 | 200 OUTPUT0=['2.0', '3.0', '4.0', '5.0'] OUTPUT1=['0.0', '1.0', '2.0', '3.0']"),
    }, sometimes=True),
    Deliberate('4.05', "An error has the status of an error, and of its own code: 2.51 sends this one with the status of the first response, and any error of a model's response as 400.", {
        "generate: responses 12": ("200 generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses", "500 generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses"),
        "generate: responses none": ("200 generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses", "500 generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses"),
        "generate: responses 1e": ("200 generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses", "500 generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses"),
        "generate: responses 1F": ("200 generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses", "500 generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses"),
        "generate: responses e1": ("400 generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses", "500 bad luck"),
        "generate: responses e": ("400 bad luck", "500 bad luck"),
        "generate: responses n": ("400 nothing", "404 nothing"),
        "generate_stream: responses e": ("400 [{'error': 'bad luck'}]", "500 [{'error': 'bad luck'}]"),
        "generate_stream: responses n": ("400 [{'error': 'nothing'}]", "404 [{'error': 'nothing'}]"),
        "generate_stream: responses e1": ("400 [{'error': 'bad luck'}, {'OUT': '1', 'model_name': 'responses', 'model_version': '1'}]", "500 [{'error': 'bad luck'}, {'model_name': 'responses', 'model_version': '1', 'OUT': '1'}]"),
    }),
    Deliberate('6.01', "A field of the wrong type is the client's fault, and named.", {
        "repository index, ready as text": ('500 attempt to access JSON non-boolean as boolean', "400 Invalid value for 'ready': expected a boolean (got 'yes')"),
    }),
    Deliberate('1.07', "Newer Triton says why a model is not ready, with the status of the reason; 2.51 says only that it is not.", {
        "unloaded version ready": ('400 Model version not ready', "404 Request for unknown model: 'latest' version 1 is not found"),
        "unknown version ready": ('400 Model version not ready', "404 Request for unknown model: 'add_sub' version 2 is not found"),
        "unknown model ready": ('400 Model version not ready', "400 Request for unknown model: 'nobody' is not found"),
    }),
    Deliberate('26.02', "Who is not ready is named.", {
        "broken: ready": ('400', "400 models that are not ready: in_initialize, without_class, without_version"),
    }),
    Deliberate('1.39', "tritonclient sends names through quote(), so a quoted name is the name.", {
        "metadata of a quoted name": ("404 Request for unknown model: 'add%5Fsub' is not found", '200 add_sub'),
    }),
    Deliberate('1.16', "Newer Triton names an overflow or an impossible size for what it is.", {
        "overflowing shape": ("400 [request id: <id_unknown>] unexpected shape for input 'INPUT0' for model 'identity_fp32'. Expected [-1], got [4611686018427387904,8].", "400 invalid shape for input 'INPUT0': shape [4611686018427387904, 8] causes total element count to exceed maximum size of 9223372036854775807"),
        "shape of 2^63": ("500 Unable to parse 'data': Shape does not match true shape of 'data' field", "400 invalid shape for input 'INPUT0': shape [9223372036854775808] contains one or more invalid dimensions"),
        "overflowing shape with bytes": ("400 [request id: <id_unknown>] unexpected shape for input 'INPUT0' for model 'identity_fp32'. Expected [-1], got [4611686018427387904,4].", "400 invalid shape for input 'INPUT0': shape [4611686018427387904, 4] causes total element count to exceed maximum size of 9223372036854775807"),
    }),
    Deliberate('1.28', "2.51 tries to allocate it, and its process ends; newer Triton refuses what is beyond --http-max-input-size.", {
        "huge shape": ('crashed', "400 JSON input 'INPUT0' has a byte_size (4398046511104 bytes) that exceeds the maximum allowed value of 67108864 bytes. Use --http-max-input-size to increase the limit."),
    }),
    Deliberate('1.15', "Newer Triton bounds the nesting of JSON data at 100, against stack overflow.", {
        "depth of 101": ("200 OUTPUT0=['1.0']", "400 Unable to parse 'data': JSON nesting depth exceeds maximum allowed limit (100)"),
        "depth of 5000": ("200 OUTPUT0=['1.0']", "400 Unable to parse 'data': JSON nesting depth exceeds maximum allowed limit (100)"),
        "nested objects of 5000": ("500 Unable to parse 'inputs': attempt to access JSON non-array as array", "400 Unable to parse 'data': JSON nesting depth exceeds maximum allowed limit (100)"),
    }),
    Deliberate('1.20', "Newer Triton refuses an output that is asked for twice.", {
        "an output twice": ("200 OUTPUT0=['2.0', '3.0', '4.0', '5.0']", "400 [request id: <id_unknown>] output 'OUTPUT0' already exists in request"),
    }),
    Deliberate('1.15', "A number that its data type cannot hold is refused; 2.51 computes with another number.", {
        "json out of range of UINT8": ('200 OUT_UINT8=[0]', "400 Unable to parse 'data': 256 of input 'IN_UINT8' is outside UINT8's range 0 to 255"),
        "json out of range of UINT16": ('200 OUT_UINT16=[0]', "400 Unable to parse 'data': 65536 of input 'IN_UINT16' is outside UINT16's range 0 to 65535"),
        "json out of range of INT8": ('200 OUT_INT8=[-128]', "400 Unable to parse 'data': 128 of input 'IN_INT8' is outside INT8's range -128 to 127"),
        "json out of range of INT16": ('200 OUT_INT16=[-32768]', "400 Unable to parse 'data': 32768 of input 'IN_INT16' is outside INT16's range -32768 to 32767"),
        "json out of range of INT32": ('200 OUT_INT32=[-2147483648]', "400 Unable to parse 'data': 2147483648 of input 'IN_INT32' is outside INT32's range -2147483648 to 2147483647"),
    }),
    Deliberate('1.13', "Of a field given twice the last one counts, as in every JSON parser but this one.", {
        "a field twice": ("500 Unable to parse 'data': Shape does not match true shape of 'data' field", "200 OUTPUT0=['1.0', '2.0']"),
    }),
    Deliberate('1.13', "The whole body must be JSON in UTF-8, from its first byte to its last: 2.51 stops at a zero byte, skips a byte order mark and lets any byte into a name.", {
        "a byte that is not UTF-8": ("400 unexpected inference input '\udcff' for model 'identity_fp32'", '500 failed to parse the request JSON buffer: ...'),
        "a zero byte": ("400 [request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'identity_fp32'. Got input(s) [], but missing required input(s) ['INPUT0']. Please provide all required input(s).", '500 failed to parse the request JSON buffer: ...'),
        "a byte order mark": ("200 OUTPUT0=['1.0']", '500 failed to parse the request JSON buffer: ...'),
    }),
    Deliberate('2.02', "Binary tensors behind a JSON whose length was not told are a mistake of the request whatever their bytes are, and the answer asks for the header; 2.51 says so where the first is zero, or is none that could follow.", {
        "binary that is text without head length": ('500 failed to parse the request JSON buffer: ...', "400 unexpected size for input 'INPUT0', expecting 16 additional bytes for model 'add_sub' (binary_data_size is 16, 0 bytes are left behind the JSON; is the request header Inference-Header-Content-Length set?)"),
    }),
    Deliberate('7.01', "A whole number stays one.", {
        "a parameter of 2^63": ('200 FACTS=[\'{"correlation_id": 0, "flags": 0, "id": "", "inputs": [["INPUT0", [1], [7]]], "parameters": {"i": 9.223372036854776e+18}, "requested": ["FACTS", "ZEROS"], "timeout": 0}\'] ZEROS=[0, 0]', '200 FACTS=[\'{"correlation_id": 0, "flags": 0, "id": "", "inputs": [["INPUT0", [1], [7]]], "parameters": {"i": 9223372036854775808}, "requested": ["FACTS", "ZEROS"], "timeout": 0}\'] ZEROS=[0, 0]'),
    }),
    Deliberate('15.55', "Which of several wrong inputs is named is by order of the configuration; 2.51 goes by its hash table.", {
        "batch of none": ("400 [request id: <id_unknown>] input byte size mismatch for input 'INPUT1' for model 'batched'. Expected 16, got 0", "400 [request id: <id_unknown>] input byte size mismatch for input 'INPUT0' for model 'batched'. Expected 16, got 0 (the batch dim..."),
        "batches that differ": ("400 [request id: <id_unknown>] input 'INPUT0' batch size does not match other inputs for 'batched'", "400 [request id: <id_unknown>] input 'INPUT1' batch size does not match other inputs for 'batched' (got 2, others have 1)"),
        "batch dimension missing": ("400 [request id: <id_unknown>] unexpected shape for input 'INPUT1' for model 'batched'. Expected [-1,4], got [4]. ...", "400 [request id: <id_unknown>] unexpected shape for input 'INPUT0' for model 'batched'. Expected [-1,4], got [4]. ..."),
        "wrong shape in a batching model": ("400 [request id: <id_unknown>] unexpected shape for input 'INPUT1' for model 'batched'. Expected [-1,4], got [1,5]. ...", "400 [request id: <id_unknown>] unexpected shape for input 'INPUT0' for model 'batched'. Expected [-1,4], got [1,5]. ..."),
        "both data types wrong": ("400 [request id: <id_unknown>] inference input 'INPUT1' data-type is 'FP64', but model 'add_sub' expects 'FP32'", "400 [request id: <id_unknown>] inference input 'INPUT0' data-type is 'INT32', but model 'add_sub' expects 'FP32'"),
    }),
    Deliberate('15.55', "2.51 prints half of an empty list.", {
        "one input too many": ("400 [request id: <id_unknown>] expected 2 inputs but got 3 inputs for model 'add_sub'. Got input(s) ['INPUT2','INPUT1','INPUT0'], but missing required input(s) ]. Please provide all required input(s).", "400 [request id: <id_unknown>] expected 2 inputs but got 3 inputs for model 'add_sub'. Got input(s) ['INPUT0','INPUT1','INPUT2'], but missing required input(s) []. Please provide all required input(s)."),
    }),
    Deliberate('15.55', "A required input is missing, whatever else is there; 2.51 only counts.", {
        "optional input alone": ('200 FACTS=[\'{"correlation_id": 0, "flags": 0, "id": "", "inputs": [["EXTRA", [1], [1]]], "parameters": {}, "requested": ["FACTS", "ZEROS"], "timeout": 0}\'] ZEROS=[0, 0]', "400 [request id: <id_unknown>] expected number of inputs between 1 and 2 but got 1 inputs for model 'facts'. Got input(s) ['EXTRA'], but missing required input(s) ['INPUT0']. Please provide all required input(s)."),
    }),
    Deliberate('10.02', "A region that starts within a file is that part of it; 2.51 adds the offset twice, and reads what lies behind the mapping.", {
        "regions: part of a file": ("200 | 200 [{'name': 'r', 'key': '" + KEY[1:] + "', 'offset': 4096, 'byte_size': 16}] | ...", "200 | 200 [{'name': 'r', 'key': '" + KEY[1:] + "', 'offset': 4096, 'byte_size': 16}] | 200 OUTPUT0=['1024.0', '1025.0', '1026.0', '1027.0'] | 400 Invalid offset + byte size for shared memory region: 'r' (input 'INPUT0': offset 0 + byte_size 20, the region has 16 bytes) | 200"),
    }),
    Deliberate('10.02', "A region may start anywhere in its file, and must have a byte; 2.51 passes on what the kernel says of a mapping.", {
        "regions: an odd offset": ("400 failed to register shared memory region 'r': unable to process address spaceInvalid argument | 200", '200 | 200'),
        "regions: no bytes": ("400 failed to register shared memory region 'r': unable to process address spaceInvalid argument | 200", "400 failed to register shared memory region 'r': invalid args (offset 0 + byte_size 0; the file of key '" + KEY + "' has 8192 bytes, byte_size may be 1 to 8192) | 200"),
        "regions: an offset that overflows": ("400 failed to register shared memory region 'r': unable to process address spaceInvalid argument | 200", "400 failed to register shared memory region 'r': invalid args (offset 18446744073709551584 + byte_size 64; the file of key '" + KEY + "' has 8192 bytes, and there are none behind the offset) | 200"),
    }),
    Deliberate('10.03', "Newer Triton refuses keys that are no name, and those of its own regions.", {
        "regions: slashes only": ("500 Unable to open shared memory region: '//' | 200", "400 cannot register shared memory region 'r' - invalid shm key '//' | 200"),
        "regions: the reserved prefix": ("500 Unable to open shared memory region: '/triton_python_backend_shm_region_x' | 200", "400 cannot register shared memory region 'r' with key '/triton_python_backend_shm_region_x' as the key contains the reserved prefix 'triton_python_backend_shm_region_' | 200"),
    }),
    Deliberate('10.07', "A machine without a GPU is called so.", {
        "regions: CUDA without GPU": ('400 failed to register shared memory region: invalid args | 200', "400 failed to register CUDA shared memory region: 'c', GPUs not supported (..."),
    }),
    Deliberate('10.07', "A GPU below zero is a GPU that is not there, as over gRPC, and as one above the last; 2.51 takes it for broken JSON.", {
        "regions: CUDA on a GPU below zero": ('500 attempt to access JSON non-unsigned-integer as unsigned-integer | 200', "400 failed to register CUDA shared memory region: 'c', GPUs not supported (..."),
    }),
    Deliberate('2.01', "Inference-Header-Content-Length must be a number, and one: newer Triton refuses another text, 2.51 reads what it can of it (a front end that guesses where the JSON ends can be tricked). The body is left unread, so the connection ends.", {
        "head length negative": ('400 inference header size should be in range (0, 232), got: -1', '400, connection: close inference header size should be in range (0, 232), got: -1'),
        "head length text": ("400 [request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'add_sub' model configuration", '400, connection: close Unable to parse Inference-Header-Content-Length, got: x'),
        "head length empty": ("400 [request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'add_sub' model configuration", '400, connection: close Unable to parse Inference-Header-Content-Length, got:'),
        "head length with text": ("200 OUTPUT0=['2.0', '4.0', '6.0', '8.0'] OUTPUT1=['0.0', '0.0', '0.0', '0.0']", '400, connection: close Unable to parse Inference-Header-Content-Length, got: 200x'),
        "head length with plus": ("200 OUTPUT0=['2.0', '4.0', '6.0', '8.0'] OUTPUT1=['0.0', '0.0', '0.0', '0.0']", '400, connection: close Unable to parse Inference-Header-Content-Length, got: +200'),
        "head length float": ('500 failed to parse the request JSON buffer: ...', '400, connection: close Unable to parse Inference-Header-Content-Length, got: 1.5'),
        "head length beyond 32 bits": ("400 [request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'add_sub' model configuration", '400, connection: close Unable to parse Inference-Header-Content-Length, value is out of range [ 0, 2147483647 ], got: 4294967296'),
        "head length beyond 64 bits": ('400 inference header size should be in range (0, 232), got: 18446744073709551616', '400, connection: close Unable to parse Inference-Header-Content-Length, value is out of range [ 0, 2147483647 ], got: 18446744073709551616'),
        "head length twice": ("200 OUTPUT0=['2.0', '4.0', '6.0', '8.0'] OUTPUT1=['0.0', '0.0', '0.0', '0.0']", "400, connection: close HTTP request head has 2 different inference-header-content-length headers: [b'200', b'5']"),
    }),
    Deliberate('1.12', "The request is refused by its head; the body is left unread, so the connection ends.", {
        "version beyond 64 bits": ("400 failed to get model version from specified version string '18446744073709551616' (details: stol), version should be an integral value > 0", "400, connection: close failed to get model version from specified version string '18446744073709551616' (details: stol), version should be an integral value > 0"),
    }),
    Deliberate('1.26', "No encoding is identity, and the names of encodings have no case (RFC 9110, 8.4.1).", {
        "empty encoding": ('501 Unsupported compression type', "200 OUTPUT0=['2.0', '3.0', '4.0', '5.0'] OUTPUT1=['0.0', '1.0', '2.0', '3.0']"),
        "GZIP in capitals": ('501 Unsupported compression type', "200 OUTPUT0=['2.0', '3.0', '4.0', '5.0'] OUTPUT1=['0.0', '1.0', '2.0', '3.0']"),
    }),
    Deliberate('1.26', "A compressed body must be whole and of the format its header says; 2.51 goes on with what it could unpack, be it nothing.", {
        "gzip body that is none": ("400 [request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'add_sub' model configuration", '400 request body is not in the gzip format its Content-Encoding says: ...'),
        "gzip body cut off": ("200 OUTPUT0=['2.0', '3.0', '4.0', '5.0'] OUTPUT1=['0.0', '1.0', '2.0', '3.0']", '400 request body in gzip format ends before its data does (98 bytes received)'),
        "deflate body without header": ("400 [request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'add_sub' model configuration", '400 request body is not in the deflate format its Content-Encoding says: ...'),
        "gzip of no bytes": ('400 nothing to be decompressed', '400 request body in gzip format ends before its data does (0 bytes received)'),
        "deflate body called gzip": ("200 OUTPUT0=['2.0', '3.0', '4.0', '5.0'] OUTPUT1=['0.0', '1.0', '2.0', '3.0']", '400 request body is not in the gzip format its Content-Encoding says: ...'),
    }),
    Deliberate('1.26', "A gzip body may have several members (RFC 1952, 2.2).", {
        "gzip body of two members": ('500 failed to parse the request JSON buffer: ...', "200 OUTPUT0=['2.0', '3.0', '4.0', '5.0'] OUTPUT1=['0.0', '1.0', '2.0', '3.0']"),
    }),
    Deliberate('1.29', "Chunk extensions are legal (RFC 9112, 7.1.1).", {
        "chunk extension": ('closed', "200 OUTPUT0=['2.0', '3.0', '4.0', '5.0'] OUTPUT1=['0.0', '1.0', '2.0', '3.0']"),
    }),
    Deliberate('1.34', "A malformed request is answered with 400 and the reason; 2.51 hangs up, is silent, or takes it.", {
        "an unknown verb": ('405 Method Not Allowed', '400, connection: close malformed HTTP request head: ...'),
        "chunk size not a number": ('closed', '400, connection: close chunk size expected, found byte 0x7a'),
        "chunk size too great to be": ('silence', '400, connection: close chunk size has more than 15 hex digits'),
        "bare line feeds": ('closed', '400, connection: close malformed HTTP request head: ...'),
        "HTTP/2 preface": ('closed', '400, connection: close HTTP/2.0 is not served on this port, HTTP/1.0 and HTTP/1.1 are'),
        "garbage": ('closed', '400, connection: close this port speaks plain HTTP, the client began a TLS handshake; use http:// instead of https://'),
        "a header without colon": ('closed', '400, connection: close malformed HTTP request head: ...'),
        "a header with a space in its name": ('200', '400, connection: close malformed HTTP request head: ...'),
        "a folded header": ('closed', '400, connection: close malformed HTTP request head: ...'),
        "target with a zero byte": ('200 triton', '400, connection: close malformed HTTP request head: ...'),
        "version of text": ('closed', '400, connection: close malformed HTTP request head: ...'),
        "no version": ('silence', '400, connection: close HTTP/0.9 is not served on this port, HTTP/1.0 and HTTP/1.1 are'),
        "content length negative": ('closed', '400, connection: close malformed HTTP request head: ...'),
        "content length text": ('closed', '400, connection: close malformed HTTP request head: ...'),
    }),
    Deliberate('1.34', "Two lengths, or a length beside chunks, are how requests are smuggled past a proxy: refused.", {
        "content length twice, equal": ("200 OUTPUT0=['2.0', '3.0', '4.0', '5.0'] OUTPUT1=['0.0', '1.0', '2.0', '3.0']", '400, connection: close malformed HTTP request head: ...'),
        "content length twice, different": ('400 unexpected size for request JSON, expecting 167 more bytes', '400, connection: close malformed HTTP request head: ...'),
        "content length and chunks": ("200 OUTPUT0=['2.0', '3.0', '4.0', '5.0'] OUTPUT1=['0.0', '1.0', '2.0', '3.0']", '400, connection: close malformed HTTP request head: ...'),
    }),
    Deliberate('1.34', "The head of a request is bounded as a whole, and the client is told.", {
        "a header of 100 KB": ('closed', '400, connection: close HTTP request head has 100046 bytes, 65536 is the limit'),
        "headers of 200 KB": ('200', '400, connection: close HTTP request head exceeds 65536 bytes'),
        "a target of 100 KB": ('closed', '400, connection: close HTTP request head has 100030 bytes, 65536 is the limit'),
    }),
    Deliberate('1.34', "A request has one Host (RFC 9112, 3.2): proxies could route it by the one and we answer by the other.", {
        "two hosts": ('200', '400, connection: close HTTP request head has 2 Host headers, one is allowed'),
    }),
    Deliberate('1.02', "The root is a page for people; an absolute target without a path asks for the root (RFC 9112, 3.2.2).", {
        "root": ('404 Not Found', '200 a page'),
        "absolute target without path": ('closed', '200 a page'),
    }),
    Deliberate('1.34', "An empty line before a request is to be ignored (RFC 9112, 2.2).", {
        "empty line first": ('silence', '200'),
    }),
    Deliberate('1.34', "An HTTP/1.0 client is told that the connection ends.", {
        "HTTP/1.0": ('200', '200, connection: close'),
        "HTTP/1.0 metadata": ('200 triton', '200, connection: close triton'),
        "HTTP/1.0 infer": ("200 OUTPUT0=['2.0', '3.0', '4.0', '5.0'] OUTPUT1=['0.0', '1.0', '2.0', '3.0']", "200, connection: close OUTPUT0=['2.0', '3.0', '4.0', '5.0'] OUTPUT1=['0.0', '1.0', '2.0', '3.0']"),
    }),
    Deliberate('1.37', "A path that the metrics port does not have is 404, not an empty page.", {
        "unknown route of metrics": ('200', '404 Not Found'),
    }),
    Deliberate('16.07', "A model that returns None for its answers gets an error; 2.51 leaves the client without any answer.", {
        "model: returns_none": ('silence', "500 Failed to process the request(s) for model 'misbehave_0_0', message: Expected a list in the execute return, found type '<class 'NoneType'>'."),
        "model: returns_none_inside": ('silence', "500 Failed to process the request(s) for model 'misbehave_0_0', message: Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'NoneType'>'."),
    }),
    Deliberate('16.08', "A wrong argument is explained in words, not by a C++ signature.", {
        "model: tensor_of_list": ("500 Failed to process the request(s) for model 'misbehave_0_0', message: TypeError: __init__(): incompatible constructor arguments. ...", "500 Failed to process the request(s) for model 'misbehave_0_0', message: TypeError: Tensor(name: str, array: numpy.ndarray): the array of 'OUTPUT0' is not an array, but an object of type list..."),
        "model: error_as_text": ("500 Failed to process the request(s) for model 'misbehave_0_0', message: TypeError: __init__(): incompatible constructor arguments. ...", "500 Failed to process the request(s) for model 'misbehave_0_0', message: TypeError: InferenceResponse: error must be a TritonError, as TritonError(message), not an object of type str..."),
    }),
]
# fmt: on

BY_CASE: Final[dict[str, tuple[str, str]]] = {name: pair for each in TABLE for name, pair in each.cases.items()}
VARYING: Final[frozenset[str]] = frozenset(name for each in TABLE if each.sometimes for name in each.cases)
