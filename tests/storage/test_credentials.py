"""Triton's credential conventions."""

from __future__ import annotations

import json

import pytest

from tisfast.errors import ConfigError
from tisfast.storage.credentials import options_for
from tisfast.storage.location import parse


@pytest.fixture
def options(tmp_path):
    def read(url, **variables):
        location = parse(url)
        return options_for(location, location.place, {"HOME": str(tmp_path), **variables})

    return read


@pytest.fixture
def file(tmp_path):
    def write(**sections):
        path = tmp_path / "credentials.json"
        path.write_text(json.dumps({name.rstrip("_"): section for name, section in sections.items()}))
        return str(path)

    return write


def keys(found):
    given = found.provider()
    return given["access_key_id"], given["secret_access_key"], given["token"]


def test_variables_of_aws_are_left_to_obstore(options):
    found = options("s3://b/m", AWS_ACCESS_KEY_ID="k", AWS_SECRET_ACCESS_KEY="s", AWS_DEFAULT_REGION="eu-west-1")
    assert (found.config, found.provider, found.plain_http) == ({"region": "eu-west-1"}, None, False)


def test_a_host_in_the_url_is_the_endpoint(options):
    found = options("s3://localhost:9000/b", AWS_ENDPOINT_URL_S3="https://elsewhere")
    assert found.config["endpoint"] == found.config["aws_endpoint_url_s3"] == "http://localhost:9000"
    assert found.plain_http and not found.config["virtual_hosted_style_request"]
    assert not options("s3://https://localhost:9000/b").plain_http
    assert options("s3://b", AWS_ENDPOINT_URL="http://minio:9000").plain_http


def test_profiles_with_keys_are_read(options, tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        "[default]\naws_access_key_id = d\naws_secret_access_key = ds\n"
        "[other]\naws_access_key_id = o\naws_secret_access_key = os\naws_session_token = ot\n"
    )
    (tmp_path / ".aws/config").write_text("[profile other]\nregion = eu-north-1\n[profile sso]\nsso_session = x\n")
    assert keys(options("s3://b")) == ("d", "ds", None)
    other = options("s3://b", AWS_PROFILE="other")
    assert keys(other) == ("o", "os", "ot") and other.config["region"] == "eu-north-1"
    assert options("s3://b", AWS_WEB_IDENTITY_TOKEN_FILE="/t").provider is None
    with pytest.raises(
        ConfigError, match="profile 'sso' has no keys but a sso_session.*export-credentials --profile sso"
    ):
        options("s3://b", AWS_PROFILE="sso")


def test_the_longest_prefix_of_the_credential_file_counts(options, file):
    path = file(
        s3={
            "": {"key_id": "all", "secret_key": "s"},
            "s3://b/m": {"key_id": "m", "secret_key": "s", "region": "r"},
            "s3://b": {"key_id": "b", "secret_key": "s", "session_token": "t"},
        }
    )
    assert keys(options("s3://b/m/x", TRITON_CLOUD_CREDENTIAL_PATH=path)) == ("m", "s", None)
    assert keys(options("s3://b/n", TRITON_CLOUD_CREDENTIAL_PATH=path)) == ("b", "s", "t")
    assert keys(options("s3://c", TRITON_CLOUD_CREDENTIAL_PATH=path, AWS_ACCESS_KEY_ID="k")) == ("all", "s", None)


def test_without_a_prefix_that_fits_there_are_no_credentials(options, file):
    path = file(s3={"s3://b": {"key_id": "k", "secret_key": "s"}})
    with pytest.raises(ConfigError, match="Cannot match credential for path  s3://c"):
        options("s3://c", TRITON_CLOUD_CREDENTIAL_PATH=path)
    with pytest.raises(ConfigError, match="Cannot match credential for path  gs://b"):
        options("gs://b", TRITON_CLOUD_CREDENTIAL_PATH=path)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"s3": 3}', '{"s3": {"": 3}}', '{"s3": {"": {"key_id": 3}}}'])
def test_a_credential_file_that_is_none_is_refused(text, options, tmp_path):
    path = tmp_path / "bad"
    path.write_text(text)
    with pytest.raises(ConfigError, match="TRITON_CLOUD_CREDENTIAL_PATH"):
        options("s3://b", TRITON_CLOUD_CREDENTIAL_PATH=str(path))


def test_google(options, file):
    assert options("gs://b", GOOGLE_APPLICATION_CREDENTIALS="/k.json").config == {}
    path = file(gs={"": "/a.json", "gs://b": "/b.json"})
    assert options("gs://b/m", TRITON_CLOUD_CREDENTIAL_PATH=path).config == {"application_credentials": "/b.json"}
    emulated = options("gs://b", STORAGE_EMULATOR_HOST="localhost:4443")
    assert emulated.config == {"base_url": "http://localhost:4443", "skip_signature": True} and emulated.plain_http


def test_azure(options, file):
    assert options("as://acct/c/m", AZURE_STORAGE_KEY="k").config == {"account_name": "acct", "account_key": "k"}
    named = options("as://acct/c", AZURE_STORAGE_ACCOUNT="mine", AZURE_STORAGE_AUTH_TYPE="managed_identity",
                    AZURE_STORAGE_CLIENT_ID="id", AZURE_STORAGE_KEY="k")  # fmt: skip
    assert named.config == {"account_name": "mine", "client_id": "id"}
    assert options("az://c", AZURE_STORAGE_ACCOUNT="a").config == {"account_name": "a", "skip_signature": True}
    assert options("az://c", AZURE_STORAGE_ACCOUNT="a", AZURE_STORAGE_SAS_TOKEN="t").config == {"account_name": "a"}
    path = file(
        as_={"": {"account_str": "x", "account_key": "1"}, "as://y/c": {"account_str": "y", "account_key": "2"}}
    )
    assert options("as://y/c/m", TRITON_CLOUD_CREDENTIAL_PATH=path).config["account_key"] == "2"
    assert options("az://c", TRITON_CLOUD_CREDENTIAL_PATH=path).config["account_name"] == "x"
    with pytest.raises(ConfigError, match="no storage account is named.*AZURE_STORAGE_ACCOUNT"):
        options("az://c")
    with pytest.raises(ConfigError, match="AZURE_STORAGE_AUTH_TYPE 'magic' is none of key, managed_identity, default"):
        options("az://c", AZURE_STORAGE_ACCOUNT="a", AZURE_STORAGE_AUTH_TYPE="magic")
