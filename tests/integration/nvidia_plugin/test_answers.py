"""What NVIDIA's device plugin and ours answer to a kubelet: every difference is in `EXPLAINED`, with its reason."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any, Final

import pytest

from nodeagent.components.deviceplugin.answer import plan_answer, select_devices
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.model.errors import NodeagentError
from nodeagent.model.ids import DeviceId, GpuUuid, MigUuid, ResourceName
from nodeagent.model.plugin import ContainerAnswer, HandoutFacts, MigCapability
from nodeagent.rules.cdi_names import ALL, EXTRA_KINDS, qualify
from nodeagent.rules.offer.devices import PluginDevice, Resource
from nodeagent.rules.placement.prefer import Preference
from nodeagent.rules.placement.topology import Topology
from tests.integration.nvidia_plugin import program
from tests.integration.runtimes.releases import BUILD_SECONDS

pytestmark = [
    pytest.mark.timeout(BUILD_SECONDS),
    pytest.mark.may_block("a compiler is waited for"),
]

STRATEGIES: Final = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
EXTRAS: Final = ("gdrcopy", "gds", "mofed")
NAME: Final = ResourceName("nvidia.com/gpu")
EXPLAINED: Final = {
    "twice": "a device asked for twice: theirs drops the second, ours refuses, because no kubelet asks so",
    "nothing": "no device asked for: theirs gives a container nothing to see, ours refuses, because no kubelet asks so",
    "order": "indices of several devices: theirs are in the order of a Go map, ours in the order of the numbers",
}


def make_device(name: str, index: str, minor: int, **fields: Any) -> PluginDevice:
    uuid = GpuUuid(name.partition("::")[0])
    return PluginDevice(id=DeviceId(name), uuid=uuid, gpu=uuid, index=index, minor=minor, **fields)


WHOLE: Final = (make_device("GPU-a", "0", 0), make_device("GPU-b", "1", 3), make_device("GPU-j", "10", 2))
SHARED: Final = tuple(
    make_device(f"GPU-{letter}::{number}", index, minor, replica=number)
    for letter, index, minor in (("a", "0", 0), ("b", "1", 3))
    for number in range(2)
)
PARTS: Final = tuple(
    PluginDevice(
        id=DeviceId(f"MIG-{number}"),
        uuid=MigUuid(f"MIG-{number}"),
        gpu=GpuUuid("GPU-b"),
        index=f"1:{number}",
        minor=3,
        gpu_instance_id=7 + number,
        compute_instance_id=0,
    )
    for number in range(2)
)
CAPABILITIES: Final = tuple(
    MigCapability(gpu_minor=3, gpu_instance_id=7 + number, compute_instance_id=instance, node=66 + 2 * number + step)
    for number in range(2)
    for step, instance in enumerate((None, 0))
)
REQUESTS: Final = (
    (WHOLE, ("GPU-a",)),
    (WHOLE, ("GPU-j", "GPU-a", "GPU-b")),
    (WHOLE, ("GPU-a", "GPU-a")),
    (WHOLE, ()),
    (SHARED, ("GPU-b::1",)),
    (SHARED, ("GPU-b::0", "GPU-a::1", "GPU-b::1")),
    (PARTS, ("MIG-1",)),
    (PARTS, ("MIG-1", "MIG-0")),
)


def list_paths(device: PluginDevice) -> list[str]:
    nodes = [
        f"/dev/nvidia-caps/nvidia-cap{each.node}"
        for each in CAPABILITIES
        if each.gpu_instance_id == device.gpu_instance_id
    ]
    return [f"/dev/nvidia{device.minor}", *nodes]


class Case:
    """One question in both languages."""

    def __init__(
        self,
        strategies: tuple[str, ...],
        by: str,
        request: tuple[tuple[PluginDevice, ...], tuple[str, ...]],
        *,
        full: bool,
    ) -> None:
        self.devices, self.ids = request
        prefix = "cdi.example.com/" if full else "cdi.k8s.io/"
        # An extra without a specification is asked for too, and has no CDI name.
        known = ("gdrcopy", "gds") if full else ()
        self.settings = DevicePluginSettings(
            device_list_strategy=strategies,  # type: ignore[arg-type]  # drawn from the literal's own words
            device_id_strategy=by,  # type: ignore[arg-type]
            cdi_annotation_prefix=prefix,
            pass_device_specs=full,
            gdrcopy=full,
            gds=full,
            mofed=full,
        )
        self.facts = HandoutFacts(
            dev_root="/run/nvidia/driver",
            capabilities=CAPABILITIES,
            imex_channels=(0, 7) if full else (),
            cdi_extras=known,
        )
        self.question = {
            "strategies": strategies,
            "id_strategy": by,
            "prefix": prefix,
            "dev_root": self.facts.dev_root,
            "pass_specs": full,
            **dict.fromkeys(EXTRAS, full),
            "extras": [qualify(EXTRA_KINDS[name], ALL) for name in known],
            "channels": [str(channel) for channel in self.facts.imex_channels],
            "devices": {each.id: {"index": each.index, "paths": list_paths(each)} for each in self.devices},
            "ids": self.ids,
        }

    @property
    def explanations(self) -> set[str]:
        found = {"nothing"} if not self.ids else set()
        found |= {"twice"} if len(set(self.ids)) < len(self.ids) else set()
        return found | ({"order"} if self.settings.device_id_strategy == "index" and len(self.ids) > 1 else set())

    def answer(self) -> ContainerAnswer | str:
        resource = Resource(name=NAME, devices=self.devices)
        known = {each.id: each for each in self.devices}
        try:
            chosen = select_devices(resource, known, tuple(map(DeviceId, self.ids)))
        except NodeagentError as error:
            return str(error)
        return plan_answer(chosen, self.settings, self.facts, "token")


def list_cases() -> Iterator[Case]:
    combined = chain.from_iterable(combinations(STRATEGIES, size) for size in range(1, 5))
    for strategies, by, request, full in product(combined, ("uuid", "index"), REQUESTS, (False, True)):
        yield Case(strategies, by, request, full=full)


def render_ours(answer: ContainerAnswer) -> dict[str, Any]:
    return {
        "envs": dict(answer.environment),
        "mounts": [(each.host_path, each.container_path, each.read_only) for each in answer.mounts],
        "devices": sorted((each.host_path, each.container_path, each.permissions) for each in answer.devices),
        "annotations": dict(answer.annotations),
        "cdi": list(answer.cdi_devices),
    }


def render_theirs(response: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "envs": response.get("envs") or {},
        "mounts": [
            (each["host_path"], each["container_path"], each.get("read_only", False))
            for each in response.get("mounts") or ()
        ],
        # Theirs come in the order of a Go map; the kubelet takes them as a set.
        "devices": sorted(
            {(each["host_path"], each["container_path"], each["permissions"]) for each in response.get("devices") or ()}
        ),
        "annotations": {
            f"{key.rpartition('_')[0]}_token": value for key, value in (response.get("annotations") or {}).items()
        },
        "cdi": [each["name"] for each in response.get("cdi_devices") or ()],
    }


def without_order(rendered: Mapping[str, Any]) -> dict[str, Any]:
    def sort(text: str) -> str:
        return ",".join(sorted(text.split(",")))

    return {
        **rendered,
        **{key: {name: sort(text) for name, text in rendered[key].items()} for key in ("envs", "annotations")},
        **{key: sorted(rendered[key]) for key in ("mounts", "cdi")},
    }


def compare(case: Case, theirs: Mapping[str, Any]) -> set[str]:
    """The explanations of what differs; `unexplained` where there is none."""
    ours = case.answer()
    if isinstance(ours, str):
        return set() if theirs["error"] else {"twice", "nothing"} & case.explanations or {"unexplained"}
    if theirs["error"]:
        return {"unexplained"}
    own, other = render_ours(ours), render_theirs(theirs["response"])
    if own == other:
        return set()
    return {"order"} if "order" in case.explanations and without_order(own) == without_order(other) else {"unexplained"}


def test_answers_to_allocate_are_those_of_the_original(tmp_path: Path) -> None:
    """Every combination of strategies, both kinds of names, whole, shared and MIG devices, extras and channels."""
    cases = list(list_cases())
    answers = program.ask("internal/plugin", "answers_test.go", [case.question for case in cases], tmp_path)
    found = [(case, theirs, compare(case, theirs)) for case, theirs in zip(cases, answers, strict=True)]
    unexplained = [
        (case.question, case.answer(), theirs) for case, theirs, reasons in found if not reasons <= EXPLAINED.keys()
    ]
    assert not unexplained, unexplained[0]
    # An explanation that explains nothing any more is to go.
    assert {reason for *_, reasons in found for reason in reasons} == set(EXPLAINED)


def draw_choices(count: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(19)
    devices = [f"GPU-{letter}::{number}" for letter in "abc" for number in range(4)]
    for _ in range(count):
        available = chance.sample(devices, chance.randint(1, len(devices)))
        size = chance.randint(1, len(available))
        yield {
            "devices": devices,
            "available": available,
            "required": chance.sample(available, chance.randint(0, size)),
            "size": size,
            "sharing": chance.choice(["time_slicing", "mps"]),
            "one_each": chance.random() < 0.5,
            "ids": chance.sample([*devices, "GPU-x"], chance.randint(1, 3)),
        }


def count_held(question: Mapping[str, Any], chosen: list[str]) -> list[int]:
    """How many replicas of each GPU are away after the choice; which GPU has how many is chance in the original."""
    free = Counter(name.partition("::")[0] for name in {*question["available"]} - {*chosen})
    return sorted(4 - free[f"GPU-{letter}"] for letter in "abc")


def test_replicas_are_spread_and_refused_as_in_the_original(tmp_path: Path) -> None:
    questions = list(draw_choices(400))
    outcomes = program.ask("internal/rm", "choices_test.go", questions, tmp_path)
    for question, theirs in zip(questions, outcomes, strict=True):
        devices = tuple(
            make_device(name, str("abc".index(name[4])), "abc".index(name[4]), replica=int(name[-1]))
            for name in question["devices"]
        )
        one_each = question["one_each"] or question["sharing"] == "mps"
        resource = Resource(name=NAME, devices=devices, one_share_each=one_each)
        ours = Preference(resource, Topology(gpus=(), scores=()), "distributed").prefer(
            question["available"], question["required"], question["size"]
        )
        assert set(question["required"]) <= set(ours)
        assert len(ours) == len(theirs["devices"]) == question["size"], question
        assert count_held(question, list(ours)) == count_held(question, theirs["devices"]), (question, ours, theirs)
        try:
            select_devices(resource, {each.id: each for each in devices}, tuple(map(DeviceId, question["ids"])))
            refusal = ""
        except NodeagentError as error:
            refusal = str(error)
        assert bool(refusal) is bool(theirs["refusal"]), (question, refusal, theirs)
