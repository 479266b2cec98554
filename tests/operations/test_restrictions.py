"""The grammar of restricted APIs, and who gets in."""

from __future__ import annotations

import pytest

from tisfast.errors import ConfigError
from tisfast.operations.restrictions import Restrictions


def restrict(*entries, **options):
    return Restrictions(entries, flag="http-restricted-api", **options)


def test_what_is_not_named_is_not_restricted():
    assert restrict("health:k=v").refusal("metadata", {}) is None
    assert not restrict()


@pytest.mark.parametrize("headers", [{}, {"k": "w"}, {"k": "V"}, {"k": ""}, {"other": "v"}])
def test_a_call_without_the_header_is_refused(headers):
    assert restrict("health:k=v").refusal("health", headers) == "This API is restricted, expecting header 'k'"


def test_the_header_lets_in_whatever_its_case():
    assert restrict("health,metadata:Key=v=1:2").refusal("metadata", {"key": "v=1:2"}) is None


def test_grpc_prefixes_the_name():
    found = restrict("health:k=v", prefix="triton-grpc-protocol-", noun="protocol")
    assert found.refusal("health", {"triton-grpc-protocol-k": "v"}) is None
    refusal = found.refusal("health", {"k": "v"})
    assert refusal == "This protocol is restricted, expecting header 'triton-grpc-protocol-k'"


@pytest.mark.parametrize("entry", ["", "health", "health:", "health:k", "health:k=", ":k=v", "health:=v", "a,:k=v"])
def test_what_is_not_of_the_form_is_refused(entry):
    with pytest.raises(ConfigError, match="--http-restricted-api="):
        restrict(entry)


@pytest.mark.parametrize("entries", [["health,health:k=v"], ["health:k=v", "metadata,health:k=w"]])
def test_a_category_in_two_groups_is_refused(entries):
    with pytest.raises(ConfigError, match="'health' can not be specified in multiple config groups"):
        restrict(*entries)


def test_an_unknown_category_is_named_with_those_that_are_known():
    with pytest.raises(ConfigError, match="unknown restricted api 'bogus'") as caught:
        restrict("bogus:k=secret")
    assert "shared-memory" in caught.value.hint
    assert "secret" not in str(caught.value)
