"""--cache-config: what is asked for, with Triton's words for what cannot be."""

from __future__ import annotations

import pytest

from tests.config.loading import shown
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


REFUSED = [
    (
        "local",
        "cache-config | No cache specified. --cache-config option format is <cache name>,<setting>=<value>. Got "
        "local",
    ),
    (
        ",size=3",
        "cache-config | No cache specified. --cache-config option format is <cache name>,<setting>=<value>. Got "
        ",size=3",
    ),
    (
        "local,size",
        "cache-config | --cache-config option format is '<cache name>,<setting>=<value>'. Got local,size",
    ),
    (
        "local,size=",
        "cache-config | --cache-config option format is '<cache name>,<setting>=<value>'. Got local,size=",
    ),
    ("local,=3", "cache-config | --cache-config option format is '<cache name>,<setting>=<value>'. Got local,=3"),
    (
        "local,bogus=3",
        "cache-config | Failed to initialize LocalCache: config didn't contain a valid 'size' field. | "
        "--cache-config=local,size=BYTES",
    ),
    (
        "nobody,size=3",
        "cache-config | unable to find 'libtritoncache_nobody.so' for cache: --cache-config nobody names no cache "
        "of tisfast | served: local, redis",
    ),
    ("local,size=abc", "cache-config | --cache-config local,size=abc: 'abc' is not a whole number"),
    ("local,size=-1", "cache-config | --cache-config local,size=-1: '-1' is not a whole number"),
    ("local,size=1.5", "cache-config | --cache-config local,size=1.5: '1.5' is not a whole number"),
    ("local,size=٣", "cache-config | --cache-config local,size=٣: '٣' is not a whole number"),
    ("local,size=0", "cache-config | --cache-config local,size=0 must be 200 to 549755813888"),
    ("local,size=199", "cache-config | --cache-config local,size=199 must be 200 to 549755813888"),
    (
        "local,size=549755813889",
        "cache-config | --cache-config local,size=549755813889 must be 200 to 549755813888",
    ),
    (
        "local,size=99999999999999999999",
        "cache-config | --cache-config local,size=99999999999999999999 is above 9223372036854775807",
    ),
    (
        "local,size=8192 local,size=4096",
        "cache-config | --cache-config local,size is given twice, with different values",
    ),
    (
        "local,size=8192 redis,host=h redis,port=1",
        "cache-config | found multiple cache configurations, but only a single cache is currently supported: "
        "local, redis",
    ),
    (
        "redis,host=h",
        "cache-config | Failed to initialize RedisCache, didn't specify address. Must at a minimum specify 'host' "
        "and 'port' in the configuration - e.g. tritonserver --cache-config redis,host=redis --cache-config "
        "redis,port=6379 --model-repository=/models ...",
    ),
    (
        "redis,port=1",
        "cache-config | Failed to initialize RedisCache, didn't specify address. Must at a minimum specify 'host' "
        "and 'port' in the configuration - e.g. tritonserver --cache-config redis,host=redis --cache-config "
        "redis,port=6379 --model-repository=/models ...",
    ),
    ("redis,host=h redis,port=x", "cache-config | --cache-config redis,port=x: 'x' is not a whole number"),
    ("redis,host=h redis,port=0", "cache-config | --cache-config redis,port=0 must be 1 to 65535"),
    ("redis,host=h redis,port=65536", "cache-config | --cache-config redis,port=65536 must be 1 to 65535"),
    (
        "redis,host=h redis,port=1 redis,size=1",
        "cache-config | --cache-config redis,size is no setting of the cache 'redis' | known: host, port, user, "
        "password, db, pool_size, connect_timeout, socket_timeout, wait_timeout, tls_enabled, cert, key, cacert, "
        "cacert_dir, sni",
    ),
    ("redis,host=h redis,port=1 redis,db=65536", "cache-config | --cache-config redis,db=65536 must be 0 to 65535"),
    (
        "redis,host=h redis,port=1 redis,db=-1",
        "cache-config | --cache-config redis,db=-1: '-1' is not a whole number",
    ),
    (
        "redis,host=h redis,port=1 redis,pool_size=0",
        "cache-config | --cache-config redis,pool_size=0 must be 1 to 1024",
    ),
    (
        "redis,host=h redis,port=1 redis,pool_size=1000000",
        "cache-config | --cache-config redis,pool_size=1000000 must be 1 to 1024",
    ),
    (
        "redis,host=h redis,port=1 redis,connect_timeout=0",
        "cache-config | --cache-config redis,connect_timeout=0 must be 1 to 60000",
    ),
    (
        "redis,host=h redis,port=1 redis,socket_timeout=60001",
        "cache-config | --cache-config redis,socket_timeout=60001 must be 1 to 60000",
    ),
    (
        "redis,host=h redis,port=1 redis,wait_timeout=soon",
        "cache-config | --cache-config redis,wait_timeout=soon: 'soon' is not a whole number",
    ),
    (
        "redis,host=h redis,port=1 redis,tls_enabled=yes",
        "cache-config | --cache-config redis,tls_enabled=yes is neither true nor false",
    ),
    (
        "redis,host=h redis,port=1 redis,cert=c",
        "cache-config | --cache-config redis,cert needs TLS, which is off | add redis,tls_enabled=true",
    ),
    (
        "redis,host=h redis,port=1 redis,tls_enabled=false redis,sni=s",
        "cache-config | --cache-config redis,sni needs TLS, which is off | add redis,tls_enabled=true",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "error"), REFUSED)
