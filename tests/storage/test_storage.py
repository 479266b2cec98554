"""Repositories in a real S3 server, with a network that does harm: what is seen is whole, right, or not there."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.storage.helpers import REPO
from tests.storage.servers import serving, web_handler
from tisfast import limits
from tisfast.errors import ConfigError, TisError, Unavailable
from tisfast.leases import lease
from tisfast.storage.face import LocalOnly, open_storage
from tisfast.storage.source import Corrupt, Unreachable
from tisfast.storage.transfer import locked

LONG_AGO = "Thu, 01 Jan 2026 00:00:00 GMT"


@pytest.fixture(autouse=True)
def no_long_waits(monkeypatch):
    monkeypatch.setattr(limits, "STORAGE_DELAY_SECONDS_FIRST", 0.001)
    monkeypatch.setattr(limits, "STORAGE_REQUEST_RETRIES", 0)


def blobs(tmp_path):
    return {path.name: path for path in (tmp_path / "cache").glob("blobs/*/*")}


def test_a_repository_is_seen_as_it_is(s3, storage):
    s3.fill({**REPO, "README.md": "beside the models", ".hidden/config.pbtxt": ""})
    server = storage(s3.url)
    assert server.seen == {}
    assert server.refresh() == {}
    assert server.seen == REPO


def test_a_folder_of_a_bucket_is_not_one_whose_name_begins_alike(s3, storage):
    s3.fill({"models/a/1/model.py": "a", "models-old/b/1/model.py": "b"})
    server = storage(f"{s3.url}/models")
    server.refresh()
    assert server.seen == {"a/1/model.py": "a"}


def test_one_model_by_its_own_url_and_by_another_name(s3, storage):
    s3.fill(REPO)
    server = storage(f"{s3.url}/add", f"other={s3.url}/add")
    server.refresh()
    assert set(server.seen) == {"add/config.pbtxt", "add/1/model.py"}
    assert set(os.listdir(server.face.folder(server.urls[1]))) == {"other"}


def test_markers_of_folders_are_no_files(s3, storage):
    s3.fill({"a/": "", "a/1/": "", "a/1/model.py": "x", "a/1/empty.txt": ""})
    server = storage(s3.url)
    assert server.refresh() == {}
    assert server.seen == {"a/1/model.py": "x", "a/1/empty.txt": ""}


def test_local_folders_pass_through(tmp_path, s3, storage):
    s3.fill(REPO)
    server = storage(str(tmp_path / "local"), s3.url)
    server.refresh()
    assert server.face.folder(server.urls[0]) == tmp_path / "local"
    assert len(os.listdir(server.face.folder(s3.url))) == 2
    assert isinstance(open_storage(["/a", "b"], None), LocalOnly)


def test_what_has_not_changed_is_not_downloaded_again(s3, storage, caplog):
    s3.fill(REPO)
    server = storage(s3.url)
    server.refresh()
    before = len(s3.faults.asked)
    server.refresh()
    again = storage(s3.url)
    again.refresh()
    assert again.seen == REPO
    assert len(s3.faults.asked) == before + 2  # a listing each


def test_equal_files_are_kept_once(s3, storage, tmp_path):
    s3.fill({"a/1/model.py": "same", "b/1/model.py": "same", "b/2/model.py": "same"})
    server = storage(s3.url)
    server.refresh()
    assert len(blobs(tmp_path)) == 1
    assert len(server.seen) == 3


def test_a_change_comes_in_one_step_and_the_old_files_stay_readable(s3, storage):
    s3.fill(REPO)
    server = storage(s3.url)
    server.refresh()
    folder = server.face.folder(s3.url)
    held = lease(folder / "sub")
    untouched = os.readlink(folder / "add")
    s3.fill({"sub/1/model.py": "new", "sub/2/model.py": "newer"})
    s3.delete("sub/1/weights.bin")
    server.refresh()
    assert {path: text for path, text in server.seen.items() if path.startswith("sub")} == {
        "sub/1/model.py": "new", "sub/2/model.py": "newer",
    }  # fmt: skip
    assert (held.folder / "1/model.py").read_text() == REPO["sub/1/model.py"]
    assert os.readlink(folder / "add") == untouched


def test_one_model_can_be_asked_for(s3, storage):
    s3.fill(REPO)
    server = storage(s3.url)
    server.refresh(["add"])
    assert {path.split("/")[0] for path in server.seen} == {"add"}
    assert sorted(os.listdir(server.face.folder(s3.url))) == ["add", "sub"]
    server.refresh(["nobody"])
    server.refresh(["sub"])
    assert server.seen == REPO


def test_what_the_store_has_no_more_is_seen_no_more(s3, storage):
    s3.fill(REPO)
    server = storage(s3.url)
    server.refresh()
    for path in REPO:
        if path.startswith("add"):
            s3.delete(path)
    server.refresh(["sub"])
    assert "add/config.pbtxt" in server.seen
    server.refresh()
    assert {path.split("/")[0] for path in server.seen} == {"sub"}


def test_old_content_leaves_the_cache(s3, storage, tmp_path):
    s3.fill({"a/1/model.py": "one"})
    server = storage(s3.url)
    server.refresh()
    s3.put("a/1/model.py", "two")
    server.refresh()
    assert [path.read_text() for path in blobs(tmp_path).values()] == ["two"]


def test_urls_that_nobody_uses_any_more_leave_the_cache(s3, storage, tmp_path):
    s3.fill({"a/1/model.py": "one", "b/1/model.py": "two"})
    storage(f"{s3.url}/a").refresh()
    (manifest,) = (tmp_path / "cache/manifests").iterdir()
    old = time.time() - limits.STORAGE_UNUSED_SECONDS_MAX - 10
    os.utime(manifest, (old, old))
    storage(f"{s3.url}/b").refresh()
    assert [path.read_text() for path in blobs(tmp_path).values()] == ["two"]


# ---- a network that does harm


def test_a_download_that_breaks_off_goes_on_where_it_was(s3, storage):
    s3.fill(REPO)
    s3.faults.cut = [1_500_000, 1_000_000]
    server = storage(s3.url)
    assert server.refresh() == {}
    assert server.seen == REPO
    spans = s3.faults.gets("weights.bin")
    assert spans[0] == "" and len(spans) == 3
    assert [int(span.removeprefix("bytes=").split("-")[0]) > 1_000_000 for span in spans[1:]] == [True, True]


def test_a_later_run_goes_on_where_an_earlier_one_broke_off(s3, storage, monkeypatch):
    s3.fill(REPO)
    s3.faults.cut = [2_000_000]
    monkeypatch.setattr(limits, "STORAGE_ATTEMPTS_MAX", 1)
    first = storage(s3.url)
    failed = first.refresh()
    assert set(failed) == {"sub"} and "weights.bin could not be downloaded" in str(failed["sub"])
    assert {path.split("/")[0] for path in first.seen} == {"add"}
    second = storage(s3.url)
    assert second.refresh() == {}
    assert second.seen == REPO
    assert int(s3.faults.gets("weights.bin")[-1].removeprefix("bytes=").removesuffix("-").split("-")[0]) > 1_000_000
    assert s3.faults.gets("model.py").count("") == 2


def test_a_flipped_byte_is_noticed_and_the_file_comes_again(s3, storage):
    s3.fill(REPO)
    s3.faults.flip = [2_000_000]
    server = storage(s3.url)
    assert server.refresh() == {}
    assert server.seen == REPO
    assert s3.faults.gets("weights.bin") == ["", ""]


def test_what_is_damaged_every_time_is_never_seen(s3, storage, tmp_path):
    s3.fill(REPO)
    s3.faults.flip = [2_000_000] * 20
    server = storage(s3.url)
    failed = server.refresh()
    assert isinstance(failed["sub"], Corrupt)
    assert "sub/1/weights.bin was damaged on its way 3 times: its md5 is" in str(failed["sub"])
    assert {path.split("/")[0] for path in server.seen} == {"add"}
    left = {path.suffix for path in (tmp_path / "cache/partial").iterdir()}
    assert left == {".done"}  # what came of the model that is not complete


def test_a_damaged_update_leaves_the_old_model_where_it_is(s3, storage):
    s3.fill(REPO)
    server = storage(s3.url)
    server.refresh()
    s3.put("sub/1/weights.bin", "v" * 3_000_000)
    s3.put("add/1/model.py", "new")
    s3.faults.flip = [2_000_000] * 20
    assert set(server.refresh()) == {"sub"}
    assert server.seen == {**REPO, "add/1/model.py": "new"}
    s3.faults.flip = []
    assert server.refresh() == {}
    assert server.seen["sub/1/weights.bin"] == "v" * 3_000_000


def test_tags_of_objects_with_keys_of_kms_are_no_checksums(s3, storage):
    s3.fill(REPO)
    s3.faults.opaque_tags = True
    server = storage(s3.url)
    assert server.refresh() == {}
    assert server.seen == REPO


def test_an_object_that_changes_between_list_and_get_is_listed_again(s3, storage):
    s3.fill(REPO)
    left = ["v" * 2_900_000]

    def change(path):
        if path.endswith("weights.bin") and left:
            s3.put("sub/1/weights.bin", left.pop())

    s3.faults.before = change
    server = storage(s3.url)
    assert server.refresh() == {}
    assert server.seen == {**REPO, "sub/1/weights.bin": "v" * 2_900_000}


def test_two_contents_of_one_object_are_never_mixed(s3, storage):
    """It changes, its length kept, after half of it came."""
    s3.fill(REPO)
    s3.faults.cut = [1_500_000]

    def change(path):
        if path.endswith("weights.bin") and len(s3.faults.gets("weights.bin")) == 2:
            s3.put("sub/1/weights.bin", "v" * 3_000_000)

    s3.faults.before = change
    server = storage(s3.url)
    assert server.refresh() == {}
    assert server.seen["sub/1/weights.bin"] == "v" * 3_000_000


def test_a_store_that_has_hiccups_is_asked_again(s3, storage):
    s3.fill(REPO)
    s3.faults.status = [503, 500, 503]
    server = storage(s3.url)
    assert server.refresh() == {}
    assert server.seen == REPO


# ---- the cache is damaged


@pytest.mark.parametrize("keep_time", [False, True])
def test_a_flipped_byte_in_the_cache_is_noticed_at_the_next_start(s3, storage, tmp_path, keep_time):
    s3.fill(REPO)
    storage(s3.url).refresh()
    victim = max(blobs(tmp_path).values(), key=lambda path: path.stat().st_size)
    status = victim.stat()
    victim.chmod(0o644)
    with open(victim, "r+b") as file:
        file.seek(1000)
        file.write(b"X")
    if keep_time:
        os.utime(victim, ns=(status.st_atime_ns, status.st_mtime_ns))
    server = storage(s3.url, verify=keep_time)
    server.refresh()
    assert server.seen == REPO


def test_what_is_missing_from_the_cache_is_fetched(s3, storage, tmp_path):
    s3.fill(REPO)
    storage(s3.url).refresh()
    for path in blobs(tmp_path).values():
        path.unlink()
    server = storage(s3.url)
    server.refresh()
    assert server.seen == REPO


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "url": 3, "models": {"a": 3}}'])
def test_a_manifest_that_is_none_is_made_anew(text, s3, storage, tmp_path):
    s3.fill(REPO)
    storage(s3.url).refresh()
    for path in (tmp_path / "cache/manifests").iterdir():
        path.write_text(text)
    server = storage(s3.url)
    server.refresh()
    assert server.seen == REPO


def test_a_cache_that_cannot_be_made_is_refused(storage, s3, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ConfigError, match="the storage cache .* cannot be used: .*--storage-cache-dir"):
        storage(s3.url)


# ---- without the store


def test_a_start_without_the_store_serves_what_the_cache_has(s3, storage, caplog):
    s3.fill(REPO)
    storage(s3.url).refresh()
    s3.faults.dead = True
    server = storage(s3.url)
    assert server.refresh() == {}
    assert server.seen == REPO
    assert "serving what the cache has of s3://" in caplog.text
    with pytest.raises(Unavailable):
        server.refresh()  # while it runs, it is an error: nobody must believe that this is what the store has


def test_a_start_without_store_and_cache_is_an_error(s3, storage):
    s3.faults.dead = True
    with pytest.raises(Unreachable, match="s3://http://127.0.0.1"):
        storage(s3.url).refresh()


def test_offline_only_asks_nobody(s3, storage):
    s3.fill(REPO)
    with pytest.raises(Unreachable, match="never downloaded completely.*--storage-offline=only"):
        storage(s3.url, offline="only").refresh()
    storage(s3.url).refresh()
    before = len(s3.faults.asked)
    server = storage(s3.url, offline="only")
    server.refresh()
    assert server.seen == REPO and len(s3.faults.asked) == before


def test_offline_never_is_an_error(s3, storage):
    s3.fill(REPO)
    storage(s3.url).refresh()
    s3.faults.dead = True
    with pytest.raises(Unreachable):
        storage(s3.url, offline="never").refresh()


def test_a_cache_that_has_not_everything_is_not_served_without_the_store(s3, storage, tmp_path):
    s3.fill(REPO)
    storage(s3.url).refresh()
    s3.faults.dead = True
    max(blobs(tmp_path).values(), key=lambda path: path.stat().st_size).unlink()
    server = storage(s3.url)
    assert "the cache has not all files of 'sub'" in str(server.refresh()["sub"])
    assert {path.split("/")[0] for path in server.seen} == {"add"}


def test_an_explicit_start_without_the_store_serves_what_was_once_loaded(s3, storage):
    """Not all of it: what is asked for, in the steps in which a server asks."""
    s3.fill({**REPO, "third/1/model.py": "c"})
    first = storage(s3.url)
    first.refresh([])
    first.refresh(["add"])
    first.refresh(["sub"])
    s3.faults.dead = True
    server = storage(s3.url)
    assert server.refresh([]) == {}
    assert sorted(os.listdir(server.face.folder(s3.url))) == ["add", "sub"]
    assert server.refresh(["add"]) == server.refresh(["sub"]) == {}
    assert server.seen == REPO
    with pytest.raises(Unreachable):
        server.refresh(["third"])
    with pytest.raises(Unreachable):
        server.refresh(["add"])  # it runs: nobody must believe that this is what the store has


# ---- several servers


def test_servers_that_load_different_models_of_one_store_keep_each_other_s_notes(s3, storage, tmp_path):
    s3.fill(REPO)
    one, two = storage(s3.url), storage(s3.url)
    two.refresh(["nobody"])
    one.refresh()
    two.refresh(["add"])
    s3.faults.dead = True
    server = storage(s3.url)
    assert server.refresh() == {} and server.seen == REPO
    assert len(blobs(tmp_path)) == len(REPO)


def test_what_another_server_has_fetched_is_not_fetched_again(s3, storage):
    s3.fill(REPO)
    one, two = storage(s3.url), storage(s3.url)
    two.refresh(["nobody"])
    one.refresh()
    before = len(s3.faults.gets("weights.bin"))
    two.refresh()
    assert two.seen == REPO and len(s3.faults.gets("weights.bin")) == before


def test_a_sweep_that_never_ends_is_told(s3, storage, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "STORAGE_SWEEP_SECONDS_MAX", 0.1)
    server = storage(s3.url)
    with open(tmp_path / "cache/lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="another server has been sweeping the storage cache .*cache/lock"):
            server.refresh()
    s3.fill(REPO)
    assert server.refresh() == {}


def test_a_download_that_another_server_has_made_a_blob_of_is_not_written_to(tmp_path, monkeypatch):
    """It opened the file just before it was renamed, and got the lock just after."""
    path, blob = tmp_path / "partial", tmp_path / "blob"
    path.write_text("whole")
    flock = fcntl.flock

    def late(descriptor, kind):
        if not blob.exists():
            path.rename(blob)
        flock(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", late)
    handle = locked(path)
    os.ftruncate(handle, 0)
    os.close(handle)
    assert blob.read_text() == "whole" and path.read_text() == ""


def test_what_is_left_to_download_is_what_needs_room(s3, storage, monkeypatch):
    s3.fill(REPO)
    s3.faults.cut = [2_900_000]
    monkeypatch.setattr(limits, "STORAGE_ATTEMPTS_MAX", 1)
    assert set(storage(s3.url).refresh()) == {"sub"}
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1_500_000))
    server = storage(s3.url)
    assert server.refresh() == {} and server.seen == REPO
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1_500))
    s3.put("sub/1/weights.bin", "v" * 3_000)
    assert "3.0 KB are to be downloaded, and" in str(server.refresh()["sub"])


# ---- what is wrong with the URL


def test_a_bucket_that_is_not_there_is_named(s3, storage):
    with pytest.raises(ConfigError, match="s3://http://127.0.0.1:[0-9]+/nobody") as error:
        storage(f"s3://http://127.0.0.1:{s3.proxied}/nobody").refresh()
    assert len(str(error.value)) < 700


def test_a_store_that_says_no_is_quoted(s3, storage, monkeypatch):
    s3.faults.listing_status = 403
    with pytest.raises(ConfigError, match="403 Forbidden.*the credentials lack the right to list or read it"):
        storage(s3.url).refresh()


@pytest.mark.parametrize("key", ["a/../../../evil", "../evil", "a/1/..", "/etc/evil", "a//b", "a/1/x\\..\\y"])
def test_names_that_leave_their_folder_write_nothing(key, storage, tmp_path):
    stated = '<Size>4</Size><LastModified>2026-01-01T00:00:00Z</LastModified><ETag>"1-1"</ETag>'
    items = "".join(f"<Contents><Key>{name}</Key>{stated}</Contents>" for name in ("a/1/model.py", key))
    listing = f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>"

    class Hostile(web_handler({})):
        def do_GET(self):
            data = listing.encode() if "list-type" in self.path else b"evil"
            self.send_response(200)
            for name, value in (("Content-Length", len(data)), ("ETag", '"1-1"'), ("Last-Modified", LONG_AGO)):
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(data)

    with serving(Hostile) as port:
        server = storage(f"s3://http://127.0.0.1:{port}/bucket")
        try:
            assert server.refresh()
        except TisError as error:
            assert "bucket" in str(error)
    assert not {path.name for path in tmp_path.glob("**/*")} & {"evil", "y", "b"}


def test_an_empty_folder_is_no_repository(s3, storage):
    with pytest.raises(ConfigError, match="repository path is not a valid directory"):
        storage(f"{s3.url}/nothing").refresh()


def test_one_bad_store_does_not_keep_another_from_being_synced(s3, storage):
    s3.fill(REPO)
    server = storage(s3.url, f"{s3.url}/nothing")
    with pytest.raises(ConfigError):
        server.refresh()
    assert server.seen == REPO


def test_google_s_form_of_the_same(s3, storage):
    s3.fill(REPO)
    server = storage(f"gs://{s3.name}", variables={"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{s3.proxied}"})
    s3.faults.cut = [1_000_000]
    assert server.refresh() == {}
    assert server.seen == REPO


def test_two_servers_share_a_cache_and_leave_nothing_behind(s3, storage, tmp_path):
    s3.fill(REPO)
    one, two = storage(s3.url), storage(s3.url)
    one.refresh()
    two.refresh()
    runs = tmp_path / "cache/runs"
    assert len(list(runs.iterdir())) == 2
    one.face.close()
    assert two.seen == REPO
    two.face.close()
    assert not list(runs.iterdir())
    assert Path(tmp_path / "cache/blobs").is_dir()
