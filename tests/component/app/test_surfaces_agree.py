"""Profile by profile and fault by fault: every surface says the same.

Headline, exit codes, conditions, metrics, labels and page, and of the commands `status`, `gpu`, `top` and `doctor`.
"""

import html
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli.gpu.source import TROUBLES
from tests.support.programs.agent_process import PATIENCE_SECONDS, AgentProcess, run_command, running_simulation

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]

PARTED = ("--set", "device_plugin.mig_strategy=mixed")
SHARED = ("--set", "sharing.timeSlicing.resources=[{name: nvidia.com/gpu, replicas: 3}]")
NODES: dict[str, tuple[str, tuple[str, ...]]] = {
    **{
        profile: (profile, ())
        for profile in ("dgx-h100", "a100-40gb", "a100-80gb-mig", "gb200-nvl72-node", "mixed", "t4")
    },
    "parts": ("a100-80gb-mig", PARTED),
    "shares": ("mixed", SHARED),
}
"""By name, the profile and what is set on it."""
FAULTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "none": (),
    "off the bus": (("simulate", "fault", "xid", "79", "0"),),
    "lost": (("simulate", "fault", "lost", "0"),),
    "remapping failed": (("simulate", "fault", "row-remap", "0", "failed"),),
    "uncorrected memory errors": (("simulate", "fault", "ecc", "0", "uncorrected"),),
    "taken out": (("simulate", "fault", "unplug", "0"),),
    "readings hang": (("simulate", "fault", "hang", "sample", "forever"),),
    "all calls hang": (("simulate", "fault", "hang", "all", "forever"),),
    "driver gone": (("simulate", "fault", "driver", "gone"),),
    "driver back": (("simulate", "fault", "driver", "gone"), ("simulate", "fault", "driver", "back")),
    "versions differ": (("simulate", "fault", "driver", "mismatch"),),
    "released": (("release",),),
    "fabric not ready": (("simulate", "fault", "fabric", "pending"),),
    "no MIG device made": (("simulate", "fault", "mig", "0", "empty"),),
    "out of service": (("gpu", "set-door", "0", "none"),),
    "cordoned": (("gpu", "cordon", "0", "--reason", "fan"),),
}
WANTED = ("none", "out of service", "cordoned", "driver back")
"""What is well, or becomes so."""
IMPOSSIBLE = {
    # The first GPUs that remap rows, or can be cut, came after it.
    ("t4", "remapping failed"),
    ("t4", "no MIG device made"),
    *((name, "fabric not ready") for name in ("a100-40gb", "a100-80gb-mig", "parts", "mixed", "shares", "t4")),
}
QUICK = ("--pods", "2", "--set", "health.poll_seconds=0.5", "--set", "driver.call_timeout_seconds=0.5")
SETTLED_SECONDS = 4.0
"""So long nothing that is said may change, for what is said now to be what is meant."""
HEALTH = re.compile(r'^nodeagent_device_health\{.*?device="([^"]+)".*?verdict="([a-z]+)".*?\} 1$', re.MULTILINE)
CONDITION = re.compile(r"^nodeagent_condition_active\{(.*?)\} 1$", re.MULTILINE)
CODES = {"ok": 0, "attention": 1, "broken": 1, "starting": 1}


@contextmanager
def running(name: str) -> Iterator[AgentProcess]:
    directory, (profile, settings) = Path(tempfile.mkdtemp(prefix="na-")), NODES[name]
    with running_simulation(directory, "--profile", profile, *settings, *QUICK) as agent:
        agent.wait_for("/readyz", "\nready\n")
        yield agent
    directory.rmdir()


def settle(node: AgentProcess) -> dict[str, Any]:
    """The node's record once what people read of it has not changed for a while."""

    def read() -> tuple[dict[str, Any], object]:
        record = node.get_json("/api/v1/state")
        codes = sorted((one["code"], one["key"]) for one in record["conditions"])
        # How old readings are is told in the sentence, and changes each second.
        labels = node.get_json("/api/v1/labels")
        return record, (record["verdict"], codes, labels and labels["wanted"])

    deadline = time.monotonic() + 3 * PATIENCE_SECONDS
    (record, seen), since = read(), time.monotonic()
    while time.monotonic() - since < SETTLED_SECONDS:
        assert time.monotonic() < deadline, f"it never settled: {record['sentence']}"
        time.sleep(0.25)
        record, now = read()
        if now != seen:
            seen, since = now, time.monotonic()
    return record


