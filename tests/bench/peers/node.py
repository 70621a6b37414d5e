"""A node on which the agent and NVIDIA's programs can each live: one fake driver, with device nodes below its root.

What NVIDIA's programs have fixed, the kubelet's directory, is mounted for them alone.
"""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench.around.node import BenchNode, PluginProcess, bench_node
from tests.bench.peers.originals import Built
from tests.integration.host_driver import install_driver

_MOUNT: Final = (
    "mount -t tmpfs tmpfs /var/lib && mkdir -p /var/lib/kubelet/device-plugins"
    ' && mount --bind "$1" /var/lib/kubelet/device-plugins && shift && exec "$@"'
)


class NotMeasured(Exception):
    """A machine that lacks what a measurement needs."""


def render_plugin(plugin: Built, *words: str) -> str:
    """The command of NVIDIA's plugin, with this kubelet's `device-plugins` where it looks for one."""
    alone = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _MOUNT, "sh", "{dir}/device-plugins")
    strategies = words or ("--device-list-strategy=envvar",)
    return shlex.join([*alone, str(plugin.program), "--mig-strategy=none", *strategies])


@contextmanager
def peer_node() -> Iterator[tuple[BenchNode, Path]]:
    """A fresh node and the root of its driver.

    Raises:
        NotMeasured: device nodes are made by root alone.
    """
    require_root()
    with bench_node() as node:
        driver = node.directory / "driver"
        install_driver(driver, node.fake)
        yield node, driver


def require_root() -> None:
    """Raises:
    NotMeasured: whoever runs this may neither mount nor make device nodes.
    """
    if os.geteuid():
        raise NotMeasured("it needs root, who alone may mount and make device nodes: sudo make bench PEERS=1")


def list_words(settings: dict[str, object]) -> list[str]:
    """Settings as words of the agent's command line."""
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def render_command(program: Path, flags: Mapping[str, object]) -> str:
    """A command of one of NVIDIA's programs."""
    return shlex.join([str(program), *(f"--{key}={value}" for key, value in flags.items())])


def wait_for(running: Sequence[PluginProcess], is_so: Callable[[], bool], what: str) -> None:
    """Until it is so; a process that has ended never comes so far.

    Raises:
        NotMeasured: one of the processes has ended.
    """

    def look() -> bool:
        for each in running:
            status = each.process.poll()
            if status is not None:
                raise NotMeasured(f"{each.name} ended with {status} before there was: {what}")
        return is_so()

    running[0].wait_until(look)