def test_a_cache_that_cannot_be_is_told_with_the_flag_and_the_value(text, error):
    with pytest.raises(ConfigError) as caught:
        read(*text.split())
    assert shown(caught.value) == error


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


@pytest.mark.parametrize("size", [limits.CACHE_BYTES_MIN, limits.CACHE_BYTES_MAX])
def test_the_smallest_and_the_largest_cache(size):
    assert read(f"local,size={size}") == read(byte_size=size) == LocalCacheSettings(size)


@pytest.mark.parametrize("size", [-1, 199, limits.CACHE_BYTES_MAX + 1])
def test_an_error_of_the_legacy_flag_names_the_legacy_flag(size):
    with pytest.raises(ConfigError) as caught:
        read(byte_size=size)
    assert shown(caught.value) == (
        f"response-cache-byte-size | --response-cache-byte-size={size} must be 200 to 549755813888 | 0 for no cache"
    )


def test_the_same_setting_twice_is_one_setting():
    assert read("local,size=8192", "local,size=8192") == LocalCacheSettings(8192)


def test_what_redis_is_not_told_has_its_default():
    found = read(*ADDRESS)
    assert (found.user, found.password, found.db, found.tls) == ("", "", 0, None)
    assert found == RedisSettings("h", 6379) and found.where == "h:6379"


@pytest.mark.parametrize(("entry", "name", "value"), [
    ("db=65535", "db", 65535),
    ("pool_size=1024", "pool_size", 1024),
    ("connect_timeout=60000", "connect_timeout_ms", 60000),
    ("socket_timeout=1", "socket_timeout_ms", 1),
    ("wait_timeout=0060", "wait_timeout_ms", 60),
    ("tls_enabled=true", "tls", RedisTls()),
    ("tls_enabled=false", "tls", None),
])  # fmt: skip
def test_each_setting_of_redis_becomes_a_value(entry, name, value):
    assert getattr(read(*ADDRESS, f"redis,{entry}"), name) == value


def test_variables_that_are_empty_stand_for_nothing():
    environ = {"TRITON_REDIS_HOST": "", "TRITON_REDIS_PORT": "1"}
    with pytest.raises(ConfigError, match="didn't specify address"):
        read("redis,db=0", environ=environ)


def test_a_port_of_the_environment_is_checked_as_one_of_the_flag():
    with pytest.raises(ConfigError) as caught:
        read("redis,host=h", environ={"TRITON_REDIS_PORT": "many"})
    assert shown(caught.value) == "cache-config | --cache-config redis,port=many: 'many' is not a whole number"
