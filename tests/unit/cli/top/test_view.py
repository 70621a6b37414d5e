"""`nodeagent top` from the record that the agent serves."""

from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace

from nodeagent.cli.answers.table import Layout
from nodeagent.cli.top.view import ProcessFacts, build_top, list_pids, render_top
from nodeagent.components.web.api.records import FractionHolder, GpuRecord, GpusRecord, StateRecord
from nodeagent.model.allocation import Allocation, PodIdentity
from nodeagent.model.health import DeviceHealth, Verdict
from nodeagent.model.telemetry import GpuSample
from nodeagent.model.usage import FractionUse
from tests.support.nodes import make_brake, make_mode
from tests.support.samples import make_gpu, make_mig, make_uuid
from tests.unit.components.exporter.builders import (
    START,
    allocate,
    make_mig_shares,
    make_process,
    make_sample,
)

UUID = make_uuid(0)


def make_state(*records: GpuRecord) -> StateRecord:
    plain: dict[str, Any] = {
        "api": "v1",
        "version": "1",
        "node": "node-a",
        "gpu_source": "nvml",
        "pid": 1,
        "started_seconds": START,
        "time_seconds": START,
        "verdict": "ok",
        "sentence": "all is well",
        "ready": True,
        "gates": [],
        "components": [],
        "conditions": [],
    }
    state = convert(plain, StateRecord)
    return type(state)(
        **{name: getattr(state, name) for name in state.__struct_fields__ if name != "gpus"},
        gpus=GpusRecord(generation=1, gpus=records),
    )


def make_record(sample: GpuSample | None, *allocations: Allocation, mig: int = 0, age: float = 0.5) -> GpuRecord:
    health = DeviceHealth(device=UUID, gpu=UUID, verdict=Verdict.HEALTHY, since_seconds=START)
    return GpuRecord(
        gpu=make_gpu(mig=make_mig(0, mig) if mig else None),
        sample=sample,
        sample_age_seconds=age,
        sample_is_old=age > 2.0,
        health=(health,),
        allocations=allocations,
    )


def test_a_gpu_at_work_is_one_line_with_its_pods() -> None:
    """Use, memory, heat, power, verdict, and everyone who holds it."""
    state = make_state(make_record(make_sample(), allocate("bert-0", UUID), allocate(None, f"{UUID}::1")))
    lines = render_top(build_top(state, {}), Layout(200), colour=False).splitlines()
    assert lines[0] == "node-a: all is well"
    assert " ".join(lines[3].split()) == (
        "0 NVIDIA H100 80GB HBM3 90% 20 GiB / 80 GiB 61 °C 651 W healthy ml/bert-0, pod not known yet"
    )
    assert len(lines) == 4


def test_a_cordoned_gpu_says_who_keeps_new_pods_away() -> None:
    """Each MIG device of it too; the record for scripts has the same words."""
    brake = make_brake(until_seconds=1_000.0)
    words = "cordoned by the brake, until 1970-01-01T00:16:40Z"
    held = replace(make_record(make_sample(), allocate("bert-0", UUID)), door=make_mode(0, brake))
    cut = replace(make_record(make_sample(mig=make_mig_shares(0, 2)), mig=2), door=make_mode(0, brake))
    tops = [build_top(make_state(record), {}) for record in (held, cut)]
    assert [device.cordoned for top in tops for device in top.devices] == [words] * 3
    lines = render_top(tops[0], Layout(200), colour=False).splitlines()
    assert lines[3].endswith(f"ml/bert-0; {words}")
    (open_again,) = build_top(make_state(replace(held, door=make_mode())), {}).devices
    assert open_again.cordoned == ""


def test_an_instance_shows_its_own_use_and_holder() -> None:
    first, second = make_mig(0, 2).devices
    record = make_record(make_sample(mig=make_mig_shares(0, 1)), allocate("a", first.uuid), mig=2)
    devices = build_top(make_state(record), {}).devices
    assert [(one.gpu, one.name, one.use_percent, one.pods) for one in devices] == [
        ("0:0", "1g.10gb", 50.0, ("ml/a",)),
        ("0:1", "1g.10gb", None, ()),
    ]
    assert devices[1].uuid == second.uuid


def test_who_has_the_whole_has_each_part_of_it() -> None:
    """A GPU that was cut under its pod is nobody's in no line."""
    record = make_record(make_sample(mig=make_mig_shares(0, 2)), allocate("a", UUID), mig=2)
    assert [one.pods for one in build_top(make_state(record), {}).devices] == [("ml/a",), ("ml/a",)]


