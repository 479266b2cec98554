"""--cache-config: what is asked for, with Triton's words for what cannot be."""

from __future__ import annotations

import pytest

from tisfast import limits
from tisfast.config.cache_flags import LocalCacheSettings, RedisSettings, RedisTls, read_cache_flags
from tisfast.errors import ConfigError

NAMELESS = "--cache-config option format is <cache name>,<setting>=<value>."
ADDRESS = ("redis,host=h", "redis,port=6379")


def read(*entries, byte_size=None, environ=None, notices=None):
    return read_cache_flags(entries, byte_size, environ or {}, [] if notices is None else notices)


def test_no_flag_no_cache():
    assert read() is None


def test_local():
    assert read("local,size=1048576") == LocalCacheSettings(1048576)


def test_redis_with_everything():
    tls = RedisTls("c", "k", "a", "d", "s")
    assert read(
        *ADDRESS, "redis,user=u", "redis,password=a=b,c", "redis,db=3", "redis,pool_size=4",
        "redis,connect_timeout=500", "redis,socket_timeout=50", "redis,wait_timeout=20", "redis,tls_enabled=true",
        "redis,cert=c", "redis,key=k", "redis,cacert=a", "redis,cacert_dir=d", "redis,sni=s",
    ) == RedisSettings("h", 6379, "u", "a=b,c", 3, 500, 50, 20, 4, tls)  # fmt: skip


def test_a_password_is_not_printed():
    assert "secret" not in repr(read(*ADDRESS, "redis,password=secret"))


def test_the_environment_stands_for_what_is_not_given():
    environ = {"TRITON_REDIS_HOST": "e", "TRITON_REDIS_PORT": "1", "TRITONCACHE_REDIS_USERNAME": "u",
               "TRITONCACHE_REDIS_PASSWORD": "p"}  # fmt: skip
    assert read("redis,db=0", environ=environ) == RedisSettings("e", 1, "u", "p")
    assert read(*ADDRESS, "redis,user=me", environ=environ) == RedisSettings("h", 6379, "me", "p")


def test_the_legacy_flag_is_the_local_cache():
    notices = []
    assert read(byte_size=1 << 20, notices=notices) == LocalCacheSettings(1 << 20)
    assert "--cache-config=local,size=1048576" in notices[0]
    assert read(byte_size=0) is None


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["local"], f"No cache specified. {NAMELESS} Got local"),
        ([",size=3"], f"No cache specified. {NAMELESS} Got ,size=3"),
        (["local,size"], "--cache-config option format is '<cache name>,<setting>=<value>'. Got local,size"),
        (["local,size="], "--cache-config option format is '<cache name>,<setting>=<value>'. Got local,size="),
        (["local,=3"], "--cache-config option format is '<cache name>,<setting>=<value>'. Got local,=3"),
        (["local,bogus=3"], "config didn't contain a valid 'size' field"),
        (["nobody,size=3"], "unable to find 'libtritoncache_nobody.so' for cache"),
        (["local,size=abc"], "'abc' is not a whole number"),
        (["local,size=-1"], "'-1' is not a whole number"),
        (["local,size=0"], f"must be {limits.CACHE_BYTES_MIN} to {limits.CACHE_BYTES_MAX}"),
        (["local,size=1000000000000000"], "must be"),
        (["local,size=8192", "local,size=4096"], "local,size is given twice"),
        (["local,size=8192", *ADDRESS], "found multiple cache configurations, but only a single cache is currently"),
        (["redis,host=h"], "Failed to initialize RedisCache, didn't specify address. Must at a minimum specify"),
        ([*ADDRESS, "redis,size=1"], "redis,size is no setting"),
        (["redis,host=h", "redis,port=70000"], "redis,port=70000 must be 1 to 65535"),
        ([*ADDRESS, "redis,socket_timeout=0"], "redis,socket_timeout=0 must be 1 to 60000"),
        ([*ADDRESS, "redis,pool_size=0"], "redis,pool_size=0 must be 1 to"),
        ([*ADDRESS, "redis,tls_enabled=yes"], "neither true nor false"),
        ([*ADDRESS, "redis,cert=c"], "redis,cert needs TLS"),
    ],
)
def test_what_cannot_be_is_refused(entries, message):
    with pytest.raises(ConfigError) as caught:
        read(*entries)
    assert message in caught.value.message


def test_what_the_local_cache_does_not_know_is_passed_over_and_told():
    notices = []
    assert read("local,size=8192", "local,extra=1", notices=notices) == LocalCacheSettings(8192)
    assert notices == [
        "--cache-config local,extra=1 has no effect here, because the cache 'local' has one setting, 'size'"
    ]


@pytest.mark.parametrize("size", [200, limits.CACHE_ENTRY_BYTES])
def test_a_cache_that_is_too_small_for_an_answer_is_told(size):
    notices = []
    assert read(f"local,size={size}", notices=notices) == LocalCacheSettings(size)
    assert f"of {size} bytes keeps no answer" in notices[0]


def test_both_flags_are_refused():
    with pytest.raises(ConfigError, match="Incompatible flags --response-cache-byte-size and --cache-config both"):
        read("local,size=8192", byte_size=8192)
