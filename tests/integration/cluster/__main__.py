"""The test cluster for people: `python -m tests.integration.cluster --help`.

Progress goes to standard error and results to standard output, as JSON when asked, so that scripts can use the results.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.integration.cluster.commands import PROCESSES
from tests.integration.cluster.control import Cluster, find_cluster, remove_cluster, start_cluster
from tests.integration.cluster.errors import ClusterError, RequirementsMissing
from tests.integration.cluster.layout import LONGEST_ROOT, Layout
from tests.integration.cluster.leftovers import find_leftovers
from tests.integration.cluster.lock import hold
from tests.integration.cluster.making.build import build_programs, find_cache
from tests.integration.cluster.making.requirements import read_missing, require_cluster_machine
from tests.integration.cluster.versions import Versions

Answer = Mapping[str, object]

DESCRIPTION = """\
A real one-machine Kubernetes for tests: etcd, API server, scheduler, controller manager, containerd and kubelet,
built from their Go modules and run on loopback in a mount namespace of their own. Needs root, Go, a C compiler and
a few Debian packages; what is missing is named.
"""
EXAMPLES = """\
examples:
  python -m tests.integration.cluster check              all that the scenarios lack here, and how to get it
  python -m tests.integration.cluster packages           the Debian packages among it, for apt-get install
  python -m tests.integration.cluster build              build the programs once; minutes the first time, then nothing
  python -m tests.integration.cluster up                 start a cluster, or say that it runs already
  eval "$(python -m tests.integration.cluster env)"      kubectl, crictl and ctr of this shell now mean the cluster
  kubectl get nodes
  python -m tests.integration.cluster status --json      what runs, with process ids and logs
  python -m tests.integration.cluster down               end it and prove that nothing is left

A cluster is of the newest Kubernetes that the tests know and of containerd 2.3. NODEAGENT_CLUSTER_VERSIONS names
other releases for each part: control_plane, emulated (what the control plane serves), kubelet, containerd:
  NODEAGENT_CLUSTER_VERSIONS="kubelet=1.34 emulated=1.34" python -m tests.integration.cluster up

exit status: 0 done (status: the cluster runs); 1 failed, the message says what and where; 2 wrong usage;
3 status or env without a running cluster; 4 this machine lacks something, the message names it
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    options = parse_arguments(arguments)
    try:
        layout = Layout(options.root.absolute()) if options.root else Layout.of_checkout()
        status, answer, text = COMMANDS[options.command](layout)
    except ClusterError as error:
        say(str(error))
        return error.exit_status
    print(json.dumps(answer, indent=1) if options.json else text)  # noqa: T201 - the results of a command line
    return status


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line as a namespace with `command`, `root` and `json`."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.integration.cluster",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=tuple(COMMANDS), help="what to do; see the examples")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--root",
        type=Path,
        help=f"scratch directory, at most {LONGEST_ROOT} bytes (default: one for each checkout, in /tmp)",
    )
    return parser.parse_args(arguments)


def say(text: str) -> None:
    """Progress and errors, for people."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - the voice of a command line


def run_check(layout: Layout) -> tuple[int, Answer, str]:
    missing = read_missing()
    answer = {"missing": missing.words, "packages": missing.packages}
    together = (f"the packages at once: {missing.command}",) if missing.packages else ()
    text = "\n".join((*missing.words, *together)) or "nothing is missing"
    return (RequirementsMissing.exit_status if missing.words else 0), answer, text


def run_packages(layout: Layout) -> tuple[int, Answer, str]:
    packages = read_missing().packages
    return 0, {"packages": packages}, " ".join(packages)


def run_build(layout: Layout) -> tuple[int, Answer, str]:
    require_cluster_machine()
    began = time.monotonic()
    programs = build_programs(Versions.read(), say)
    paths = {name: str(path) for name, path in sorted(programs.paths.items())}
    lines = (f"{name:26} {path}" for name, path in paths.items())
    return 0, {"programs": paths}, "\n".join((*lines, f"all there after {time.monotonic() - began:.0f} s"))


def run_up(layout: Layout) -> tuple[int, Answer, str]:
    require_cluster_machine()
    programs = build_programs(Versions.read(), say)
    with hold(layout):
        began = time.monotonic()
        running = find_cluster(layout)
        cluster = running or start_cluster(layout, programs)
    text = "up already" if running else f"up in {time.monotonic() - began:.1f} s"
    return 0, describe(cluster), f"{text}: KUBECONFIG={layout.kubeconfig('admin')}"


def run_down(layout: Layout) -> tuple[int, Answer, str]:
    require_cluster_machine()
    with hold(layout):
        began = time.monotonic()
        remove_cluster(layout)
    return 0, {"left_behind": []}, f"down in {time.monotonic() - began:.1f} s, nothing left behind"


def run_status(layout: Layout) -> tuple[int, Answer, str]:
    cluster = find_cluster(layout)
    if cluster is None:
        leftovers = find_leftovers(layout)
        text = "; ".join(("no cluster runs", *leftovers))
        return 3, {"running": False, "leftovers": leftovers}, text
    lines = [f"{name:12} {layout.log(name)}" for name in PROCESSES]
    return 0, describe(cluster), "\n".join((f"the cluster in {layout.root} runs", *lines))


def run_env(layout: Layout) -> tuple[int, Answer, str]:
    cluster = find_cluster(layout)
    if cluster is None:
        return 3, {}, "echo 'no cluster runs: python -m tests.integration.cluster up' >&2"
    values = {key: cluster.environment[key] for key in ("KUBECONFIG", "CONTAINER_RUNTIME_ENDPOINT")}
    values["PATH"] = f"{layout.programs}:$PATH"
    return 0, values, "\n".join(f'export {key}="{value}"' for key, value in values.items())


def describe(cluster: Cluster) -> Answer:
    """The running cluster in plain values."""
    layout = cluster.layout
    return {
        "running": True,
        "root": str(layout.root),
        "kubeconfig": str(layout.kubeconfig("admin")),
        "versions": str(cluster.state.versions),
        "programs": str(layout.programs),
        "cache": str(find_cache()),
        "api_port": cluster.state.ports.api,
        "device_plugins_dir": str(layout.device_plugins),
        "pod_resources_socket": str(layout.pod_resources_socket),
        "pods_api_socket": str(layout.pods_api_socket),
        "logs": {name: str(layout.log(name)) for name in PROCESSES},
    }


COMMANDS: Mapping[str, Callable[[Layout], tuple[int, Answer, str]]] = {
    "check": run_check,
    "packages": run_packages,
    "build": run_build,
    "up": run_up,
    "down": run_down,
    "status": run_status,
    "env": run_env,
}

if __name__ == "__main__":
    sys.exit(main())
