"""`nodeagent uninstall` leaves the node object as it was before the agent came."""

import json
from pathlib import Path
from random import Random

import anyio
from msgspec.structs import replace

from nodeagent.app.wiring.mig_paused_clients import STORE
from nodeagent.cli.uninstall.cluster import _list_ours, _take_back, remove_from_cluster
from nodeagent.cli.uninstall.steps import Outcome, Step, list_stopped
from nodeagent.components.allocations.journal_format import encode_records
from nodeagent.components.allocations.ledger import Ledger, open_record
from nodeagent.components.mig.request import Remembered, encode_remembered
from nodeagent.config.load import load_settings
from nodeagent.core.clock import SystemClock
from nodeagent.edge.host.files.journal_disk import JOURNAL_NAME
from nodeagent.edge.host.files.sealed_file import SealedFile
from nodeagent.edge.kube.client import KubeClient
from nodeagent.edge.kube.node import KubeNode
from nodeagent.edge.kube.slices import KubeSlices
from nodeagent.model.cluster import (
    BRAKE_TAINT,
    DEPLOY_LABEL,
    MIG_STATE_LABEL,
    PAUSED_FOR_MIG,
    PAUSED_FOR_UPGRADE,
    TERMINAL_ANNOTATION,
    NodeCondition,
    Taint,
)
from nodeagent.model.slices import SliceContent, SlicePool
from nodeagent.model.upgrades import PutAside, UpgradeEnding, UpgradePhase
from nodeagent.rules.fractions.published import ANNOTATION as FRACTIONS_ANNOTATION
from tests.fakes.apiserver import NODE, FakeApiServer
from tests.support.repairs import make_upgrade
from tests.support.wire.given_credentials import GivenCredentials


async def test_node_object_is_as_it_was_before_the_agent(tmp_path: Path) -> None:
    """Labels, condition, annotation and start-up taint go, those of others stay; a rehearsal only looks."""
    async with FakeApiServer().running() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        server.add_node(NODE, zone="a")
        client = KubeClient(GivenCredentials(kubeconfig))
        node = KubeNode(client, NODE, SystemClock(), Random(1))
        await node.apply_labels(await node.read_node(), {"nvidia.com/gpu.count": "8"})
        await node.write_condition(NodeCondition(status="True", reason="Ready"), changed=True)
        cards = NodeCondition(type="devices.nodeagent.io/cards", status="True", reason="DevicesReady")
        await node.write_condition(cards, changed=True)
        hardware = NodeCondition(type="AcceleratedHardwareReady", status="True", reason="GPUsHealthy")
        await node.write_condition(hardware, changed=True)
        await node.write_annotation(TERMINAL_ANNOTATION, "lost")
        await node.write_annotation(FRACTIONS_ANNOTATION, "1")
        await node.write_label(MIG_STATE_LABEL, "success")
        await node.change_taint(Taint(key="nvidia.com/gpu-starting", effect="NoSchedule"), present=True)
        await node.change_taint(BRAKE_TAINT, present=True)
        slices = KubeSlices(client, SlicePool(driver="gpu.nvidia.com", node=NODE), Random(1))
        await slices.create("s", SliceContent(), (1, 1), "uid")
        await client.aclose()
        overrides = (
            f"kubernetes.kubeconfig={kubeconfig}",
            f"node.name={NODE}",
            "kubernetes.startup_taint=nvidia.com/gpu-starting:NoSchedule",
        )
        settings = load_settings(environ={}, overrides=overrides).settings
        before = json.dumps(server.nodes[NODE])
        rehearsed = await remove_from_cluster(settings, {}, dry=True)
        assert json.dumps(server.nodes[NODE]) == before
        assert list(server.slices) == ["s"]
        assert await remove_from_cluster(settings, {}, dry=False) == rehearsed
        assert [each.step for each in rehearsed] == [Step.REMOVED] * 10
        assert server.slices == {}
        left = server.nodes[NODE]
        assert left["metadata"]["labels"] == {"zone": "a"}
        assert not left["metadata"].get("annotations")
        assert "taints" not in left["spec"]
        assert left["status"]["conditions"] == []
        assert await remove_from_cluster(settings, {}, dry=False) == []


