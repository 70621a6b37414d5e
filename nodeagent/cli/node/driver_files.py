"""`nodeagent cdi files|info`, whose output is the output of `nvidia-container-cli list|info`."""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import anyio
from msgspec.structs import replace

from nodeagent.app.host_root import find_driver_roots, see_in_host_root
from nodeagent.cli.agent.settings import load_for
from nodeagent.cli.answers.table import read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.cli.node.cdi import NodeReading, read_node
from nodeagent.components.cdi.plan_nvidia_listing import EVERYTHING, DriverPlaces, Listing, ListingRefused, plan_listing
from nodeagent.config.schema import Settings
from nodeagent.core.log.lines import configure_logging
from nodeagent.edge.host.driver.driver_libraries import list_libraries32
from nodeagent.model.driver import LibraryAnswer
from nodeagent.model.errors import DriverError, NodeagentError
from nodeagent.model.gpu import Gpu
from nodeagent.model.nvidia import REQUIRED_BRANDS

_PIPES_VARIABLE: Final = "CUDA_MPS_PIPE_DIRECTORY"
_PIPES: Final = "/tmp/nvidia-mps"  # noqa: S108  # where CUDA's clients look for the daemon
_UNKNOWN: Final = "Unknown"
_COLUMNS: Final = ("Device Index", "Device Minor", "Model", "Brand", "GPU UUID", "Bus Location", "Architecture")
_VERSIONS: Final = ("NVRM version", "CUDA version")


def list_files(arguments: argparse.Namespace, streams: Streams) -> int:
    """Print the paths of the driver and its GPUs, a path a line."""
    settings = load_for(arguments, read_environment()).settings
    reading = _read(settings)
    try:
        paths = plan_listing(_read_wanted(arguments), reading.inventory, reading.files, _find_places(settings, reading))
    except ListingRefused as error:
        raise CommandFailed(str(error), ExitCode.BAD_INPUT) from error
    streams.out.writelines(f"{path}\n" for path in paths)
    return ExitCode.OK


def show_info(arguments: argparse.Namespace, streams: Streams) -> int:
    """Print the driver's versions and its GPUs."""
    reading = _read(load_for(arguments, read_environment()).settings)
    render = render_csv if arguments.csv else render_info
    streams.out.write(render(reading.library, reading.inventory.gpus))
    return ExitCode.OK


def render_info(library: LibraryAnswer, gpus: Iterable[Gpu]) -> str:
    """A line for each fact, with an empty line before each GPU."""
    versions = _render_lines(_VERSIONS, _list_versions(library))
    return "\n".join([versions, *(_render_lines(_COLUMNS, facts) for facts in _list_facts(gpus))])


def render_csv(library: LibraryAnswer, gpus: Iterable[Gpu]) -> str:
    """Two tables with their column names."""
    rows = [_VERSIONS, _list_versions(library), (), _COLUMNS, *_list_facts(gpus)]
    return "".join(f"{','.join(row)}\n" for row in rows)


def _render_lines(names: Iterable[str], values: Iterable[str]) -> str:
    return "".join(f"{f'{name}:':<15} {value}\n" for name, value in zip(names, values, strict=True))


def _list_versions(library: LibraryAnswer) -> tuple[str, ...]:
    return library.driver_version, ".".join(map(str, library.cuda_version or ())) or _UNKNOWN


def _list_facts(gpus: Iterable[Gpu]) -> Iterator[tuple[str, ...]]:
    for number, gpu in enumerate(gpus):
        domain, _, place = gpu.pci.address.partition(":")
        yield (
            str(number),
            _UNKNOWN if gpu.minor is None else str(gpu.minor),
            gpu.name or _UNKNOWN,
            REQUIRED_BRANDS.get(gpu.brand, _UNKNOWN),
            gpu.uuid,
            f"{domain:0>8}:{place}",
            ".".join(map(str, gpu.compute_capability or ())) or _UNKNOWN,
        )


def _read(settings: Settings) -> NodeReading:
    configure_logging(form=settings.log.format, level="error")
    try:
        return anyio.run(read_node, settings)
    except DriverError as error:
        raise CommandFailed(str(error), ExitCode.NO_DRIVER) from error
    except NodeagentError as error:
        raise CommandFailed(str(error), ExitCode.BAD_INPUT) from error


def _read_wanted(arguments: argparse.Namespace) -> Listing:
    wanted = Listing(
        devices=",".join(arguments.device or ()),
        mig_config=",".join(arguments.mig_config or ()),
        mig_monitor=",".join(arguments.mig_monitor or ()),
        channels=",".join(arguments.imex_channel or ()),
        programs=arguments.binaries,
        libraries=arguments.libraries,
        compat32=arguments.compat32,
        sockets=arguments.ipcs,
        firmware=arguments.firmwares,
        persistenced=not arguments.no_persistenced,
        fabric_manager=not arguments.no_fabricmanager,
    )
    asks_for_nothing = replace(wanted, channels="") == Listing()
    return replace(EVERYTHING, channels=wanted.channels) if asks_for_nothing else wanted


def _find_places(settings: Settings, reading: NodeReading) -> DriverPlaces:
    roots = find_driver_roots(settings)
    pipes = read_environment().get(_PIPES_VARIABLE, _PIPES)
    has_pipes = pipes.startswith("/") and see_in_host_root(settings, Path(pipes)).is_dir()
    return DriverPlaces(
        root=roots.driver_on_host,
        libraries32=list_libraries32(roots.driver, reading.files.version),
        mps_pipes=pipes if has_pipes else "",
    )