def try_until(check: Callable[[], None]) -> None:
    """A look at several surfaces takes a moment, and some conditions are told only once they have lasted."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            return


@pytest.mark.parametrize(
    ("name", "fault"), [(name, fault) for name in NODES for fault in FAULTS if (name, fault) not in IMPOSSIBLE]
)
def test_all_surfaces_say_the_same(name: str, fault: str) -> None:
    """Whatever is wrong, none of them says that all is well, and none says more or less than the others."""
    with running(name) as node:
        settle(node)
        for words in FAULTS[fault]:
            done = run_command(node.directory, *words)
            assert done.returncode == 0, done.stderr
        record = settle(node)
        if fault not in WANTED:
            assert record["verdict"] != "ok", record["sentence"]
        try_until(lambda: compare(node, NODES[name][0]))


def compare(node: AgentProcess, profile: str) -> None:
    record = node.get_json("/api/v1/state")
    compare_conditions(node, record)
    compare_health(node, record)
    compare_offer(node, record)
    compare_free(node, record)
    compare_top(node, record)
    compare_doctor(node, record, profile)
    status = run_command(node.directory, "status")
    assert status.returncode == CODES[record["verdict"]], status.stdout
    assert json.loads(run_command(node.directory, "status", "--json").stdout)["verdict"] == record["verdict"]
    health = run_command(node.directory, "gpu", "health")
    verdicts = [one["verdict"] for gpu in record["gpus"]["gpus"] for one in gpu["health"]]
    troubles = {one["code"] for one in record["conditions"]} & TROUBLES
    assert health.returncode == int(not verdicts or set(verdicts) != {"healthy"} or bool(troubles)), health.stdout
    if any(one["severity"] == "error" and one["code"].startswith("gpu") for one in record["conditions"]):
        assert health.returncode == 1, health.stdout


def compare_conditions(node: AgentProcess, record: dict[str, Any]) -> None:
    """The record, the list, the metric, the status and the page name the same codes."""
    codes = {one["code"] for one in record["conditions"]}
    severities = {one["severity"] for one in record["conditions"]}
    assert {one["code"] for one in node.get_json("/api/v1/conditions")} == codes
    labels = [dict(re.findall(r'(\w+)="([^"]*)"', found)) for found in CONDITION.findall(node.get("/metrics")[1])]
    assert {one["code"] for one in labels} == codes
    page, readiness = html.unescape(node.get("/")[1]), node.get("/readyz")[1]
    for said in (run_command(node.directory, "status").stdout, page, readiness):
        assert all(code in said for code in codes), said
    assert f"[i] {mask_ages(record['sentence'])}" in mask_ages(readiness)
    assert not re.search(r"\bgate \w+ open\b", readiness)
    if "error" in severities:
        assert record["verdict"] == "broken"
    elif "warning" in severities:
        assert record["verdict"] in {"attention", "starting"}
    assert ("all is well" in record["sentence"]) <= (record["verdict"] == "ok" and not severities - {"info"})


def compare_health(node: AgentProcess, record: dict[str, Any]) -> None:
    """Verdicts in the record, in the metric and in the labels."""
    told = {one["device"]: one["verdict"] for gpu in record["gpus"]["gpus"] for one in gpu["health"]}
    assert dict(HEALTH.findall(node.get("/metrics")[1])) == told
    gpus = {gpu["gpu"]["uuid"] for gpu in record["gpus"]["gpus"]}
    labels = node.get_json("/api/v1/labels")["wanted"]
    counted = {key: int(labels.get(f"nvidia.com/gpu.{key}.count", 0)) for key in ("healthy", "unhealthy", "unknown")}
    if sum(counted.values()):
        fit = sum(verdict in {"healthy", "suspect"} for device, verdict in told.items() if device in gpus)
        assert counted["healthy"] == fit, (counted, told)
        assert counted["unhealthy"] == sum(
            verdict == "unhealthy" for device, verdict in told.items() if device in gpus
        ), (counted, told)


def compare_offer(node: AgentProcess, record: dict[str, Any]) -> None:
    """What the kubelet is told is healthy has a verdict that says so; what is unfit is not in service."""
    told = {one["device"]: one["verdict"] for gpu in record["gpus"]["gpus"] for one in gpu["health"]}
    for resource in record["plugin"]["resources"]:
        for device in resource["devices"]:
            uuid = device["id"].partition("::")[0]
            if device["healthy"]:
                assert told.get(uuid) in {"healthy", "suspect"}, (device, told)
    account = record["plugin"]["account"]
    if account["unoffered"]:
        assert "all is well" not in record["sentence"]
    is_meant = any(one["code"] == "driver-released" for one in record["conditions"])
    assert (account["devices_offered"] == 0) <= (record["verdict"] == "broken" or is_meant or not account["gpus"])


def mask_ages(text: str) -> str:
    """How old readings are changes from one look to the next."""
    return re.sub(r"\d+ (s|min)\b", "N", text)


def compare_free(node: AgentProcess, record: dict[str, Any]) -> None:
    """What nobody has and the kubelet may hand out: in the record, on the page, and where a pod would be placed."""
    held = {device for one in record["allocations"] for device in one["devices"]}
    resources = [one for one in record["plugin"]["resources"] if one["registered"]]
    healthy = {device["id"] for one in resources for device in one["devices"] if device["healthy"]}
    free = {device.partition("::")[0] for device in healthy - held}
    assert {uuid for gpu in record["gpus"]["gpus"] for uuid in gpu["free"]} == free
    tiles = re.findall(r'<p class="held[^>]*>(.*?)</p>', node.get("/")[1])
    vacant = [gpu for gpu in record["gpus"]["gpus"] if not gpu["allocations"]]
    assert sum(tile == "free" or tile.endswith(" free") for tile in tiles) == sum(
        bool(gpu["free"]) and gpu["door"]["is_open"] for gpu in vacant
    ), tiles
    placed = json.loads(run_command(node.directory, "gpu", "prefer", "--size", "1", "--json").stdout)
    assert {device.partition("::")[0] for device in placed["devices"]} <= free
    told = {
        one["gpu"]: one["is_open"] for one in json.loads(run_command(node.directory, "gpu", "doors", "--json").stdout)
    }
    assert told == {gpu["gpu"]["uuid"]: gpu["door"]["is_open"] for gpu in record["gpus"]["gpus"]}


def compare_top(node: AgentProcess, record: dict[str, Any]) -> None:
    """Headline, verdicts, losses and holders; all devices at work are there, and no other."""
    top = json.loads(run_command(node.directory, "top", "--json").stdout)
    assert mask_ages(top["sentence"]) == mask_ages(record["sentence"])
    assert top["sample_is_old"] == any(gpu["sample_is_old"] for gpu in record["gpus"]["gpus"])
    shown = {one["uuid"]: one for one in top["devices"]}
    expected = {}
    for gpu in record["gpus"]["gpus"]:
        parts = (gpu["gpu"]["mig"] or {}).get("devices", [])
        for uuid in [part["uuid"] for part in parts] or [gpu["gpu"]["uuid"]]:
            expected[uuid] = next((one["verdict"] for one in gpu["health"] if one["device"] == uuid), "")
            assert bool(shown[uuid]["lost"]) == bool(gpu["gpu"]["lost"])
            holders = {
                f"{one['pod']['namespace']}/{one['pod']['name']}"
                for one in gpu["allocations"]
                if one["pod"] and {device.partition("::")[0] for device in one["devices"]} & {uuid, gpu["gpu"]["uuid"]}
            }
            assert {pod for pod in shown[uuid]["pods"] if "/" in pod} == holders
    assert {uuid: one["health"] for uuid, one in shown.items()} == expected
    printed = run_command(node.directory, "top", "--once")
    assert printed.returncode == 0
    # A narrow terminal breaks the headline.
    assert mask_ages(" ".join(record["sentence"].split())) in mask_ages(" ".join(printed.stdout.split()))


def compare_doctor(node: AgentProcess, record: dict[str, Any], profile: str) -> None:
    """What the doctor says of the agent; the machine that it looks at by itself is another than the made-up one."""
    words = ("doctor", "--gpus", f"simulated:{profile}", "--json")
    checks = json.loads(run_command(node.directory, *words).stdout)["checks"]
    own = [one for one in checks if one["name"] == "agent"]
    found = {(one["grade"], code) for one in own for code in re.findall(r"\(([a-z-]+)\)$", one["found"])}
    grades = {"error": "fail", "warning": "warn"}
    worrying = {(grades[one["severity"]], one["code"]) for one in record["conditions"] if one["severity"] in grades}
    assert found == worrying, own
    if record["verdict"] == "ok":
        assert [one["grade"] for one in own] == ["ok"]
        assert record["sentence"] in own[0]["found"]
    else:
        assert "ok" not in {one["grade"] for one in own}
        assert ("fail" in {one["grade"] for one in own}) == (record["verdict"] == "broken")
    registered = [one["found"] for one in checks if one["name"] == "registration"]
    for resource in record["plugin"]["resources"]:
        healthy = sum(device["healthy"] for device in resource["devices"])
        assert f"{resource['name']}: {healthy} of {len(resource['devices'])} devices healthy" in registered
