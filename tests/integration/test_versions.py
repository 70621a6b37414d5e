"""What differs by the version of kubelet and API server, on whichever of them this cluster has."""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from nodeagent.rules.kubernetes_versions import ABILITIES, Side
from tests.integration.claims import API, CLASSES, DRIVER, RIGHTS, ask, post_claim, render, settings
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent

GPUS, MIG_DEVICES_EACH = 8, 25
PATIENCE_SECONDS = 60.0
HEALTH_IS_SHOWN_FROM, PARTITIONS_ARE_KEPT_FROM = 36, 36
"""Minor releases: of kubelet and API server both, and of the API server."""

_GATE = re.compile(r'^kubernetes_feature_enabled\{name="(\w+)",stage="\w*"\} (\d)$', re.MULTILINE)

pytestmark = pytest.mark.every_version


@pytest.fixture
def rights(node: Cluster) -> Iterator[None]:
    """The rights and classes of claims; no slice outlives the scenario."""
    node.run("kubectl", "apply", "-f", str(RIGHTS), "-f", str(CLASSES))
    yield
    node.run("kubectl", "delete", "--ignore-not-found", "-f", str(RIGHTS), "-f", str(CLASSES))
    node.run("kubectl", "delete", "resourceslices", "--all")


@pytest.mark.parametrize("side", ["API server", "kubelet"])
def test_the_table_says_what_this_version_says_of_itself(node: Cluster, side: Side) -> None:
    """A gate that the table calls on is on or gone, one called off is known and off; nobody has changed gates here."""
    server, minor = (
        (node.api, read_served_minor(node)) if side == "API server" else (node.kubelet, read_kubelet_minor(node))
    )
    gates = {name: value == "1" for name, value in _GATE.findall(server.read_text("/metrics"))}
    told = {each.gate: each.tell(minor) for each in ABILITIES if each.gate and each.side == side}
    known = {gate: said for gate, said in told.items() if said != "no"}
    assert {gate: "on" if gates.get(gate, said == "on") else "off" for gate, said in known.items()} == known


@pytest.mark.usefixtures("rights")
def test_a_sick_gpu_is_in_the_status_of_the_pods_that_hold_it(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """One pod has its GPU by the device plugin, one by a claim; a kubelet before 1.36 shows nothing of health."""
    chosen = settings(node.layout)
    doors = [{"gpus": ["0"], "door": "whole"}, {"gpus": ["1"], "door": "claims"}]
    plugin = {"device_plugin": {"device_list_strategy": ["envvar"]}}
    agent = make_agent(gpus="simulated:dgx-h100", settings=chosen | plugin | {"doors": {"rules": doors}})
    wait_until("a GPU in a slice", lambda: None if list_devices(node) else "none", timeout_seconds=PATIENCE_SECONDS)
    by_plugin = pods.run(render_pod("by-plugin", limits={"nvidia.com/gpu": 1}))
    post_claim(node, "one", ask())
    by_claim = pods.run(render("by-claim", claim="one"))
    is_shown = min(read_kubelet_minor(node), read_served_minor(node)) >= HEALTH_IS_SHOWN_FROM
    for index in ("0", "1"):
        agent.break_it("lost", index)
    wait_health(pods, (by_plugin, by_claim), ["Unhealthy"] if is_shown else [])
    agent.break_it("clear")
    for index in ("0", "1"):
        agent.run("gpu", "clear", index, "--reason", "mended")
    wait_health(pods, (by_plugin, by_claim), ["Healthy"] if is_shown else [])
    pods.delete(by_plugin, by_claim)
    node.run("kubectl", "delete", "resourceclaim", "one")


@pytest.mark.usefixtures("rights")
def test_mig_devices_are_never_offered_without_their_counters(node: Cluster, make_agent: MakeAgent) -> None:
    """Over two lives of the agent: where the API server drops counters, only whole GPUs were ever on offer."""
    are_kept = read_served_minor(node) >= PARTITIONS_ARE_KEPT_FROM
    count = GPUS * (1 + MIG_DEVICES_EACH) if are_kept else GPUS
    with watched_slices(node) as seen:
        agent = make_agent(gpus="simulated:dgx-h100", settings=settings(node.layout, mig_on_demand=True))
        for _ in range(2):
            wait_until(
                f"{count} devices",
                lambda: None if len(list_devices(node)) == count else f"{len(list_devices(node))}",
                timeout_seconds=PATIENCE_SECONDS,
            )
            agent.restart()
    devices = [device for one in seen for device in one["object"]["spec"].get("devices") or ()]
    assert len(devices) >= count
    assert [device["name"] for device in devices if is_uncounted(device)] == []
    assert any("mig" in device["name"] for device in devices) == are_kept


def is_uncounted(device: Json) -> bool:
    return "mig" in device["name"] and not device.get("consumesCounters")


@contextmanager
def watched_slices(node: Cluster) -> Iterator[list[Json]]:
    """Each state that a slice ever had, complete when the block has ended."""
    seen: list[Json] = []
    command = ("kubectl", "get", "resourceslices", "--watch", "--output-watch-events", "--output", "json")
    with tempfile.TemporaryFile("w+") as output:
        with subprocess.Popen(command, env=dict(node.environment), stdout=output) as watch:
            try:
                yield seen
            finally:
                watch.terminate()
        output.seek(0)
        text, decoder = output.read(), json.JSONDecoder()
    while text := text.lstrip():
        event, end = decoder.raw_decode(text)
        seen.append(event)
        text = text[end:]


def list_devices(node: Cluster) -> list[Json]:
    found = node.api.get(f"{API}/resourceslices", fieldSelector=f"spec.driver={DRIVER}")["items"]
    return [device for one in found for device in one["spec"].get("devices") or ()]


def wait_health(pods: Pods, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Until the status of each of these pods shows the health of its one device so."""

    def probe() -> str | None:
        statuses = [pods.read(name)["status"]["containerStatuses"][0] for name in names]
        shown = [one.get("allocatedResourcesStatus", []) for one in statuses]
        found = [[resource["health"] for each in one for resource in each["resources"]] for one in shown]
        return None if found == [list(wanted)] * len(names) else str(shown)

    wait_until(f"{wanted} in the pods' status", probe, timeout_seconds=PATIENCE_SECONDS)


def read_kubelet_minor(node: Cluster) -> int:
    return int(node.api.read_node()["status"]["nodeInfo"]["kubeletVersion"].split(".")[1])


def read_served_minor(node: Cluster) -> int:
    """Of the release whose features and APIs the API server has."""
    version = node.api.get("/version")
    return int(version.get("emulationMinor") or version["minor"])
