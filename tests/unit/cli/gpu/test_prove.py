"""`gpu prove` over simulated GPUs, with a prover that says what the test says."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import convert
from msgspec.structs import replace

from nodeagent.app.simulator import load_simulator
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.gpu import proof_session, prove, source
from nodeagent.cli.gpu.proof_view import draw_spread
from nodeagent.components.web.api.claims import ClaimRecord, ClaimsRecord
from nodeagent.components.web.api.records import GpuRecord, GpusRecord
from nodeagent.config.live import LiveSettings
from nodeagent.model.allocation import Allocation, PodIdentity
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import PciAddress, ResourceName
from nodeagent.model.journal import PreparedClaim, PreparedDevice
from nodeagent.model.ports import GpuSource
from nodeagent.model.proof import PatternPass, ProofPlan, ProverReadings, SmSum, Speed, SpeedKind
from nodeagent.model.telemetry import NodeSample
from nodeagent.rules.proof.kernel_model import compute_sums
from tests.support.programs.command_line import run_here

pytestmark = pytest.mark.may_block("commands read files in their own short-lived loop")

PROFILE: Final = "l40s"
"""Four GPUs of a model."""
RESOURCE: Final = ResourceName("nvidia.com/gpu")


class Prover:
    """Proves every GPU sound, but for what the test says of some."""

    def __init__(self) -> None:
        self.said: dict[str, ProverReadings] = {}
        self.speeds: dict[str, float] = {}
        self.asked: list[tuple[str, ProofPlan, tuple[str, ...]]] = []

    async def prove(self, gpu: str, plan: ProofPlan, peers: tuple[str, ...] = ()) -> ProverReadings:
        self.asked.append((gpu, plan, peers))
        if gpu in self.said:
            return self.said[gpu]
        right = compute_sums(plan.turns, plan.rounds, plan.seed)
        speed = self.speeds.get(gpu, 700.0)
        return ProverReadings(
            patterns=(PatternPass(where="memory", size_bytes=1 << 20, seed=1, mask=0),),
            sums=(SmSum(sm=0, plain=right.plain, weighted=right.weighted, tensor=right.tensor),),
            multiprocessors=1,
            memory_nominal_gbps=864.0,
            speeds=(Speed(kind=SpeedKind.MEMORY, values=(speed,) * 3),),
            seconds=1.25,
        )


class IdleGpus:
    """The simulation's GPUs without the programs that keep them busy."""

    def __init__(self, gpus: GpuSource) -> None:
        self._gpus = gpus
        self.read_inventory, self.events = gpus.read_inventory, gpus.events

    async def read_sample(self) -> NodeSample:
        sample = await self._gpus.read_sample()
        return replace(sample, gpus=tuple(replace(each, processes=()) for each in sample.gpus))