def test_processes_are_named_with_their_pod() -> None:
    """By the pod's UID where it is known, else by the only holder, else as what they are."""
    processes = tuple(make_process(pid, sm=10) for pid in (1, 2, 3))
    known = {
        1: ProcessFacts(command="python train.py", pod_uid="uid-a"),
        2: ProcessFacts(command="nvidia-persistenced"),
        3: ProcessFacts(command="cuda", pod_uid="uid-x"),
    }
    state = make_state(make_record(make_sample(processes=processes), allocate("a", UUID, uid="uid-a")))
    assert list_pids(state) == [1, 2, 3]
    (device,) = build_top(state, known).devices
    assert [one.pod for one in device.processes] == ["ml/a", "host", "pod uid-x"]
    (device,) = build_top(state, {}).devices
    assert [one.pod for one in device.processes] == ["ml/a"] * 3
    shared = make_state(
        make_record(make_sample(processes=processes[:1]), allocate("a", f"{UUID}::0"), allocate("b", f"{UUID}::1"))
    )
    (device,) = build_top(shared, {}).devices
    assert [one.pod for one in device.processes] == [""]


def test_a_lost_gpu_and_old_readings_are_said() -> None:
    """Nobody takes the last numbers of a dead GPU for its work."""
    record = make_record(GpuSample(uuid=UUID, lost="fell off"), age=90.0)
    text = render_top(build_top(make_state(record), {}), Layout(200), colour=False)
    assert "readings are 1 min 30 s old" in text
    assert "lost" in text


def test_text_from_outside_cannot_drive_the_terminal() -> None:
    """A command line or a pod's name is shown, not obeyed."""
    state = make_state(make_record(make_sample(processes=(make_process(1),)), allocate("a", UUID, uid="u")))
    text = render_top(build_top(state, {1: ProcessFacts(command="\x1b[2Jboo", pod_uid="u")}), Layout(200), colour=False)
    assert "\x1b" not in text
    assert "boo" in text


def test_a_node_without_gpus_or_samples_says_so() -> None:
    """An empty table would look like a failure; before the first sample a GPU has no readings."""
    text = render_top(build_top(make_state(), {}), Layout(100), colour=False)
    assert text.endswith("\n\nno GPU\n")
    bare = render_top(build_top(make_state(make_record(None)), {}), Layout(100), colour=False)
    assert "NVIDIA H100" in bare


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_narrow_terminal_still_shows_who_holds_what(width: int) -> None:
    """Columns go before the holder does; every line fits, and on a wide terminal nothing is left out."""
    state = make_state(make_record(make_sample(processes=(make_process(1),)), allocate("bert-0", UUID)))
    lines = render_top(build_top(state, {}), Layout(width), colour=False).splitlines()
    assert max(map(len, lines)) <= width
    assert "ml/bert-0" in lines[3]
    assert ("DEVICE" in lines[2]) == (width == 200 or "NVIDIA" in lines[3])


def test_pods_with_parts_are_named_with_what_they_use_and_have() -> None:
    """Their processes are theirs by the pod; who else has the GPU is named before them."""
    parts = tuple(
        FractionHolder(
            number=number,
            pod=PodIdentity(namespace="ml", name=name, uid=f"u-{name}"),
            container="main",
            since_seconds=START,
            use=FractionUse(gpu=UUID, index=0, cores=cores, memory_bytes=1 << 30, cores_used=used),
        )
        for number, name, cores, used in ((1, "a", 30, 12), (2, "b", 0, None), (3, "a", 20, 3))
    )
    sample = make_sample(processes=(make_process(7), make_process(8), make_process(9)))
    record = replace(make_record(sample, allocate("whole", UUID)), parts=parts)
    facts = {7: ProcessFacts(pod_uid="u-a"), 8: ProcessFacts(pod_uid="u-b"), 9: ProcessFacts()}
    top = build_top(make_state(record), facts)
    (device,) = top.devices
    assert device.pods == ("ml/whole", "ml/a", "ml/b")
    assert [one.pod for one in device.processes] == ["ml/a", "ml/b", "host"]
    text = render_top(top, Layout(width=200), colour=False)
    assert "ml/whole, ml/a 12 of 30, ml/b - of any, ml/a 3 of 20" in text
    lost = render_top(replace(top, devices=(replace(device, lost="gone"),)), Layout(width=200), colour=False)
    assert "ml/a 12 of 30" in lost


def test_whose_a_process_is_the_agent_says_where_this_host_does_not() -> None:
    """It divides the processes of a GPU among those who have parts; what it gives to nobody is nobody's here."""
    use = FractionUse(gpu=UUID, index=0, cores=30, memory_bytes=1 << 30, processes=(7,))
    pod = PodIdentity(namespace="ml", name="a", uid="u-a")
    parts = (FractionHolder(number=1, pod=pod, container="main", since_seconds=START, use=use),)
    record = replace(make_record(make_sample(processes=(make_process(7), make_process(8)))), parts=parts)
    (device,) = build_top(make_state(record), {}).devices
    assert [one.pod for one in device.processes] == ["ml/a", ""]
    (seen,) = build_top(make_state(record), {7: ProcessFacts()}).devices
    assert [one.pod for one in seen.processes] == ["host", ""]
