"""A whole agent that serves claims: its sockets, its journal, its files and its face, over a kill -9."""

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodeagent.edge.host.vgpu.limits_file import DeviceLimit, parse_limits
from nodeagent.model.claims import ClaimReference
from tests.bench.around.api_server import ApiServerThread, api_server
from tests.fakes.apiserver import NODE
from tests.support.programs.agent_process import AgentProcess, run_command, running_agent
from tests.support.waiting import in_thread
from tests.support.wire.claim_kubelet import registered

DRIVER = "gpu.nvidia.com"
RULES = [{"gpus": ["0", "1"], "door": "claims"}]


@pytest.fixture
def api() -> Iterator[ApiServerThread]:
    with api_server() as served:
        yield served


def use(directory: Path, api: ApiServerThread) -> tuple[str, ...]:
    (directory / "registry").mkdir(exist_ok=True)
    settings = {
        "gpus.source": "simulated:dgx-h100",
        "node.name": NODE,
        "kubernetes.enabled": "true",
        "kubernetes.kubeconfig": api.server.write_kubeconfig(directory / "kubeconfig"),
        "claims.enabled": "true",
        "claims.plugins_dir": directory / "plugins",
        "claims.registry_dir": directory / "registry",
        "cdi.dir": directory / "cdi",
        "doors.rules": json.dumps(RULES),
    }
    return tuple(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))


def put_claim(
    api: ApiServerThread, name: str, device: str, *, config: object = None, memory: str = ""
) -> ClaimReference:
    share = {"shareID": f"share-{name}", "consumedCapacity": {"memory": memory, "cores": "20"}} if memory else {}
    devices: dict[str, Any] = {
        "results": [{"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device, **share}],
        "config": [{"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": config}}] if config else [],
    }
    api.server.claims[name] = {
        "metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}"},
        "status": {
            "reservedFor": [{"resource": "pods", "name": f"pod-{name}", "uid": f"pod-{name}"}],
            "allocation": {"devices": devices},
        },
    }
    return ClaimReference(namespace="ns", name=name, uid=f"uid-{name}")


def read(agent: AgentProcess) -> dict[str, Any]:
    return dict(agent.get_json("/api/v1/claims"))


def tell(directory: Path) -> tuple[list[list[str]], str, str, subprocess.CompletedProcess[str]]:
    """What the commands say: the table, one that is ready, one that is refused, and one that nobody knows."""
    place = ("--set", f"node.run_dir={directory / 'run'}")
    table = run_command(directory, "claims", "--no-headers", *place).stdout
    explain = [run_command(directory, "claims", "explain", name, *place) for name in ("one", "ns/bad", "nobody")]
    return [line.split() for line in table.splitlines()], explain[0].stdout, explain[1].stdout, explain[2]


def run_slices(directory: Path) -> list[str]:
    place = ("--set", f"node.run_dir={directory / 'run'}")
    return run_command(directory, "claims", "slices", *place).stdout.splitlines()


def read_mounted(spec: Path) -> tuple[Path, dict[str, Any]]:
    """The metadata file that the only device of a specification brings: where it is, and what it says first."""
    (device,) = json.loads(spec.read_text())["devices"]
    (mount,) = (one for one in device["containerEdits"]["mounts"] if one["containerPath"].endswith("-metadata.json"))
    assert "ro" in mount["options"]
    place = Path(mount["hostPath"])
    return place, json.loads(place.read_text().splitlines()[0])


@pytest.mark.long
async def test_a_claim_brings_a_file_about_its_devices(short_dir: Path, api: ApiServerThread) -> None:
    """Of attributes that schedulers see; it goes with the claim."""
    one = put_claim(api, "one", "gpu-0")
    words = (*use(short_dir, api), "--set", "claims.metadata_files=true")
    with running_agent(short_dir, *words) as agent:
        async with registered(short_dir / "registry") as kubelet:
            await kubelet.prepare(one)
            file = short_dir / "cdi" / "k8s.gpu.nvidia.com-claim_uid-one.json"
            place, document = await in_thread(lambda: read_mounted(file))
            (told,) = document["requests"][0]["devices"]
            agent.wait_until("/api/v1/slices", lambda body: '"gpu-1"' in body, "never told schedulers of its GPUs")
            published = agent.get_json("/api/v1/slices")["slices"][0]["devices"][0]
            assert (told["name"], published["name"]) == ("gpu-0", "gpu-0")
            assert told["attributes"].keys() == published["attributes"].keys()
            assert told["attributes"]["uuid"] == {"string": published["attributes"]["uuid"]}
            await kubelet.unprepare(one)
        assert not place.exists()


