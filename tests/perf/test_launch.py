"""Older trees refuse newer flags, so their help is asked."""

from __future__ import annotations

import pytest

from perf.oracle import launch
from perf.oracle.server import Server

HELP = {
    "newer": "gRPC:\n  --grpc-port INT       port to listen on\n",
    "older": "  --http-port INT       port\n\nKnown, not served yet:\n--allow-grpc, --grpc-port, --trace-file\n",
}


@pytest.fixture
def tree(tmp_path, request):
    package = tmp_path / "tisfast"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "cli.py").write_text(f"def main():\n    print({HELP[request.param]!r})\n    return 3\n")
    return tmp_path


@pytest.mark.parametrize(("tree", "served"), [("newer", True), ("older", False)], indirect=["tree"])
def test_a_flag_is_known_where_the_help_serves_it(tree, served):
    assert launch.knows("grpc-port", tree) is served


@pytest.mark.parametrize(("tree", "served"), [("newer", True), ("older", False)], indirect=["tree"])
def test_only_trees_with_grpc_get_a_port_for_it(tree, served):
    server = Server("tisfast", [tree], tree=tree)
    with pytest.raises(RuntimeError, match="ended with 3"):
        server.__enter__()
    assert bool(server.grpc) is served
    assert bool(server.grpc_address) is served


@pytest.mark.parametrize("tree", ["older"], indirect=True)
def test_a_tree_is_run_whatever_the_current_folder_holds(tree, monkeypatch):
    monkeypatch.chdir(launch.ROOT)
    assert not launch.knows("grpc-port", tree)


def test_this_tree_serves_grpc():
    assert launch.knows("grpc-port", launch.ROOT)