async def test_nobody_is_left_paused_for_an_agent_that_is_gone(tmp_path: Path) -> None:
    """A kill in the middle of a MIG change, and then the end: others are themselves again."""
    exporter = f"{DEPLOY_LABEL}dcgm-exporter"
    remembered = Remembered(layout="all-balanced", paused={exporter: "true", f"{DEPLOY_LABEL}dcgm": "true"})
    store = SealedFile(tmp_path / STORE[0], *STORE[1:])
    async with FakeApiServer().running() as server:
        server.add_node(NODE, **{exporter: PAUSED_FOR_MIG, f"{DEPLOY_LABEL}dcgm": "false"})
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        overrides = (f"kubernetes.kubeconfig={kubeconfig}", f"node.name={NODE}", f"node.state_dir={tmp_path}")
        settings = load_settings(environ={}, overrides=overrides).settings
        await anyio.to_thread.run_sync(store.write, b"something else")
        assert await remove_from_cluster(settings, {}, dry=False) == []
        await anyio.to_thread.run_sync(store.write, encode_remembered(remembered))
        (rehearsed,) = await remove_from_cluster(settings, {}, dry=True)
        assert server.labels(NODE)[exporter] == PAUSED_FOR_MIG
        assert await remove_from_cluster(settings, {}, dry=False) == [rehearsed]
        assert rehearsed == Outcome(Step.RESTORED, f"label {exporter}=true of node {NODE}")
        assert server.labels(NODE) == {exporter: "true", f"{DEPLOY_LABEL}dcgm": "false"}


async def test_whoever_was_paused_for_an_upgrade_is_resumed(tmp_path: Path) -> None:
    """Services are named, and not started: the driver may be gone."""
    exporter, aside = f"{DEPLOY_LABEL}dcgm-exporter", PutAside(services=("nvidia-persistenced",))
    ended = make_upgrade(number=1, put_aside=aside, ending=UpgradeEnding.DONE, ended_seconds=1.0)
    under_way = make_upgrade(UpgradePhase.UNLOAD, 2, put_aside=replace(aside, labels={exporter: "true"}))
    opened = open_record(Ledger(upgrades={1: ended, 2: under_way}), "machine", "boot")
    await anyio.to_thread.run_sync((tmp_path / JOURNAL_NAME).write_bytes, encode_records([opened], 0)[0])
    async with FakeApiServer().running() as server:
        server.add_node(NODE, **{exporter: PAUSED_FOR_UPGRADE})
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        overrides = (f"kubernetes.kubeconfig={kubeconfig}", f"node.name={NODE}", f"node.state_dir={tmp_path}")
        settings = load_settings(environ={}, overrides=overrides).settings
        (resumed,) = await remove_from_cluster(settings, {}, dry=False)
        assert resumed == Outcome(Step.RESTORED, f"label {exporter}=true of node {NODE}")
        assert server.labels(NODE) == {exporter: "true"}
        (stopped,) = await anyio.to_thread.run_sync(lambda: [*list_stopped(settings)])
        reason = "stopped for upgrade 2 of the driver: systemctl start nvidia-persistenced"
        assert stopped == Outcome(Step.KEPT, "service nvidia-persistenced", reason)


async def test_a_label_that_another_manager_has_set_since_stays(tmp_path: Path) -> None:
    """NVIDIA's MIG manager tells its state by the same label."""
    async with FakeApiServer().running() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        server.add_node(NODE)
        client = KubeClient(GivenCredentials(kubeconfig))
        await KubeNode(client, NODE, SystemClock(), Random(1)).write_label(MIG_STATE_LABEL, "success")
        await client.aclose()
        server.set_labels(**{MIG_STATE_LABEL: "pending"})
        overrides = (f"kubernetes.kubeconfig={kubeconfig}", f"node.name={NODE}")
        settings = load_settings(environ={}, overrides=overrides).settings
        assert await remove_from_cluster(settings, {}, dry=False) == []
        assert server.labels() == {MIG_STATE_LABEL: "pending"}


async def test_what_the_api_server_refuses_is_a_step_that_failed(tmp_path: Path) -> None:
    """Each by itself, so that one refusal does not keep the rest."""
    async with FakeApiServer().running() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        client = KubeClient(GivenCredentials(kubeconfig))
        node = KubeNode(client, NODE, SystemClock(), Random(1))
        await node.write_condition(NodeCondition(status="True", reason="Ready"), changed=True)
        await node.write_annotation(TERMINAL_ANNOTATION, "lost")
        found = await node.read_node()
        settings = load_settings(environ={}, overrides=(f"kubernetes.kubeconfig={kubeconfig}",)).settings
        acts = _list_ours(settings, node, found)
        del server.nodes[NODE]
        outcomes = [await _take_back(what, act, dry=False) for what, act in acts.items()]
        await client.aclose()
    assert [each.step for each in outcomes] == [Step.FAILED, Step.FAILED]


async def test_an_api_server_that_is_away_is_a_step_that_failed(tmp_path: Path) -> None:
    """The labels stay, and the report says why."""
    async with FakeApiServer().running() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
    overrides = (f"kubernetes.kubeconfig={kubeconfig}", f"node.name={NODE}")
    settings = load_settings(environ={}, overrides=overrides).settings
    with anyio.fail_after(30):
        (outcome,) = await remove_from_cluster(settings, {}, dry=False)
    assert outcome.step is Step.FAILED