@pytest.mark.long
async def test_a_claim_outlives_the_agent_and_is_shown_everywhere(short_dir: Path, api: ApiServerThread) -> None:
    """Killed in between, without API server at its return; refused ones are named with the field."""
    words = use(short_dir, api)
    one = put_claim(api, "one", "gpu-0")
    bad = put_claim(
        api, "bad", "gpu-1", config={"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "x": 1}
    )
    other = put_claim(api, "other", "gpu-5")
    file = short_dir / "cdi" / "k8s.gpu.nvidia.com-claim_uid-one.json"
    with running_agent(short_dir, *words) as agent:
        async with registered(short_dir / "registry") as kubelet:
            answers = await kubelet.prepare(one, bad, other)
        assert [each.device_name for each in answers["uid-one"].devices] == ["gpu-0"]
        assert 'unknown field "config[0] (FromClaim).opaque.parameters.x"' in answers["uid-bad"].error
        assert "device gpu-5 is not given by claims now: door whole (the default)" in answers["uid-other"].error
        assert "uid-one-gpu-0" in file.read_text()
        record = read(agent)
        assert record["standing"]["registered"]
        assert [each["claim"]["name"] for each in record["prepared"]] == ["one"]
        assert {each["claim"] for each in record["refused"]} == {"ns/bad", "ns/other"}
        (held,) = agent.get_json("/api/v1/allocations")
        assert (held["resource"], held["pod"]["name"], held["source"]) == ("claim ns/one", "pod-one", "claim")
        doors = {each["index"]: each["door"] for each in agent.get_json("/api/v1/doors")}
        assert (doors[0], doors[1], doors[2]) == ("claims", "claims", "whole")
        agent.wait_until("/api/v1/slices", lambda body: '"gpu-1"' in body, "never told schedulers of its GPUs")
        told = await in_thread(lambda: tell(short_dir))
        assert [(each[0], each[1]) for each in told[0]] == [
            ("ns/one", "ready"),
            ("ns/bad", "refused"),
            ("ns/other", "refused"),
        ]
        assert "k8s.gpu.nvidia.com/claim=uid-one-gpu-0" in told[1]
        slices = await in_thread(lambda: run_slices(short_dir))
        assert [each.split() for each in slices[1:4]] == [
            ["DEVICE", "TYPE", "MEMORY", "CLAIMS", "TAINTS"],
            ["gpu-0", "GPU", "79.6", "GiB", "ns/one", "-"],
            ["gpu-1", "GPU", "79.6", "GiB", "-", "-"],
        ]
        assert slices[4].startswith("2 devices of gpu.nvidia.com in 1 slice of pool")
        assert "ns/bad  refused\n  because    unknown field" in told[2]
        assert (
            told[3].returncode,
            "no claim nobody is ready or refused on this node; `nodeagent claims` lists" in told[3].stderr,
        ) == (2, True)
        agent.process.send_signal(signal.SIGKILL)
        agent.process.wait()
    file.unlink()
    api.server.claims.clear()
    with running_agent(short_dir, *words) as agent:
        async with registered(short_dir / "registry") as kubelet:
            again = await kubelet.prepare(one)
            assert list(again["uid-one"].devices) == list(answers["uid-one"].devices)
            assert file.exists()
            ends = await kubelet.unprepare(one, bad)
        assert {each.error for each in ends.values()} == {""}
        assert not file.exists()
        assert read(agent)["prepared"] == []


@pytest.mark.long
async def test_shares_of_a_gpu_have_limits_of_their_own_and_go_with_their_claims(
    short_dir: Path, api: ApiServerThread
) -> None:
    """One for which there is no room is refused, whatever a scheduler says; an agent that was killed knows them."""
    words = (*use(short_dir, api), "--set", "claims.shares=true")
    small, large, most = (
        put_claim(api, name, "gpu-1", memory=memory) for name, memory in (("s", "20Gi"), ("l", "30Gi"), ("m", "40Gi"))
    )
    with running_agent(short_dir, *words) as agent:
        async with registered(short_dir / "registry") as kubelet:
            answers = await kubelet.prepare(small, large)
            assert [each.error for each in answers.values()] == ["", ""]
            refused = await kubelet.prepare(most)
        assert "bytes of memory of" in refused["uid-m"].error
        limits = [read_limits_of(short_dir, uid) for uid in ("uid-s", "uid-l")]
        assert [[device.memory_bytes for device in each] for each in limits] == [[20 << 30], [30 << 30]]
        agent.process.send_signal(signal.SIGKILL)
        agent.process.wait()
    with running_agent(short_dir, *words) as agent:
        async with registered(short_dir / "registry") as kubelet:
            ends = await kubelet.unprepare(small, large)
        assert {each.error for each in ends.values()} == {""}
        assert list((short_dir / "state" / "shares").iterdir()) == []
        assert read(agent)["prepared"] == []


def read_limits_of(directory: Path, uid: str) -> Sequence[DeviceLimit]:
    return parse_limits((directory / "state" / "shares" / uid / "limits").read_bytes()).devices