@pytest.fixture
def prover(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Prover:
    """Simulated GPUs in the place of the hardware, and no agent."""
    made = Prover()

    def choose(live: LiveSettings, node_name: str, seed: int) -> Any:
        hardware = load_simulator().build_hardware(PROFILE, live, node_name, seed)
        return replace(hardware, gpus=IdleGpus(hardware.gpus))

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(source, "choose_hardware", choose)
    monkeypatch.setattr(proof_session, "choose_hardware", choose)
    monkeypatch.setattr(proof_session, "ProverChild", lambda *_: made)
    return made


def run(tmp_path: Path, *words: str) -> tuple[int, str, str]:
    nobody = ("--set", "http.listen=127.0.0.1:1", "--set", f"node.run_dir={tmp_path}")
    return run_here("gpu", "prove", *words, *nobody, "--set", f"node.proc_dir={tmp_path}")


def list_gpus(tmp_path: Path) -> list[dict[str, Any]]:
    words = ("--gpus", f"simulated:{PROFILE}", "--set", f"node.run_dir={tmp_path}")
    record = json.loads(run_here("gpu", "list", "--json", *words)[1])
    return [each["gpu"] for each in record["gpus"]]


def test_a_sound_gpu_passes_beside_its_neighbours(prover: Prover, tmp_path: Path) -> None:
    """Each neighbour shows its speeds, and each check is a line."""
    code, out, err = run(tmp_path, "1")
    assert (code, err) == (ExitCode.OK, "nodeagent: proving 1 (quick)\n")
    assert "1    memory speed" in out
    assert "others 700 GB/s, at least 525 GB/s" in out
    assert out.count(f"  {'█' * 40}  700 GB/s") == 4
    assert out.endswith("\nGPU 1 passed (quick, 1.2 s)\n")
    assert [plan.all_memory for _, plan, _ in prover.asked] == [False] * 4


def test_a_slow_gpu_fails_beside_its_neighbours(prover: Prover, tmp_path: Path) -> None:
    """Though it is above the floor."""
    uuids = [gpu["uuid"] for gpu in list_gpus(tmp_path)]
    prover.speeds[uuids[2]] = 530.0
    code, out, _ = run(tmp_path, "2")
    assert code == ExitCode.UNWELL
    assert out.endswith("GPU 2 failed (quick, 1.2 s): memory speed\n")
    assert run(tmp_path, "1")[0] == ExitCode.OK


def test_all_gpus_are_proven_and_the_worst_counts(prover: Prover, tmp_path: Path) -> None:
    """A GPU is measured once; as JSON the readings are told whole."""
    uuids = [gpu["uuid"] for gpu in list_gpus(tmp_path)]
    prover.said[uuids[3]] = ProverReadings(
        stopped="cuInit failed with CUDA_ERROR_UNKNOWN (999)", call="cuInit", code=999
    )
    code, out, err = run(tmp_path, "all", "--stage", "proof", "--json")
    record = json.loads(out)
    assert (code, err) == (ExitCode.UNREACHABLE, "")
    assert [len(proof["checks"]) > 5 for proof in record["proofs"]] == [True] * 4
    assert (len(prover.asked), len(record["readings"])) == (4, 4)
    assert all(len(peers) == 3 and plan.with_peers for _, plan, peers in prover.asked)
    prover.said[uuids[0]] = ProverReadings(stopped="no answer", hung=True)
    assert run(tmp_path, "all")[0] == ExitCode.UNWELL
    names = run(tmp_path, "all", "-o", "name")[1].split()
    assert names == uuids


def test_the_first_stage_does_not_touch_the_gpu(prover: Prover, tmp_path: Path) -> None:
    code, out, _ = run(tmp_path, "0", "--stage", "instant")
    assert (code, prover.asked) == (ExitCode.OK, [])
    assert out.endswith("GPU 0 passed (instant)\n")


def test_floors_of_a_file_come_first(prover: Prover, tmp_path: Path) -> None:
    """A file that cannot be used is named with the key."""
    file = tmp_path / "floors.yaml"
    file.write_text("NVIDIA L40S: {memory: 750}\n")
    assert run(tmp_path, "0", "--floors", str(file))[0] == ExitCode.UNWELL
    file.write_text("NVIDIA L40S: {memory: 7.5}\n")
    code, out, _ = run(tmp_path, "0", "--floors", str(file))
    assert (code, "GPU 0: the floor 7.5 GB/s for memory is not used" in out) == (ExitCode.OK, True)
    file.write_text("NVIDIA L40S: {memry: 750}\n")
    code, _, err = run(tmp_path, "0", "--floors", str(file))
    assert (code, "memry" in err, str(file) in err) == (ExitCode.BAD_INPUT, True, True)
    code, _, err = run(tmp_path, "0", "--floors", f"{file}.absent")
    assert (code, "No such file" in err) == (ExitCode.BAD_INPUT, True)


def test_simulated_gpus_are_not_proven(tmp_path: Path) -> None:
    code, _, err = run(tmp_path, "0", "--gpus", f"simulated:{PROFILE}")
    assert (code, "simulated GPUs compute nothing" in err) == (ExitCode.BAD_INPUT, True)


class Agent:
    """Answers with one list of GPUs, the first of which a pod holds, and the second a claim."""

    where, simulated = "an agent", ""

    def __init__(self, gpus: list[Gpu]) -> None:
        held = [Allocation(number=number, resource=RESOURCE, devices=(), since_seconds=0.0) for number in (1, 2)]
        held[0] = replace(held[0], pod=PodIdentity(namespace="ml", name="train-0"))
        first = GpuRecord(gpu=gpus[0], allocations=tuple(held))
        self.records = GpusRecord(generation=1, gpus=(first, *(GpuRecord(gpu=gpu) for gpu in gpus[1:])))
        device = PreparedDevice(requests=("gpu",), pool="node", device="gpu-1", uuid=gpus[1].uuid)
        admin = replace(device, uuid=gpus[2].uuid, is_admin=True)
        claim = PreparedClaim(uid="1", namespace="ml", name="claim-0", devices=(device, admin), since_seconds=0.0)
        self.claims = ClaimsRecord(standing=None, prepared=(ClaimRecord(claim=claim),))

    def read(self, _path: str, kind: object) -> object:
        return self.claims if kind is ClaimsRecord else self.records


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch, prover: Prover, tmp_path: Path) -> Agent:
    gpus = [convert(gpu, Gpu) for gpu in list_gpus(tmp_path)]
    made = Agent(gpus)
    monkeypatch.setattr(prove, "read_gpus", lambda *_: (made, made.records))
    monkeypatch.setattr(prove, "find_agent", lambda *_: made)
    return made


