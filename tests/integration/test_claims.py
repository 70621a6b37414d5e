"""Claims on a real API server, scheduler and kubelet: each pod has the device that its claim names, and gives it back.

The GPUs are made up: a container is told by an environment variable which it was given. Everything between is real: the
scheduler's choice, the kubelet's calls, its state over restarts, the runtime's injection.
"""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.edge.host.vgpu.layout import LIMITS_BYTES
from nodeagent.edge.host.vgpu.limits_file import parse_limits
from nodeagent_sim import gpus
from tests.integration.claims import (
    API,
    CLAIMS,
    CLASSES,
    DRIVER,
    GPU,
    MIG,
    RIGHTS,
    TELL,
    TEMPLATES,
    VERSION,
    ask,
    check,
    make_claim,
    make_template,
    post_claim,
    prepared,
    render,
    settings,
    told,
    wait_none,
)
from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.making.render import BUSYBOX_IMAGE
from tests.integration.cluster.pods import WAIT, Pods, has_reached, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.nvidia_claims import DRA_DRIVER
from tests.integration.runtimes.releases import fetch_module

PROFILE = "dgx-h100"
PROFILES = Path(gpus.__file__).parent / "profiles"
SETTLE_SECONDS = 150.0
"""The kubelet asks again about every minute and a half for a pod whose claim was refused."""


@pytest.fixture
def choices() -> dict[str, Any]:
    """What a scenario sets of `claims` beside the places."""
    return {}


@pytest.fixture
def profile(tmp_path: Path) -> str:
    """GPUs on which nobody works but pods: one that is in use cannot be cut."""
    written = tmp_path / f"{PROFILE}-idle.yaml"
    written.write_text(f"{(PROFILES / f'{PROFILE}.yaml').read_text()}\njobs: false\n")
    return f"simulated:{written}"


@pytest.fixture
def agent(node: Cluster, make_agent: MakeAgent, choices: dict[str, Any], profile: str) -> Iterator[AgentUnderTest]:
    node.run("kubectl", "apply", "-f", str(RIGHTS), "-f", str(CLASSES))
    made = make_agent(gpus=profile, settings=settings(node.layout, **choices))

    def offered() -> str | None:
        slices = node.api.get(f"{API}/resourceslices")["items"]
        count = sum(len(one["spec"].get("devices") or ()) for one in slices)
        return None if count >= 8 and made.get_json("/api/v1/claims")["standing"]["registered"] else f"{count} devices"

    wait_until("8 devices in slices, and the driver registered", offered, timeout_seconds=30)
    yield made
    # Pods and claims go while the agent is there: who has a claim is not gone before it was put away.
    if not made.is_running():
        made.start()
    Pods(node).delete_all()
    for path in (CLAIMS, TEMPLATES):
        for one in node.api.get(path)["items"]:
            node.api.delete(f"{path}/{one['metadata']['name']}")
    node.run("kubectl", "delete", "--ignore-not-found", "-f", str(RIGHTS), "-f", str(CLASSES))


@pytest.mark.every_version
def test_each_pod_has_its_claims_devices_and_gives_them_back(node: Cluster, agent: AgentUnderTest, pods: Pods) -> None:
    """A claim for each, one for two pods, one for two containers of which each has its request."""
    make_template(node)
    pods.run(render("own-a", template="each"))
    pods.run(render("own-b", template="each"))
    shared = make_claim(node, "shared")
    pods.run(render("left", claim=shared))
    pods.run(render("right", claim=shared))
    both = make_claim(node, "both", "first", "second")
    pods.run(render("pair", claim=both, containers={"main": "first", "other": "second", "all": ""}))
    own_a, own_b = check(node, agent, "own-a"), check(node, agent, "own-b")
    assert check(node, agent, "left", shared) == check(node, agent, "right", shared)
    first, second = told(node, "pair"), told(node, "pair", "other")
    assert told(node, "pair", "all") == first | second
    assert len(own_a | own_b | told(node, "left") | first | second) == 5, "nothing is given twice"
    wait_until(
        "the containers to be named",
        lambda: None if holders(agent) >= WANTED else str(holders(agent)),
        timeout_seconds=20,
    )
    pods.delete("left")
    assert shared in prepared(agent), "the other pod still has it"
    pods.delete("right", "own-a", "own-b", "pair")
    wait_none(agent)
    assert not list(node.layout.cdi_dirs[1].glob("k8s.gpu.nvidia.com-claim_*"))


