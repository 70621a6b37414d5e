"""`nodeagent gpu prove|validate`."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from nodeagent.cli.agent.settings import load_for_looking
from nodeagent.cli.answers.answer import Answerer, NoAgent
from nodeagent.cli.answers.asking import API
from nodeagent.cli.answers.client import find_agent
from nodeagent.cli.answers.output import wants_record, write_table
from nodeagent.cli.answers.selection import find_gpu, name_fraction_pods, name_pod
from nodeagent.cli.answers.table import read_environment, wants_colour
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.gpu.proof_session import ListUsers, ProofOrder, ProofResult, prove_gpus
from nodeagent.cli.gpu.proof_view import describe_proofs, tabulate_proofs
from nodeagent.cli.gpu.source import read_gpus
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.components.web.api.claims import ClaimsRecord
from nodeagent.components.web.api.records import GpuRecord, GpusRecord
from nodeagent.config.schema import Settings
from nodeagent.edge.host.driver.workload_check import check_workload
from nodeagent.edge.host.processes.device_holders import read_device_holders
from nodeagent.model.errors import DriverError
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.proof import ProofStage, ProofVerdict
from nodeagent.model.telemetry import GpuSample
from nodeagent.model.yaml_text import YamlUnreadable, parse_yaml
from nodeagent.rules.proof.floors import FLOORS, FloorsUnreadable, FloorTable, parse_floors
from nodeagent.rules.proof.stages import plan_stage

ALL = "all"


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Prove one GPU, or each; the exit code is that of the worst verdict."""
    environ = read_environment(arguments)
    settings = load_for_looking(arguments, environ)
    floors = _read_floors(arguments.floors)
    answerer, records = read_gpus(arguments, settings, environ)
    if answerer.simulated or settings.gpus.simulated_profile is not None:
        raise CommandFailed("simulated GPUs compute nothing, so there is nothing to prove", ExitCode.BAD_INPUT)
    wanted = records.gpus if arguments.gpu == ALL else (find_gpu(records, arguments.gpu),)
    stage = ProofStage(arguments.stage)
    order = ProofOrder(
        wanted=tuple(record.gpu for record in wanted),
        stage=stage,
        plan=plan_stage(stage),
        floors=(floors, FLOORS),
        known_by_agent=not isinstance(answerer, NoAgent),
    )
    if not wants_record(arguments):
        names = ", ".join(str(gpu.index) for gpu in order.wanted) or "no GPU"
        print(f"nodeagent: proving {names} ({stage})", file=streams.err)
    try:
        result = prove_gpus(settings, order, _find_users(records, settings, answerer, environ))
    except DriverError as error:
        raise CommandFailed(f"the driver cannot be asked: {error}", ExitCode.NO_DRIVER) from error
    after = describe_proofs(result, colour=wants_colour(streams.out, environ))
    write_table(arguments, streams, result, tabulate_proofs(result), after, answerer)
    return _choose_code(result)


def _choose_code(result: ProofResult) -> ExitCode:
    verdicts = {proof.verdict for proof in result.proofs}
    if ProofVerdict.FAILED in verdicts:
        return ExitCode.UNWELL
    return ExitCode.OK if verdicts == {ProofVerdict.PASSED} else ExitCode.UNREACHABLE


def _read_floors(file: str | None) -> FloorTable:
    if file is None:
        return {}
    try:
        return parse_floors(parse_yaml(Path(file).read_bytes()))
    except OSError as error:
        raise CommandFailed(f"cannot read the floors in {file}: {error.strerror}", ExitCode.BAD_INPUT) from error
    except (YamlUnreadable, FloorsUnreadable) as error:
        raise CommandFailed(f"the floors in {file} cannot be used: {error}", ExitCode.BAD_INPUT) from error


def _find_users(records: GpusRecord, settings: Settings, answerer: Answerer, environ: Mapping[str, str]) -> ListUsers:
    """Users by the agent's journal, read once, and by the driver's list of processes, fresh each time."""
    held = {record.gpu.uuid: _list_holders(record) for record in records.gpus}
    if not isinstance(answerer, NoAgent):
        claims = find_agent(settings, environ).read(f"{API}/claims", ClaimsRecord)
        for one in claims.prepared:
            for device in one.claim.devices:
                gpu = GpuUuid(device.gpu or device.uuid)
                if not device.is_admin:
                    held[gpu] = (*held.get(gpu, ()), f"claim {one.claim.describe()}")

    def list_users(gpu: Gpu, sample: GpuSample | None) -> tuple[str, ...]:
        running = {process.pid for process in sample.processes} if sample is not None else set()
        commands = {one.pid: one.command for one in read_device_holders(settings.node.proc_dir)} if running else {}
        processes = (f"process {pid} ({commands.get(pid, 'of another namespace')})" for pid in sorted(running))
        return tuple(dict.fromkeys((*held.get(gpu.uuid, ()), *processes)))

    return list_users


def _list_holders(record: GpuRecord) -> tuple[str, ...]:
    pods = (f"pod {name_pod(one)}" if one.pod is not None else "a pod not known yet" for one in record.allocations)
    change = (f"a change of its partitions ({record.change.describe()})",) if record.change is not None else ()
    return (*pods, *(f"pod {name}" for name in name_fraction_pods(record)), *change)


def validate(_: argparse.Namespace, streams: Streams) -> int:
    """Whether this container can use its GPU; the kubelet takes the last lines as the message of a failed pod."""
    problems = check_workload()
    for problem in problems:
        print(f"nodeagent: {problem}", file=streams.err)
    if problems:
        return ExitCode.UNWELL
    print("the GPU of this container can be used", file=streams.out)
    return ExitCode.OK
