"""The checked-in protocol code is what the compilers make of the `.proto` files."""

from pathlib import Path

import pytest

from tests.generators import kubelet_proto


@pytest.mark.slow
def test_generated_protocol_code_is_current() -> None:
    """Generating anew gives exactly the files that are checked in, and none is left over."""
    rendered = kubelet_proto.render()
    directories = [kubelet_proto.ROOT / each for each in kubelet_proto.PROTO_DIRECTORIES]
    files = (path for directory in directories for path in directory.iterdir())
    checked_in = {path for path in files if path.name.endswith(("_pb2.py", "_pb2.pyi", "_grpc.py"))}
    assert checked_in == {kubelet_proto.ROOT / path for path in rendered}
    for path, text in rendered.items():
        assert (kubelet_proto.ROOT / path).read_text() == text, f"{path} is stale: run `make generate`"


def test_a_wrong_proto_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler's complaint names the file and the place."""
    directory = tmp_path / kubelet_proto.PROTO_DIRECTORIES[0]
    directory.mkdir(parents=True)
    (directory / "broken.proto").write_text('syntax = "proto3";\nmessage {\n')
    monkeypatch.setattr(kubelet_proto, "ROOT", tmp_path)
    with pytest.raises(kubelet_proto.ProtoCompilerFailed, match=r"broken\.proto:2"):
        kubelet_proto.render()