WANTED = {
    ("own-a", "main"),
    ("own-b", "main"),
    ("left", "main"),
    ("right", "main"),
    ("pair", "main"),
    ("pair", "other"),
}


def holders(agent: AgentUnderTest) -> set[tuple[str, str]]:
    """Pods and containers that the agent shows beside what the device plugin has handed out."""
    return {(one["pod"]["name"], one["container"]) for one in agent.get_json("/api/v1/allocations")}


def test_configurations_are_obeyed_or_refused_by_the_name_of_the_field(
    node: Cluster, agent: AgentUnderTest, pods: Pods
) -> None:
    """The pod's event says what is wrong with whose configuration; the other pods start."""
    well = {"apiVersion": VERSION, "kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing"}}
    make_claim(node, "turns", parameters=well)
    make_claim(node, "misspelt", parameters={**well, "sharin": {}})
    pods.create(render("refused", claim="misspelt"))
    pods.run(render("taking-turns", claim="turns"))
    check(node, agent, "taking-turns", "turns")

    def said() -> str | None:
        events = " ".join(pods.read_events("refused"))
        return (
            None if 'unknown field "config[0] (FromClaim).opaque.parameters.sharin"' in events else events or "nothing"
        )

    wait_until("the pod's event to name the field", said, timeout_seconds=60)
    assert "refused" in agent.run("claims")
    assert "sharin" in agent.run("claims", "explain", "misspelt")
    assert "time slice Default" in agent.run("claims", "explain", "default/turns")
    pods.delete("refused", "taking-turns")
    wait_none(agent)


@pytest.fixture
def may_look(node: Cluster) -> Iterator[None]:
    """The namespace's pods may look at devices that others have."""
    label = "resource.kubernetes.io/admin-access"
    node.run("kubectl", "label", "namespace", "default", f"{label}=true")
    yield
    node.run("kubectl", "label", "namespace", "default", f"{label}-")


@pytest.mark.usefixtures("may_look")
def test_who_looks_at_all_gpus_is_in_nobodys_way(node: Cluster, agent: AgentUnderTest, pods: Pods) -> None:
    """By a claim with `adminAccess`: beside whoever has them, and whoever comes is given them all the same."""
    pods.run(render("before", claim=make_claim(node, "before")))
    spec = ask()
    spec["devices"]["requests"][0]["exactly"] |= {"allocationMode": "All", "adminAccess": True}
    document = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "look"}, "spec": spec}
    node.api.post(CLAIMS, document)
    pods.run(render("look", claim="look"))
    assert len(check(node, agent, "look", "look")) == 8
    pods.run(render("after", claim=make_claim(node, "after", *(f"gpu-{number}" for number in range(7)))))
    before, after = check(node, agent, "before", "before"), check(node, agent, "after", "after")
    assert (len(before), len(after), before & after) == (1, 7, set())
    pods.delete("look")
    wait_until(
        "the claim that looked to be put away",
        lambda: "it is prepared" if "look" in prepared(agent) else None,
        timeout_seconds=30,
    )
    assert {"before", "after"} <= prepared(agent).keys()
    assert told(node, "before") == before


@pytest.mark.every_version
def test_claims_outlive_the_agent_the_kubelet_the_api_server_and_the_files(
    node: Cluster, agent: AgentUnderTest, pods: Pods
) -> None:
    """Whatever was away: who has a device keeps it, and a container that starts again is given the same."""
    make_claim(node, "kept")
    pod = render("kept", claim="kept")
    pod["spec"]["restartPolicy"] = "Always"
    pods.run(pod)
    gpus = check(node, agent, "kept", "kept")
    agent.stop(signal.SIGKILL)
    for file in node.layout.cdi_dirs[1].glob("k8s.gpu.nvidia.com-claim_*"):
        file.unlink()
    agent.start()
    agent.wait_ready()
    assert set(prepared(agent)) == {"kept"}
    wait_until("the claim's file to be back", lambda: None if files(node) else "none", timeout_seconds=20)
    node.restart_kubelet()
    node.begin_outage()
    shutil.rmtree(node.layout.cdi_dirs[1])
    wait_until("the claim's file to be back", lambda: None if files(node) else "none", timeout_seconds=60)
    assert set(prepared(agent)) == {"kept"}
    node.end_outage()
    started = count_restarts(pods.read("kept"))
    node.run("crictl", "stop", "--timeout", "0", pods.container_id("kept"))
    pods.wait_for("kept", "started again", lambda one: count_restarts(one) > started and has_reached(one, "Running"))
    assert check(node, agent, "kept", "kept") == gpus
    pods.delete("kept")
    wait_none(agent)


