"""The frames that the least gRPC client sends."""

from __future__ import annotations

from tritonclient.grpc import service_pb2 as pb

from perf.client_floor import frames


def test_the_least_client_asks_with_frames_of_http2():
    """A server that takes them is not enough: a refusal costs the client less."""
    sent = frames("add_sub", ("INPUT0", "INPUT1"), 4)
    found = []
    while sent:
        size, kind, flags, stream = int.from_bytes(sent[:3], "big"), sent[3], sent[4], sent[5:9]
        found.append((kind, flags, sent[9 : 9 + size]))
        assert stream == bytes(4)
        sent = sent[9 + size :]
    (head, head_flags, _), (data, data_flags, body) = found
    assert (head, head_flags, data, data_flags) == (1, 4, 0, 1)
    message = pb.ModelInferRequest.FromString(body[5:])
    assert body[:5] == b"\0" + len(body[5:]).to_bytes(4, "big") and message.model_name == "add_sub"
    assert [(each.name, each.datatype, list(each.shape)) for each in message.inputs] == [
        ("INPUT0", "FP32", [4]), ("INPUT1", "FP32", [4]),
    ]  # fmt: skip
    assert list(message.raw_input_contents) == [bytes(16)] * 2

