"""Models from stores, through the real server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments.packing import write_tar
from tests.storage.conftest import s3, s3_port  # noqa: F401 - fixtures
from tests.storage.servers import serving, tar_of, web_handler
from tests.system.helpers import ADD_ONE, CONFIG, ROOT, until

ADD_TEN = ADD_ONE.replace("a + 1", "a + 10")


def model(name: str, code: str = ADD_ONE) -> dict[str, str]:
    return {f"{name}/config.pbtxt": CONFIG, f"{name}/1/model.py": code}


@pytest.fixture
def cache(tmp_path):
    return f"--storage-cache-dir={tmp_path / 'cache'}"


def python(*arguments: str, **environ: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *arguments],
        check=False,
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )


def answer(server, name: str) -> float:
    status, body = server.infer(name)
    assert status == 200, body
    return body["outputs"][0]["data"][0]


def test_local_and_remote_repositories_and_single_models_side_by_side(s3, serve, write_model, cache, tmp_path):  # noqa: F811
    write_model("local")
    s3.fill({**model("remote", ADD_TEN), **model("another")})
    flags = (f"--model-repository={s3.url}", f"--model-repository=renamed={s3.url}/remote", cache)
    server = serve(*flags, repository=tmp_path / "models").ready()
    assert [answer(server, name) for name in ("local", "remote", "another", "renamed")] == [2.0, 11.0, 2.0, 11.0]
    server.says(f"downloading 'remote' from {s3.url}: 2 files")
    assert server.end() == 0
    assert not os.listdir(tmp_path / "cache/runs")


def test_a_start_without_the_store_serves_the_cache(s3, serve, cache):  # noqa: F811
    s3.fill(model("remote"))
    serve(cache, repository=s3.url).ready().end()
    s3.faults.dead = True
    server = serve(cache, repository=s3.url).ready()
    assert answer(server, "remote") == 2.0
    server.says("serving what the cache has of s3://")
    strict = serve(cache, "--storage-offline=never", repository=s3.url)
    assert strict.ended() == 1
    strict.says("s3://")


def test_what_is_damaged_is_unavailable_and_ends_the_start_if_asked(s3, serve, cache):  # noqa: F811
    s3.fill({**model("good"), **model("bad", ADD_TEN + "#" * 3_000_000)})
    s3.faults.flip = [2_000_000] * 30
    server = serve(cache, "--exit-on-error=false", repository=s3.url).ready()
    assert answer(server, "good") == 2.0
    status, body = server.ask("POST", "/v2/repository/index")
    entry = next(entry for entry in body if entry["name"] == "bad")
    assert entry["state"] == "UNAVAILABLE" and "damaged on its way" in entry["reason"]
    assert serve(cache, repository=s3.url).ended() == 1


def test_a_server_that_is_told_to_end_while_it_downloads_ends(s3, serve, cache):  # noqa: F811
    s3.fill({**model("remote"), "remote/1/weights.bin": "w" * 1_000_000})
    server = serve(cache, repository=s3.url)
    s3.faults.before = lambda path: path.endswith("weights.bin") and server.process.send_signal(signal.SIGTERM)
    assert server.ended() == 0
    assert "ready" not in [record.get("event") for record in server.log]


def test_a_server_that_is_killed_while_it_downloads_leaves_nothing_that_is_served(s3, serve, cache, tmp_path):  # noqa: F811
    s3.fill({**model("remote", ADD_TEN), "remote/1/weights.bin": "w" * 3_000_000})
    victim = serve(cache, repository=s3.url)
    s3.faults.before = lambda path: path.endswith("weights.bin") and victim.process.send_signal(signal.SIGKILL)
    s3.faults.cut = [2_000_000]
    assert victim.ended() == -signal.SIGKILL
    s3.faults.before, s3.faults.cut = lambda path: None, []
    before = len(s3.faults.gets("model.py"))
    server = serve(cache, repository=s3.url).ready()
    assert answer(server, "remote") == 11.0
    assert len(s3.faults.gets("model.py")) <= before + 1
    assert len(list((tmp_path / "cache/blobs").glob("*/*"))) == 3


@pytest.mark.parametrize(
    ("url", "library", "extra"), [("s3://b", "obstore", "storage"), ("hf://a/b", "huggingface_hub", "hf")]
)
def test_a_missing_extra_is_named_with_the_command(url, library, extra, tmp_path, cache):
    (tmp_path / f"{library}.py").write_text("raise ModuleNotFoundError('No module named ' + __name__)")
    found = python("-m", "tisfast", "check", url, cache, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert found.returncode == 1
    assert f"pip install 'tisfast[{extra}]'" in found.stderr


def test_check_takes_urls(s3, cache):  # noqa: F811
    s3.fill({**model("good"), "wrong/config.pbtxt": 'bakend: "python"', "wrong/1/model.py": "def f(:"})
    found = python("-m", "tisfast", "check", s3.url, cache)
    assert found.returncode == 1
    assert f"{s3.url}/wrong/config.pbtxt:1:1: " in found.stdout
    assert "2 error(s)" in found.stdout


def test_nothing_of_it_is_imported_for_local_folders():
    code = "import sys, tisfast.app, tisfast.cli; print(*sorted(name for name in sys.modules if 'storage' in name))"
    found = python("-c", code).stdout.split()
    config = "tisfast.config.storage_settings"
    expected = [config, "tisfast.storage", "tisfast.storage.face", "tisfast.storage.location"]
    assert found == expected


def test_explicit_loads_fetch_what_is_loaded_and_no_more(s3, serve, cache):  # noqa: F811
    s3.fill({**model("one"), **model("two"), "two/1/weights.bin": "w" * 100_000})
    server = serve(cache, "--model-control-mode=explicit", "--load-model=one", repository=s3.url).ready()
    assert [entry["name"] for entry in server.ask("POST", "/v2/repository/index")[1]] == ["one", "two"]
    assert not s3.faults.gets("weights.bin")
    assert server.ask("POST", "/v2/repository/models/two/load", {})[0] == 200
    assert answer(server, "two") == 2.0
    s3.put("two/1/model.py", ADD_TEN)
    assert server.ask("POST", "/v2/repository/models/two/load", {})[0] == 200
    assert answer(server, "two") == 11.0


def test_a_load_without_the_store_fails_and_the_old_copy_serves(s3, serve, cache):  # noqa: F811
    s3.fill(model("one"))
    server = serve(cache, "--model-control-mode=explicit", "--load-model=*", repository=s3.url).ready()
    s3.faults.dead = True
    status, body = server.ask("POST", "/v2/repository/models/one/load", {})
    assert status == 503 and s3.url in body["error"]
    assert answer(server, "one") == 2.0


def test_polling_brings_what_is_new_and_keeps_what_is_damaged_away(s3, serve, cache):  # noqa: F811
    s3.fill({**model("one"), "one/1/weights.bin": "w" * 3_000_000})
    server = serve(cache, "--model-control-mode=poll", "--repository-poll-secs=0.5", repository=s3.url).ready()
    s3.faults.flip = [2_000_000] * 100
    s3.fill({"one/1/model.py": ADD_TEN, "one/1/weights.bin": "v" * 3_000_000, **model("new")})
    until(lambda: server.infer("new")[0] == 200, "a new model")
    server.says("failed to download 'one'")
    assert answer(server, "one") == 2.0
    s3.faults.flip = []
    until(lambda: answer(server, "one") == 11.0, "the new content")
    for path in ("config.pbtxt", "1/model.py"):
        s3.delete(f"new/{path}")
    until(lambda: server.infer("new")[0] != 200, "that the model is gone")


def test_what_serves_keeps_its_files_however_many_bad_updates_come(s3, serve, cache, tmp_path):  # noqa: F811
    """A worker that dies is started again from the files that it was loaded from."""
    s3.fill({**model("one", ADD_TEN), **model("other")})
    server = serve(cache, "--model-control-mode=explicit", "--load-model=*", repository=s3.url).ready()
    for number in range(5):
        s3.put("one/1/model.py", f"this is no Python {number}")
        assert server.ask("POST", "/v2/repository/models/one/load", {})[0] == 400
    assert answer(server, "one") == 11.0
    pid = server.worker("one_0")
    os.kill(pid, signal.SIGKILL)
    until(lambda: server.worker("one_0") != pid and server.infer("one")[0] == 200, "a new instance")
    assert answer(server, "one") == 11.0
    s3.put("one/1/model.py", ADD_ONE)
    assert server.ask("POST", "/v2/repository/models/one/load", {})[0] == 200
    assert answer(server, "one") == 2.0
    (trees,) = (tmp_path / "cache/runs").glob("*/*/trees")
    until(lambda: server.ask("POST", "/v2/repository/models/other/load", {})[0] == 200 and len(os.listdir(trees)) == 2,
          "that trees go which nobody uses")  # fmt: skip


WHERE = """
import sys
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([], parameters={"prefix": sys.prefix}) for _ in requests]
"""


def test_an_environment_that_comes_with_its_model_is_read_once(s3, serve, cache, tmp_path):  # noqa: F811
    """In each run it lies elsewhere, and another name of the same file; and a change of another file is none of it."""
    packed = 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar" } }'
    s3.fill({"m/config.pbtxt": CONFIG + packed, "m/1/model.py": WHERE})
    s3.put("m/env.tar", write_tar(tmp_path / "env.tar", Path(sys.executable)).read_bytes())
    flags = (cache, f"--environment-cache-dir={tmp_path}/environments", "--model-control-mode=explicit")
    first = serve(*flags, "--load-model=*", repository=s3.url).ready()
    assert str(tmp_path / "environments") in first.infer("m")[1]["parameters"]["prefix"]
    first.says("reading")
    pid = first.worker("m_0")
    two = 'instance_group [ { name: "m" count: 2 kind: KIND_CPU } ]'
    s3.put("m/config.pbtxt", CONFIG + packed + two)
    assert first.ask("POST", "/v2/repository/models/m/load", {})[0] == 200
    assert first.worker("m_1") and first.worker("m_0") == pid  # the old one goes on, and has company
    first.end()
    again = serve(*flags, "--load-model=*", repository=s3.url).ready()
    assert again.infer("m")[0] == 200
    assert not [record for record in again.log if "reading" in record["message"]]


class Zeros(web_handler({})):
    """An S3 server with one object of zeros as large as wanted, which it does not hold."""

    nbytes = 1 << 30

    def do_GET(self) -> None:
        if "list-type" in self.path:
            sizes = {"1/weights.bin": self.nbytes, "1/model.py": len(ADD_ONE), "config.pbtxt": len(CONFIG)}
            items = "".join(
                f"<Contents><Key>m/{path}</Key><Size>{size}</Size><LastModified>2026-01-01T00:00:00Z</LastModified>"
                f'<ETag>"{path[0]}-1"</ETag></Contents>'
                for path, size in sizes.items()
            )
            self._give(f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>".encode(), '"l"')
        elif self.path.endswith("model.py"):
            self._give(ADD_ONE.encode(), '"1-1"')
        elif "config" in self.path:
            self._give(CONFIG.encode(), '"c-1"')
        else:
            self._head(self.nbytes, '"1-1"')
            chunk = bytes(1 << 20)
            for _ in range(self.nbytes >> 20):
                self.wfile.write(chunk)

    def _head(self, length: int, tag: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.send_header("ETag", tag)
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()

    def _give(self, data: bytes, tag: str) -> None:
        self._head(len(data), tag)
        self.wfile.write(data)


def test_a_file_of_a_gigabyte_needs_little_memory(serve, cache, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with serving(Zeros) as port:
        server = serve(cache, repository=f"s3://http://127.0.0.1:{port}/bucket").ready()
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    peak_kb = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])
    assert answer(server, "m") == 2.0
    assert peak_kb < 100_000, f"{peak_kb} kB"


def test_an_archive_over_https_needs_no_extra(serve, cache, tmp_path):
    import hashlib

    data = tar_of(model("packed"))
    with serving(web_handler({"/models.tar.gz": data})) as port:
        digest = hashlib.sha256(data).hexdigest()
        server = serve(cache, repository=f"http://127.0.0.1:{port}/models.tar.gz#sha256={digest}").ready()
        assert answer(server, "packed") == 2.0
