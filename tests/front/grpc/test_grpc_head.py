"""Fields of a gRPC head."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tisfast.front.grpc.head import accepted_codings

BITS = {"gzip": 2, "deflate": 4}


@pytest.mark.parametrize(
    ("value", "bits"),
    [(b"", 0), (b"identity", 0), (b"gzip", 2), (b"identity, deflate, gzip", 6), (b"deflate,gzip", 6),
     (b" gzip\t,", 2), (b",,deflate", 4), (b"gzipx, xdeflate, gzip;q=1", 0), (b"GZIP", 0)],
)  # fmt: skip
def test_codings_that_a_client_accepts(value, bits):
    assert accepted_codings(value) == bits


NAMES = st.sampled_from(["gzip", "deflate", "identity", "br", "", "gz ip"])


@given(st.lists(NAMES), st.sampled_from([",", ", ", " ,\t"]))
def test_codings_of_any_list(names, comma):
    assert accepted_codings(comma.join(names).encode()) == sum(BITS[name] for name in {*names} & BITS.keys())


@given(st.binary())
def test_no_value_hurts(value):
    assert accepted_codings(value) in (0, 2, 4, 6)
