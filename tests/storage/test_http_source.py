"""Archives over HTTPS, from a server with a certificate of its own."""

from __future__ import annotations

import hashlib
import http.server
import ssl

import pytest
import trustme

from tests.storage.servers import Faults, proxy_handler, serving, tar_of, web_handler
from tisfast import limits
from tisfast.errors import ConfigError
from tisfast.storage.http_source import Web
from tisfast.storage.source import Corrupt, Refused, RemoteFile, Unreachable

FILES = {"a/config.pbtxt": "x", "a/1/model.py": "\n".join(map(str, range(200_000)))}


@pytest.fixture(autouse=True)
def no_long_waits(monkeypatch):
    monkeypatch.setattr(limits, "STORAGE_DELAY_SECONDS_FIRST", 0.001)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


class Site:
    def __init__(self, url, content, faults):
        self.url, self.content, self.faults = url, content, faults


@pytest.fixture
def site(authority, tmp_path, monkeypatch):
    """An HTTPS proxy that does harm, before a server of files."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    content, faults = {}, Faults()
    with serving(web_handler(content)) as plain, serving(proxy_handler(plain, faults), context) as port:
        yield Site(f"https://127.0.0.1:{port}", content, faults)


@pytest.mark.parametrize("ending", [".tar.gz", ".tgz", ".tar", ".zip"])
def test_an_archive_is_a_repository(ending, site, storage):
    site.content[f"/models{ending}"] = tar_of(FILES, ending)
    server = storage(f"{site.url}/models{ending}")
    server.refresh()
    assert server.seen == FILES


def test_an_archive_of_one_model_is_named_after_it(site, storage):
    site.content["/resnet.tar.gz"] = tar_of({"config.pbtxt": "x", "1/model.py": "y"})
    server = storage(f"{site.url}/resnet.tar.gz", f"mine={site.url}/resnet.tar.gz")
    server.refresh()
    assert server.seen == {"resnet/config.pbtxt": "x", "resnet/1/model.py": "y"}
    assert [path.name for path in server.face.folder(server.urls[1]).iterdir()] == ["mine"]


def test_it_is_downloaded_again_when_it_changed_and_only_then(site, storage):
    site.content["/m.zip"] = tar_of(FILES, ".zip")
    server = storage(f"{site.url}/m.zip")
    server.refresh()
    server.refresh()
    again = storage(f"{site.url}/m.zip")
    again.refresh()
    assert again.seen == FILES
    assert len(site.faults.asked) == 4  # three looks, one download
    site.content["/m.zip"] = tar_of({"b/1/model.py": "new"}, ".zip")
    again.refresh()
    assert again.seen == {"b/1/model.py": "new"}


def test_it_is_resumed(site, storage):
    site.content["/m.tar"] = tar_of(FILES, ".tar")
    site.faults.cut = [10**9]
    server = storage(f"{site.url}/m.tar")
    site.faults.before = lambda path: len(site.faults.asked) == 2 and site.faults.cut.insert(0, 700_000)
    server.refresh()
    assert server.seen == FILES
    assert site.faults.gets("m.tar")[-1] == "bytes=700000-"


def test_a_stated_checksum_is_kept(site, storage):
    data = tar_of(FILES)
    site.content["/m.tar.gz"] = data
    good = storage(f"{site.url}/m.tar.gz#sha256={hashlib.sha256(data).hexdigest()}")
    good.refresh()
    assert good.seen == FILES
    bad = storage(f"{site.url}/m.tar.gz#sha256={'0' * 64}")
    with pytest.raises(Corrupt, match="damaged on its way 3 times: its sha256 is .*, the store says 0000"):
        bad.refresh()
    assert bad.seen == {}


def test_a_damaged_archive_is_refused_and_the_old_models_stay(site, storage):
    site.content["/m.tar.gz"] = tar_of(FILES)
    server = storage(f"{site.url}/m.tar.gz")
    server.refresh()
    data = bytearray(tar_of({**FILES, "b/1/model.py": "b"}))
    data[len(data) // 2] ^= 0xFF
    site.content["/m.tar.gz"] = bytes(data)
    with pytest.raises(ConfigError, match="no archive that can be read"):
        server.refresh()
    assert server.seen == FILES


def test_links_and_escapes_in_archives_show_nothing(site, storage, tmp_path):
    site.content["/m.tar.gz"] = tar_of({"a/1/model.py": "x", "../../../evil": "x"})
    server = storage(f"{site.url}/m.tar.gz")
    with pytest.raises(ConfigError, match="cannot be a file's path"):
        server.refresh()
    assert server.seen == {} and not list(tmp_path.glob("**/evil"))


def test_a_certificate_that_nobody_vouches_for_is_refused(site, storage, tmp_path, monkeypatch):
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    with pytest.raises(Refused, match="its certificate is not trusted"):
        storage(f"{site.url}/m.zip").refresh()


def redirecting(target, heard):
    class Redirecting(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            heard.append(self.headers.get("Authorization"))
            self.send_response(302)
            self.send_header("Location", target)
            self.send_header("Content-Length", "0")
            self.end_headers()

    return Redirecting


def test_credentials_do_not_follow_a_redirect_to_another_host(storage):
    data, heard, elsewhere = tar_of(FILES), [], []
    files = web_handler({"/m.tar.gz": data})

    class Listening(files):
        def do_GET(self):
            elsewhere.append(self.headers.get("Authorization"))
            files.do_GET(self)

    with serving(Listening) as there, serving(redirecting(f"http://127.0.0.1:{there}/m.tar.gz", heard)) as port:
        digest = hashlib.sha256(data).hexdigest()
        server = storage(f"http://user:pass@127.0.0.1:{port}/m.tar.gz#sha256={digest}")
        server.refresh()
        assert server.seen == FILES
    assert set(heard) == {"Basic dXNlcjpwYXNz"} and set(elsewhere) == {None}


def test_a_redirect_away_from_tls_is_not_followed(site, storage, authority):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    away = serving(redirecting("http://127.0.0.1:9/m.zip", []), context)
    with away as port, pytest.raises(Refused, match="a redirect away from https is not followed"):
        storage(f"https://127.0.0.1:{port}/m.zip").refresh()


def test_what_is_not_there_is_named(site, storage):
    with pytest.raises(Refused, match=r"/m.zip: status 404"):
        storage(f"{site.url}/m.zip").refresh()


def test_a_server_that_is_down_is_unreachable(site, storage):
    site.faults.dead = True
    with pytest.raises(Unreachable):
        storage(f"{site.url}/m.zip").refresh()


def test_a_part_of_which_nothing_says_what_it_is_of_is_not_taken(site, storage):
    """Else half of one content, and half of the next, could be put together."""
    half = {}

    class Silent(web_handler({"/m.tar": tar_of(FILES, ".tar")})):
        def send_header(self, name, value):
            if name != "ETag" or "Range" not in self.headers:
                super().send_header(name, value)

        def do_GET(self):
            half.setdefault("spans", []).append(self.headers.get("Range", ""))
            super().do_GET()

    faults = Faults()
    with serving(Silent) as plain, serving(proxy_handler(plain, faults)) as port:
        url = f"http://127.0.0.1:{port}/m.tar"
        web, file = Web(), RemoteFile("m.tar", url, len(tar_of(FILES, ".tar")), '"x"')
        tag = web.look(url).tag
        begin, chunks = web.read(url, file, 700_000, tag)
        assert begin == 0 and b"".join(chunks) == tar_of(FILES, ".tar")
        assert half["spans"][-2:] == ["bytes=700000-", ""]
        begin, chunks = web.read(url, file, 700_000, f"W/{tag}")  # weak: equal tags need not be equal bytes
        assert begin == 0
        list(chunks)


def test_a_server_without_tags_is_read_from_the_beginning(storage):
    content, faults = {}, Faults()
    data = tar_of(FILES, ".tar")
    content["/m.tar"] = data
    url = f"/m.tar#sha256={hashlib.sha256(data).hexdigest()}"
    with serving(web_handler(content, tags=False)) as plain, serving(proxy_handler(plain, faults)) as port:
        server = storage(f"http://127.0.0.1:{port}{url}")
        faults.before = lambda path: len(faults.asked) == 2 and faults.cut.append(700_000)
        server.refresh()
        assert server.seen == FILES
