"""Profile by profile and fault by fault: headline, exit code, conditions, metrics, labels and page say the same."""

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

from tests.support.agent_process import PATIENCE_SECONDS, AgentProcess, run_command, running_simulation

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]

PROFILES = ("dgx-h100", "a100-40gb", "a100-80gb-mig", "gb200-nvl72-node", "mixed", "t4")
FAULTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "none": (),
    "off the bus": (("simulate", "fault", "xid", "79", "0"),),
    "lost": (("simulate", "fault", "lost", "0"),),
    "remapping failed": (("simulate", "fault", "row-remap", "0", "failed"),),
    "uncorrected memory errors": (("simulate", "fault", "ecc", "0", "uncorrected"),),
    "taken out": (("simulate", "fault", "unplug", "0"),),
    "readings hang": (("simulate", "fault", "hang", "sample", "forever"),),
    "driver gone": (("simulate", "fault", "driver", "gone"),),
    "out of service": (("gpu", "set-door", "0", "none"),),
}
IMPOSSIBLE = {("t4", "remapping failed")}
"""The first GPUs that remap rows came after it."""
QUICK = ("--pods", "2", "--set", "health.poll_seconds=0.5", "--set", "driver.call_timeout_seconds=0.5")
SETTLED_SECONDS = 4.0
"""So long nothing that is said may change, for what is said now to be what is meant."""
HEALTH = re.compile(r'^nodeagent_device_health\{.*?device="([^"]+)".*?verdict="([a-z]+)".*?\} 1$', re.MULTILINE)
CONDITION = re.compile(r"^nodeagent_condition_active\{(.*?)\} 1$", re.MULTILINE)
CODES = {"ok": 0, "attention": 1, "broken": 1, "starting": 1}


@contextmanager
def running(profile: str) -> Iterator[AgentProcess]:
    directory = Path(tempfile.mkdtemp(prefix="na-"))
    with running_simulation(directory, "--profile", profile, *QUICK) as agent:
        agent.wait_for("/readyz", "\nready\n")
        yield agent
    directory.rmdir()


def settle(node: AgentProcess) -> dict[str, Any]:
    """The node's record once what people read of it has not changed for a while."""

    def read() -> tuple[dict[str, Any], object]:
        record = node.get_json("/api/v1/state")
        codes = sorted((one["code"], one["key"]) for one in record["conditions"])
        # How old readings are is told in the sentence, and changes each second.
        return record, (record["verdict"], codes, node.get_json("/api/v1/labels")["wanted"])

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
    ("profile", "fault"),
    [(profile, fault) for profile in PROFILES for fault in FAULTS if (profile, fault) not in IMPOSSIBLE],
)
def test_all_surfaces_say_the_same(profile: str, fault: str) -> None:
    """Whatever is wrong, none of them says that all is well, and none says more or less than the others."""
    with running(profile) as node:
        settle(node)
        for words in FAULTS[fault]:
            done = run_command(node.directory, *words)
            assert done.returncode == 0, done.stderr
        record = settle(node)
        if fault not in ("none", "out of service"):
            assert record["verdict"] != "ok", record["sentence"]
        try_until(lambda: compare(node))


def compare(node: AgentProcess) -> None:
    record = node.get_json("/api/v1/state")
    compare_conditions(node, record)
    compare_health(node, record)
    compare_offer(node, record)
    status = run_command(node.directory, "status")
    assert status.returncode == CODES[record["verdict"]], status.stdout
    assert json.loads(run_command(node.directory, "status", "--json").stdout)["verdict"] == record["verdict"]
    health = run_command(node.directory, "gpu", "health")
    verdicts = [one["verdict"] for gpu in record["gpus"]["gpus"] for one in gpu["health"]]
    assert health.returncode == int(not verdicts or set(verdicts) != {"healthy"}), health.stdout


def compare_conditions(node: AgentProcess, record: dict[str, Any]) -> None:
    """The record, the list, the metric, the status and the page name the same codes."""
    codes = {one["code"] for one in record["conditions"]}
    severities = {one["severity"] for one in record["conditions"]}
    assert {one["code"] for one in node.get_json("/api/v1/conditions")} == codes
    labels = [dict(re.findall(r'(\w+)="([^"]*)"', found)) for found in CONDITION.findall(node.get("/metrics")[1])]
    assert {one["code"] for one in labels} == codes
    said = run_command(node.directory, "status").stdout
    assert all(code in said for code in codes), said
    page = html.unescape(node.get("/")[1])
    assert all(code in page for code in codes)
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
    assert (account["devices_offered"] == 0) <= (record["verdict"] == "broken" or not account["gpus"])
