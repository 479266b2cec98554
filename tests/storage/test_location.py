"""URLs of repositories."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tisfast.errors import ConfigError
from tisfast.storage.location import Archive, Bucket, HubRepo, Location, Registered, parse


@pytest.mark.parametrize(
    ("text", "place", "last"),
    [
        ("s3://b", Bucket("s3", "b", ""), "b"),
        ("s3://b/models/resnet/", Bucket("s3", "b", "models/resnet"), "resnet"),
        ("s3://b//models///resnet", Bucket("s3", "b", "models/resnet"), "resnet"),
        ("s3://localhost:9000/b/m", Bucket("s3", "b", "m", "http://localhost:9000"), "m"),
        ("s3://http://10.0.0.1:9000/b", Bucket("s3", "b", "", "http://10.0.0.1:9000"), "b"),
        ("s3://https://minio.internal:443/b/m", Bucket("s3", "b", "m", "https://minio.internal:443"), "m"),
        ("gs://b/m", Bucket("gs", "b", "m"), "m"),
        ("az://c/m", Bucket("az", "c", "m"), "m"),
        ("as://acct/c/m", Bucket("az", "c", "m", account="acct"), "m"),
        ("as://acct.blob.core.windows.net/c/m", Bucket("az", "c", "m", account="acct"), "m"),
        ("abfss://c@acct.dfs.core.windows.net/m", Bucket("az", "c", "m", account="acct"), "m"),
        ("https://h/a/models.tar.gz", Archive("https://h/a/models.tar.gz"), "models"),
        ("https://h/m.zip?X-Sig=1", Archive("https://h/m.zip?X-Sig=1"), "m"),
        (f"http://h/m.tar#sha256={'a' * 64}", Archive("http://h/m.tar", "a" * 64), "m"),
        ("hf://o/r", HubRepo("o/r", "", ""), "r"),
        ("hf://o/r@v1/models/x", HubRepo("o/r", "v1", "models/x"), "x"),
        ("hf://o/r@refs%2Fpr%2F1", HubRepo("o/r", "refs/pr/1", ""), "r"),
        ("mlflow:/m/3", Registered("m", version="3"), "m"),
        ("mlflow://m/Production", Registered("m", stage="Production"), "m"),
        ("models:/m@champion", Registered("m", alias="champion"), "m"),
        ("mlflow:/m/@champion", Registered("m", alias="champion"), "m"),
        ("models:/m/latest", Registered("m", stage="latest"), "m"),
    ],
)
def test_forms(text, place, last):
    found = parse(text)
    assert (found.place, found.last, found.model) == (place, last, "")


def test_a_name_before_the_url_makes_it_one_model():
    found = parse("classifier=s3://b/models/resnet")
    assert (found.model, found.place, found.text) == (
        "classifier",
        Bucket("s3", "b", "models/resnet"),
        "s3://b/models/resnet",
    )


@pytest.mark.parametrize("text", ["/models", "models", "./a=b/c", "a:b", "", "relative/s3://b"])
def test_local_paths_are_none(text):
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ftp://h/x", "scheme 'ftp' is not served; forms: s3://"),
        ("file:///models", "scheme 'file' is not served"),
        ("s3://", "No bucket name found in path"),
        ("as://acct", "no account and container"),
        ("s3://b/../c", "no folders of a store"),
        ("https://h/models/", "HTTP has no folders, so it must name an archive"),
        ("http://h/m.zip", "may have been changed on its way"),
        ("https://h/m.zip#sha256=12", "#sha256=64 lower-case hexadecimal digits"),
        ("hf://gpt2", "no owner and repository"),
        ("mlflow:/m", "no model and version, stage or @alias"),
        ("abfs://c@elsewhere/m", "is no ACCOUNT.dfs.core.windows.net"),
        ("..=s3://b/m", "'..' cannot be a model's name"),
        ("https://h/...zip", "'..' cannot be a model's name"),
        ("mlflow:/..%2Fm/1", "'../m' cannot be a model's name"),
    ],
)
def test_what_names_nothing_is_refused(text, message):
    with pytest.raises(ConfigError, match="--model-repository=") as error:
        parse(text)
    assert message in str(error.value)


def test_secrets_are_not_shown():
    found = parse("https://user:pass@h/m.zip?X-Signature=abc#sha256=" + "0" * 64)
    assert found.shown == "https://h/m.zip"
    with pytest.raises(ConfigError) as error:
        parse("https://user:pass@h/m?X-Signature=abc")
    assert "pass" not in str(error.value) and "abc" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("HTTPS://bob:hunter2@host/m.zip?sig=hunter2", "https://host/m.zip"),
        ("https://bob:hun/hunter2@host/m.zip", "https://host/m.zip"),
        ("m=https://hunter2@host/m.zip", "https://host/m.zip"),
        ("m=ftp://bob:hunter2@host/x", "ftp://host/x"),
        ("s3://https://AKIA:hunter2@minio:9000/b/x", "s3://https://minio:9000/b/x"),
        ("S3:/HTTP://AKIA:hunter2/+=@minio:9000/b/x", "S3:/HTTP://minio:9000/b/x"),
        ("m=gs://bob:hunter2@b/x?sig=hunter2", "gs://b/x"),
        ("abfss://bob:hunter2@acct.dfs.core.windows.net/m", "abfss://acct.dfs.core.windows.net/m"),
        ("mlflow://bob:hunter2@host/m", "mlflow://host/m"),
    ],
)
def test_secrets_are_shown_in_no_scheme(text, shown):
    """Whether it is a location, or refused."""
    try:
        said = parse(text).key
    except ConfigError as error:
        said = str(error)
    assert shown in said and "hun" not in said and "bob" not in said and "AKIA" not in said


@pytest.mark.parametrize(
    "text",
    [
        "abfss://c@acct.dfs.core.windows.net/m", "models:/m@champion", "mlflow://m@champion", "hf://o/r@v1/models/x",
        "s3://b/m@1", "s3://b//m@1", "s3://minio:9000/b/m@1", "s3://https://minio:9000/b/m@1", "s3://[::1]:9000/b/m@1",
        "https://h:443/m@1.zip",
    ],
)  # fmt: skip
def test_what_names_something_is_shown_as_written(text):
    """It is what the cache calls it, too."""
    assert parse(text).shown == text


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://[secret/m.zip", r"https://\.\.\.: it is no URL: Invalid IPv6 URL"),
        ("m=https://host:port/m.zip", "it is no URL: Port could not be cast"),
        ("https://host:99999/m.zip", "it is no URL: Port out of range"),
    ],
)
def test_what_is_no_url_is_refused(url, why):
    with pytest.raises(ConfigError, match=why) as error:
        parse(url)
    assert "secret" not in str(error.value)


@given(st.text() | st.from_regex(r"(\w+=)?(s3|gs|az|as|abfs|https?|hf|mlflow|models)://?.*", fullmatch=True))
def test_any_text_is_a_location_a_path_or_refused(text):
    try:
        found = parse(text)
    except ConfigError:
        return
    assert found is None or isinstance(found, Location)
