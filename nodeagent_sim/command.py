"""`nodeagent simulate` and `nodeagent simulate fault`, with the nodes, sources and faults that shells offer."""

import argparse
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from nodeagent.app.plan import Endpoints, SimulationPlan
from nodeagent.cli.agent.launch import launch
from nodeagent.cli.agent.settings import load_for
from nodeagent.cli.answers.orders import give
from nodeagent.cli.answers.places import SimulationRecord, list_simulations, write_record
from nodeagent.cli.answers.table import SIMULATION_VARIABLE, read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent_sim.cluster import run_stand_in_kubelet
from nodeagent_sim.directory import claim_place
from nodeagent_sim.gpus.faults import FAULTS
from nodeagent_sim.gpus.profile import UnknownProfile, list_profiles

FEATURES = "features.d"
"""The directory for a simulation's labels, read by NFD on real nodes: there is no API server."""


class Scene(NamedTuple):
    """A simulated node with settings of its own."""

    profile: str
    """The hardware."""
    settings: tuple[str, ...]
    """In the form of `--set`; the user's own settings are stronger."""


SCENES: Final = {
    "fractions": Scene(
        "dgx-h100",
        (
            "fractions.enabled=true",
            "fractions.enforcement=library",
            'doors.rules=[{"gpus": ["0", "1", "2", "3"], "door": "fractions"}]',
        ),
    ),
}
"""Scenes by name, as for `simulate --profile`."""


def find_scene(name: str) -> Scene:
    """The scene of this name; a hardware profile is a scene without settings."""
    return SCENES.get(name, Scene(name, ()))


def list_nodes() -> tuple[str, ...]:
    """Every name for `simulate --profile`."""
    return (*list_profiles(), *SCENES)


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Run the agent on a simulated node until a signal to stop."""
    if arguments.profile in {"help", "list"}:
        print("\n".join(list_nodes()), file=streams.out)
        return ExitCode.OK
    if "/" not in arguments.profile and arguments.profile not in list_nodes():
        raise CommandFailed(str(UnknownProfile(arguments.profile, list_nodes())), ExitCode.BAD_INPUT)
    if arguments.pods < 0:
        raise CommandFailed(f"--pods {arguments.pods}: give a number of 0 or more", ExitCode.BAD_INPUT)
    environ = dict(read_environment(arguments))
    name = environ.get(SIMULATION_VARIABLE, "")
    with claim_place(environ, name, arguments.profile, keep_state=arguments.keep_state) as directory:
        extra = list_simulation_overrides(arguments.profile, directory)
        (directory / FEATURES).mkdir(mode=0o700, exist_ok=True)
        launch(
            lambda node_label: load_for(arguments, environ, extra=extra, node_label=node_label),
            environ,
            simulation=SimulationPlan(
                arguments.seed, partial(run_stand_in_kubelet, pods=arguments.pods, seed=arguments.seed)
            ),
            stop_after_seconds=getattr(arguments, "for"),
            announce=lambda endpoints: _announce(arguments.profile, directory, endpoints, environ, streams),
        )
    return ExitCode.OK


def list_simulation_overrides(profile: str, directory: Path) -> tuple[str, ...]:
    """Settings that isolate a simulation from the host; the user's own settings are stronger."""
    paths = {
        "node.state_dir": directory / "state",
        "node.run_dir": directory / "run",
        "cdi.dir": directory / "cdi",
        "labels.nfd_dir": directory / FEATURES,
        "kubelet.root_dir": directory / "kubelet",
        "kubelet.device_plugins_dir": directory / "kubelet" / "device-plugins",
        "kubelet.pod_resources_socket": directory / "kubelet" / "pod-resources" / "kubelet.sock",
    }
    scene = find_scene(profile)
    return (
        f"gpus.source=simulated:{scene.profile}",
        *scene.settings,
        "log.level=warning",
        "kubernetes.enabled=false",
        "labels.sinks=nfd_file",
        *(f"{key}={path}" for key, path in paths.items()),
    )


def _announce(
    profile: str, directory: Path, endpoints: Endpoints, environ: Mapping[str, str], streams: Streams
) -> None:
    write_record(directory, SimulationRecord(directory.name, profile, os.getpid(), endpoints.url))
    is_alone = len(list_simulations(environ)) == 1
    which = "" if is_alone else f" --simulation {directory.name}"
    lines = [
        f"nodeagent simulates the node {profile}; nothing here touches real hardware",
        *([f"  another      {endpoints.taken} is taken: this one is beside it"] if endpoints.taken else []),
        f"  status page  {endpoints.url}",
        f"  metrics      {endpoints.url}metrics",
        f"  in a shell   nodeagent status{which}",
        f"  break it     nodeagent simulate fault{which}",
        "  stop it      Ctrl-C",
    ]
    print("\n".join(lines), file=streams.out, flush=True)


def inject(arguments: argparse.Namespace, streams: Streams) -> int:
    """Inject a fault into the running simulation, or list the faults."""
    environ = read_environment(arguments)
    _, done = give(arguments, load_for(arguments, environ).settings, environ, to_simulation=True)
    print(done, file=streams.out)
    return ExitCode.OK


def list_sources() -> tuple[str, ...]:
    """The possible sources of GPUs."""
    return ("nvml", *(f"simulated:{name}" for name in list_profiles()))


def list_faults() -> tuple[str, ...]:
    """The faults of a simulation, and the word that lists them."""
    return tuple(sorted({*FAULTS, "help"}))