def files(node: Cluster) -> list[str]:
    return [each.name for each in node.layout.cdi_dirs[1].glob("k8s.gpu.nvidia.com-claim_*")]


def count_restarts(pod: Json) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


@pytest.mark.timeout(400)
def test_an_agent_that_is_killed_while_pods_come_loses_and_doubles_nothing(
    node: Cluster, agent: AgentUnderTest, pods: Pods
) -> None:
    """At moments that nobody chose; in the end every pod runs on a GPU of its own, and all is given back."""
    make_template(node)
    names = [f"p{number}" for number in range(6)]
    for number, name in enumerate(names):
        pods.create(render(name, template="each"))
        if number % 2:
            agent.restart()
    for name in names:
        pods.wait(name, "Running", timeout_seconds=SETTLE_SECONDS)
    given = [check(node, agent, name) for name in names]
    assert len(set().union(*given)) == len(names)
    agent.stop(signal.SIGKILL)
    for name in names:
        node.api.delete(f"/api/v1/namespaces/default/pods/{name}")
    agent.start()
    agent.wait_ready()
    wait_none(agent, SETTLE_SECONDS)
    assert not files(node)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_hundred_pods_with_claims_come_at_once(node: Cluster, agent: AgentUnderTest, pods: Pods) -> None:
    """Eight at a time run on eight GPUs, until all have; each had the device of its claim and no other."""
    make_template(node)
    names = [f"p{number:03}" for number in range(100)]
    for name in names:
        pods.create(render(name, template="each", tell="env"))
    for name in names:
        pods.wait_for(
            name, "ended", lambda pod: pod["status"].get("phase") in {"Succeeded", "Failed"}, timeout_seconds=600
        )
    assert {pods.read(name)["status"]["phase"] for name in names} == {"Succeeded"}
    assert all(len(told(node, name)) == 1 for name in names)
    pods.delete(*names)
    wait_none(agent, 200)


def test_a_gpu_moves_between_claims_and_the_device_plugin(node: Cluster, agent: AgentUnderTest, pods: Pods) -> None:
    """Without a restart, as soon as nobody has it; nobody is given it in both ways."""
    make_claim(node, "one")
    pods.run(render("one", claim="one"))
    (uuid,) = check(node, agent, "one", "one")
    index = next(each["gpu"]["index"] for each in agent.get_json("/api/v1/gpus")["gpus"] if each["gpu"]["uuid"] == uuid)
    assert "until default/one" in agent.run("gpu", "set-door", str(index), "whole")
    assert node.count("nvidia.com/gpu") == 0
    pods.delete("one")
    node.wait_count("nvidia.com/gpu", 1)
    pods.run(render_pod("whole", ("sh", "-c", TELL), limits={"nvidia.com/gpu": 1}))
    assert told(node, "whole") == {uuid}
    agent.run("gpu", "set-door", str(index), "claims")
    pods.delete("whole")
    node.wait_count("nvidia.com/gpu", 0)


@pytest.mark.parametrize("choices", [{"shares": True}], ids=["shares"])
def test_three_claims_share_one_gpu_within_what_it_has(node: Cluster, agent: AgentUnderTest, pods: Pods) -> None:
    """Each is told its own limits; a fourth for which there is no room on that GPU does not start."""
    uuid = next(one["gpu"]["uuid"] for one in agent.get_json("/api/v1/gpus")["gpus"] if one["gpu"]["index"] == 3)
    only = {"cel": {"expression": f"device.attributes['{DRIVER}'].uuid == '{uuid}'"}}
    tell = f"env; head -c {LIMITS_BYTES} /run/nodeagent/vgpu/limits | od -An -v -tx1; {WAIT}"
    for name, memory in (("a", "20Gi"), ("b", "30Gi"), ("c", "10Gi"), ("d", "40Gi")):
        asked = {
            "deviceClassName": GPU,
            "selectors": [only],
            "capacity": {"requests": {"memory": memory, "cores": "20"}},
        }
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": asked}]}}
        post_claim(node, name, spec)
        pods.create(render(name, claim=name, tell=tell))
    for name, gibibytes in (("a", 20), ("b", 30), ("c", 10)):
        pods.wait(name, "Running")
        assert told(node, name) == {uuid}
        lines = node.run("kubectl", "logs", name).splitlines()
        limits = parse_limits(bytes.fromhex("".join(line for line in lines if line.startswith(" "))))
        assert [(one.uuid, one.memory_bytes) for one in limits.devices] == [(uuid, gibibytes << 30)]
    assert not has_reached(pods.read("d"), "Running")
    assert set(prepared(agent)) == {"a", "b", "c"}
    pods.delete("b")
    pods.wait("d", "Running", timeout_seconds=SETTLE_SECONDS)
    pods.delete("a", "c", "d")
    wait_none(agent)


