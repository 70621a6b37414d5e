"""`nodeagent version`."""

import argparse
import platform
from importlib import metadata

from nodeagent import __version__
from nodeagent.cli.answers.output import wants_record, write_answer
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import Streams

PARTS = ("aiohttp", "anyio", "grpclib", "kubernetes-asyncio", "msgspec", "nvidia-ml-py", "protobuf", "structlog")


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Print the versions for a bug report."""
    versions = {"nodeagent": __version__, "python": platform.python_version(), "kernel": platform.release()}
    if wants_record(arguments):
        parts = {name: _find_version(name) for name in PARTS}
        write_answer(arguments, streams, {**versions, "parts": parts}, "")
    else:
        print(" ".join(f"{name} {version}" for name, version in versions.items()), file=streams.out)
    return ExitCode.OK


def _find_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"
