"""Messages that a codec process is to read, and that no process can: the call goes on, and each is refused once."""

from __future__ import annotations

import errno

from tests.front.grpc.helpers import STREAM_INFER, message
from tisfast.codec import pool
from tisfast.codec.pool import Codecs
from tisfast.descriptors import message_class
from tisfast.front.grpc.front import GrpcExtras

MESSAGES = 200  # more than one turn of the loop handles, so that some are held


class NoProcess:
    """The system has none to give."""

    def __init__(self, *_):
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")


def asked(number):
    request = message_class("inference.ModelInferRequest")(model_name="m", id=str(number))
    tensor = request.inputs.add(name="I", datatype="FP32", shape=[1])
    tensor.contents.fp32_contents.append(1)
    return message(request.SerializeToString())


def test_jobs_that_cannot_begin_are_refused_once_each_and_in_order(run, monkeypatch):
    monkeypatch.setattr(pool, "Codec", NoProcess)

    async def scenario(server):
        client = await server.connect()
        call = client.call(STREAM_INFER, body=b"".join(map(asked, range(MESSAGES))))
        result = await client.result(call)
        answers = [message_class("inference.ModelStreamInferResponse").FromString(each) for each in result.messages]
        assert [answer.infer_response.id for answer in answers] == [str(n) for n in range(MESSAGES)]
        assert {answer.error_message for answer in answers} == {
            "no process to work on the request: Resource temporarily unavailable"
        }
        assert result.status == "0"

    codecs = Codecs(None, processes_max=1, bytes_min=1, memory_bytes=1 << 30, text_bytes=1 << 28)
    run(scenario, extras=GrpcExtras(codecs=codecs))