@pytest.mark.parametrize(
    ("gpu", "who"), [("0", "in use by pod ml/train-0, a pod not known yet"), ("1", "in use by claim ml/claim-0")]
)
def test_a_gpu_in_use_is_not_tested_and_its_users_are_named(
    prover: Prover, agent: Agent, tmp_path: Path, gpu: str, who: str
) -> None:
    """Neither is it used to compare with."""
    code, out, _ = run(tmp_path, gpu)
    assert (code, prover.asked) == (ExitCode.UNREACHABLE, [])
    assert who in out
    assert out.endswith(f"GPU {gpu} could not test (quick): prover\n")
    assert run(tmp_path, "2", "--stage", "proof")[0] == ExitCode.OK
    assert [(asked, len(peers)) for asked, _, peers in prover.asked] == [
        (agent.records.gpus[2].gpu.uuid, 1),
        (agent.records.gpus[3].gpu.uuid, 0),
    ]


def test_another_board_than_the_agent_knows_fails(agent: Agent, tmp_path: Path) -> None:
    known = agent.records.gpus[3]
    other = replace(known, gpu=replace(known.gpu, serial="another"))
    agent.records = replace(agent.records, gpus=(*agent.records.gpus[:3], other))
    code, out, _ = run(tmp_path, "3", "--stage", "instant")
    assert (code, out.endswith("GPU 3 failed (instant): identity\n")) == (ExitCode.UNWELL, True)


def test_a_gpu_that_the_driver_no_longer_lists_fails(agent: Agent, tmp_path: Path) -> None:
    known = agent.records.gpus[3]
    gone = replace(known.gpu, pci=replace(known.gpu.pci, address=PciAddress("0000:ff:00.0")))
    agent.records = replace(agent.records, gpus=(*agent.records.gpus[:3], replace(known, gpu=gone)))
    code, out, _ = run(tmp_path, "3")
    assert (code, "the driver no longer lists the GPU" in out) == (ExitCode.UNWELL, True)


def test_bars_are_drawn_for_what_several_gpus_have() -> None:
    speeds = {"GPU 0": {SpeedKind.MEMORY: 100.0, SpeedKind.PEER: 3.0}, "GPU 10": {SpeedKind.MEMORY: 50.0}}
    assert draw_spread(speeds) == [
        "",
        "memory",
        f"  GPU 0   {'█' * 40}  100 GB/s",
        f"  GPU 10  {'█' * 20}{' ' * 20}  50 GB/s",
    ]
    assert draw_spread({}) == []
