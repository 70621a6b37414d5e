"""Python code for the wire formats of the kubelet, of gpu-manager and of NVSentinel, generated from our `.proto` files.

The compilers are development tools only, so the code they write is checked in.
It is compared byte for byte, so the versions in `requirements/dev.txt` decide what it looks like.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
PROTO_DIRECTORIES = (
    "nodeagent/edge/kubelet/proto",
    "nodeagent/edge/gpu_manager/proto",
    "nodeagent/edge/nvsentinel/proto",
)


class ProtoCompilerFailed(Exception):
    """The protocol compiler refused a file."""

    def __init__(self, sources: list[str], output: str) -> None:
        super().__init__(f"cannot compile {', '.join(sources)}: {output.strip()}")


def render() -> dict[str, str]:
    """All generated files by their path in the repository.

    Raises:
        ProtoCompilerFailed: a `.proto` file is wrong, or a compiler is not installed.
    """
    found = (path for directory in PROTO_DIRECTORIES for path in (ROOT / directory).glob("*.proto"))
    sources = sorted(str(path.relative_to(ROOT)) for path in found)
    with TemporaryDirectory() as scratch:
        _compile(sources, Path(scratch))
        written = sorted(path for path in Path(scratch).rglob("*") if path.is_file())
        return {str(path.relative_to(scratch)): path.read_text() for path in written}


def _compile(sources: list[str], out: Path) -> None:
    # The plugin is started by the compiler, which would otherwise look for it in PATH.
    plugin = Path(sys.executable).with_name("protoc-gen-grpclib_python")
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc", "--proto_path=.", f"--plugin={plugin.name}={plugin}"),
        *(f"--python_out={out}", f"--pyi_out={out}", f"--grpclib_python_out={out}"),
        *sources,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProtoCompilerFailed(sources, done.stderr)