@pytest.mark.parametrize("choices", [{"mig_on_demand": True}], ids=["on-demand"])
def test_mig_devices_are_made_for_claims_and_go_with_them(node: Cluster, agent: AgentUnderTest, pods: Pods) -> None:
    """Two of one GPU, each in its pod; one that ends takes its own alone, and with the last one goes MIG itself."""

    def look() -> Json:
        return dict(next(one["gpu"] for one in agent.get_json("/api/v1/gpus")["gpus"] if one["gpu"]["index"] == 3))

    def wait_cut(what: str, *profiles: str) -> None:
        def probe() -> str | None:
            there = {one["profile"] for one in look()["mig"]["devices"]}
            return None if there == set(profiles) else str(there)

        wait_until(what, probe, timeout_seconds=60)

    uuid, has = look()["uuid"], f"device.attributes['{DRIVER}']"
    for name, wanted in (("small", "1g.10gb"), ("wide", "3g.40gb")):
        chosen = f"{has}.parentUUID == '{uuid}' && {has}.profile == '{wanted}'"
        asked = {"deviceClassName": MIG, "selectors": [{"cel": {"expression": chosen}}]}
        spec = {"devices": {"requests": [{"name": "part", "exactly": asked}]}}
        post_claim(node, name, spec)
        pods.create(render(name, claim=name))
    for name in ("small", "wide"):
        pods.wait(name, "Running", timeout_seconds=SETTLE_SECONDS)
    made = {one["profile"]: one["uuid"] for one in look()["mig"]["devices"]}
    assert (told(node, "small"), told(node, "wide")) == ({made["1g.10gb"]}, {made["3g.40gb"]})
    pods.delete("small")
    wait_cut("its own device to go with the pod", "3g.40gb")
    assert [one["uuid"] for one in look()["mig"]["devices"]] == [made["3g.40gb"]]
    pods.delete("wide")
    wait_none(agent)
    wait_cut("the GPU to be whole")
    assert not look()["mig"]["enabled"]


@pytest.mark.parametrize("choices", [{"mig_on_demand": True}], ids=["on-demand"])
@pytest.mark.parametrize(("spec", "runs"), [("simple-mig", 2), ("anymig", 2), ("multiple-mig", 10)])
def test_the_specs_of_nvidias_driver_start_at_the_first_question(
    node: Cluster, agent: AgentUnderTest, pods: Pods, spec: str, runs: int
) -> None:
    """By its own tests' files, one run after the other: the kubelet is never told to ask again."""
    source = fetch_module(*DRA_DRIVER) / "tests/bats/specs" / f"gpu-{spec}.yaml"
    template, pod = yaml.safe_load_all(source.read_text())
    for container in pod["spec"]["containers"]:
        container |= {"image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", TELL], "args": []}
    pod["spec"] |= {"hostNetwork": True, "terminationGracePeriodSeconds": 1, "tolerations": [{"operator": "Exists"}]}
    node.api.post(TEMPLATES, template)
    name = pod["metadata"]["name"]
    for _ in range(runs):
        pods.create(pod)
        pods.wait(name, "Running", timeout_seconds=SETTLE_SECONDS)
        given = [told(node, name, each["name"]) for each in pod["spec"]["containers"]]
        assert [len(each) for each in given] == [1] * len(given)
        assert len(set.union(*given)) == len(given)
        chosen = f"involvedObject.name={name},reason=FailedPrepareDynamicResources"
        assert node.run("kubectl", "get", "events", "--field-selector", chosen, "-o", "name") == ""
        pods.delete(name)
    wait_none(agent)
