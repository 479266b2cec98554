"""Header forwarding and restriction of HTTP requests, from head to verdict."""

from __future__ import annotations

import json

import pytest

from tisfast.config.settings import HttpSettings
from tisfast.errors import ConfigError
from tisfast.operations.header_policy import http_policy
from tisfast.wire import head


def judge(policy, method="POST", path="/v2/models/m/infer", **headers):
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return policy.judge(head.parse(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()))


def forwarding(pattern):
    return http_policy(HttpSettings(forward_pattern=pattern))


def test_without_flags_there_is_no_policy():
    assert http_policy(HttpSettings()) is None


def test_headers_are_found_anywhere_in_their_name_without_regard_to_case():
    verdict = judge(forwarding("MY-"), my_one="1", x_My_two="zwei", other="3")
    assert json.loads(verdict.forwarded) == {"my-one": "1", "x-My-two": "zwei"}


def test_only_inferences_get_them():
    assert judge(forwarding("my-"), path="/v2/models/m/generate", my_one="1").forwarded == b""


def test_text_beyond_ascii_is_utf8():
    assert json.loads(judge(forwarding("my-"), my_one="é").forwarded) == {"my-one": "é"}


@pytest.mark.parametrize("name", ["priority", "timeout", "headers", "triton_x", "sequence_id", "binary_data_output"])
def test_reserved_names_are_refused(name):
    policy = forwarding(".*")
    verdict = policy.judge(head.parse(f"POST /v2/models/m/infer HTTP/1.1\r\n{name}: 1\r\n\r\n".encode()))
    assert verdict.refusal.status == 400
    assert b"is reserved for Triton usage" in verdict.refusal.body


def test_a_broken_pattern_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"--http-header-forward-pattern=\("):
        forwarding("(")


RESTRICTED = HttpSettings(restricted=("inference:key=v", "health:other=w"))


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v2/models/m/infer", False),
        ("POST", "/v2/models/m/versions/1/generate_stream", False),
        ("GET", "/v2/models/m/infer", False),  # before the verb is looked at
        ("GET", "/v2/models/m/ready", False),
        ("GET", "/v2/models/m", True),
        ("GET", "/v2/nothing", True),
    ],
)
def test_restriction_goes_by_the_category_of_the_path(method, path, allowed):
    refusal = judge(http_policy(RESTRICTED), method, path).refusal
    assert (refusal is None) == allowed
    assert refusal is None or refusal.status == 403


def test_each_group_has_a_header_of_its_own():
    policy = http_policy(RESTRICTED)
    assert judge(policy, KEY="v").refusal is None
    assert judge(policy, other="w").refusal.status == 403
    assert judge(policy, "GET", "/v2/health/live", other="w").refusal is None
