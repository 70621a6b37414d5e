"""Cordons: what the annotations say, which GPUs are meant, and when a cordon ends."""

import json

import pytest

from nodeagent.model.cordons import Cordon, CordonSource, CordonTable, check_reason, parse_until
from nodeagent.rules.cordons import (
    AskedCordon,
    drop_over,
    explain_opening,
    find_next_end,
    parse_annotation,
    parse_hami,
    plan_command,
    plan_cordons,
    plan_uncordon,
)
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, mig_uuid

NOW = 1_000.0
LATER = NOW + 60
NODE = make_inventory([make_gpu(0), make_gpu(1, mig=["1g.10gb"])])
BY_US, BY_COMMAND = CordonSource.ANNOTATION, CordonSource.COMMAND


def make(index: int, source: CordonSource = BY_US, until: float | None = None, named: str = "") -> Cordon:
    return Cordon(gpu=gpu_uuid(index), source=source, named=named or str(index), reason="fan", until_seconds=until)


def ask(gpu: str, until: float | None = None) -> AskedCordon:
    return AskedCordon(gpu=gpu, reason="fan", until_seconds=until)


def test_the_annotation_is_a_list_of_gpus_with_reasons() -> None:
    """A GPU by index, as a number or a text, or by UUID; the end may be left out."""
    text = json.dumps(
        [
            {"gpu": 3, "reason": " fan "},
            {"gpu": "GPU-1", "reason": "fan", "until": "1970-01-01T01:16:40+01:00"},
        ]
    )
    assert parse_annotation(text) == (ask("3"), ask("GPU-1", 1000.0))
    assert parse_annotation("") == parse_annotation(" [] ") == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("3", "write a JSON list such as"),
        ("[", "truncated"),
        ('[{"gpu": 3}]', "missing required field `reason`"),
        ('[{"gpu": 3, "reason": "fan", "unitl": "x"}]', "unknown field `unitl`"),
        ('[{"gpu": 3.5, "reason": "fan"}]', r"\$\[0\].gpu"),
        ('[{"gpu": 3, "reason": "  "}]', r"entry \[0\]: the reason is missing"),
        ('[{"gpu": 3, "reason": "a\\u0007"}]', "one line"),
        ('[{"gpu": 3, "reason": "fan", "until": "tomorrow"}]', r"entry \[0\]: 'tomorrow' is no time of RFC 3339"),
        ('[{"gpu": 3, "reason": "fan", "until": "2031-05-01T08:00:00"}]', "no time of RFC 3339"),
        (json.dumps([{"gpu": 1, "reason": "fan"}] * 257), "257 entries"),
    ],
)
def test_a_misspelt_annotation_is_refused_with_the_place(text: str, told: str) -> None:
    """A cordon that is read otherwise than it was meant would give out a GPU that is to be taken out."""
    with pytest.raises(ValueError, match=told):
        parse_annotation(text)


def test_hamis_annotation_names_uuids() -> None:
    """With space and empty entries, as HAMi reads it; it names devices of other vendors too."""
    assert parse_hami(" GPU-1, GPU-2,,GPU-1,xpu-0") == (AskedCordon(gpu="GPU-1"), AskedCordon(gpu="GPU-2"))
    assert parse_hami("") == ()


def test_reasons_and_times_are_checked() -> None:
    assert check_reason(" fan ") == "fan"
    assert parse_until("1970-01-01T00:00:01Z") == 1.0
    with pytest.raises(ValueError, match="at most 256"):
        check_reason("x" * 257)


def test_gpus_are_found_by_each_of_their_names() -> None:
    names = ("0", gpu_uuid(0), NODE.gpus[0].pci.address)
    for name in names:
        (cordon,) = plan_cordons(BY_US, [ask(name)], NODE, (), NOW).cordons
        assert cordon == make(0, named=name)


def test_what_means_no_gpu_is_told_and_the_rest_is_cordoned() -> None:
    """Of a MIG device the whole GPU is named: a cordon is of no part."""
    plan = plan_cordons(BY_US, [ask("7"), ask(mig_uuid(1, 0)), ask("1")], NODE, (), NOW)
    assert plan.cordons == (make(1),)
    unknown, mig = plan.problems
    assert "no GPU '7' on this node" in unknown
    assert f"is a MIG device, and a cordon is of a whole GPU: name {gpu_uuid(1)}" in mig


def test_a_gpu_that_does_not_answer_keeps_its_cordon() -> None:
    """By the name under which it was cordoned; the end may change meanwhile."""
    kept = (make(7), make(8, named=gpu_uuid(8)))
    plan = plan_cordons(BY_US, [ask("7", LATER), ask(gpu_uuid(8))], NODE, kept, NOW)
    assert plan.cordons == (make(7, until=LATER), make(8, named=gpu_uuid(8)))
    assert plan.problems == ()


def test_an_end_that_is_past_cordons_nothing_and_is_told() -> None:
    plan = plan_cordons(BY_US, [ask("0", NOW), ask("1", LATER)], NODE, (make(0),), NOW)
    assert plan.cordons == (make(1, until=LATER),)
    assert plan.over == ("GPU 0: 1970-01-01T00:16:40Z is past, and cordons nothing",)


def test_a_command_replaces_the_earlier_one_of_its_gpu_alone() -> None:
    kept = (make(0, BY_COMMAND), make(1, BY_COMMAND))
    plan = plan_command(ask(gpu_uuid(0), LATER), NODE, kept, NOW)
    assert plan.cordons == (make(1, BY_COMMAND), make(0, BY_COMMAND, LATER, gpu_uuid(0)))


def test_a_cordon_is_taken_back_by_each_name_of_its_gpu() -> None:
    """By the UUID also where the GPU does not answer."""
    kept = (make(0, BY_COMMAND), make(7, BY_COMMAND))
    assert plan_uncordon(gpu_uuid(0), NODE, kept) == (gpu_uuid(0), kept[1:])
    assert plan_uncordon(gpu_uuid(7), NODE, kept) == (gpu_uuid(7), kept[:1])
    assert plan_uncordon("1", NODE, kept) == (gpu_uuid(1), kept)
    assert plan_uncordon("9", NODE, kept) == (None, kept)


def test_cordons_end_at_their_time() -> None:
    """One that ends is removed, those of other sources and times stay."""
    ends, stays, open_end = make(0, until=NOW), make(1, until=LATER), make(0, BY_COMMAND)
    table = CordonTable(by_source={BY_US: (ends, stays), BY_COMMAND: (open_end,)})
    assert table.list_in_force(NOW) == (open_end, stays)
    assert drop_over(table, NOW) == {BY_US: (stays,)}
    assert find_next_end(table, NOW) == LATER
    assert find_next_end(CordonTable(by_source={BY_COMMAND: (open_end,)}), NOW) is None


def test_a_cordon_says_by_whom_why_and_until_when() -> None:
    by_person = Cordon(gpu=gpu_uuid(0), source=BY_COMMAND, named="0", reason="fan", until_seconds=0.0, who="ann")
    assert by_person.describe() == "by ann: fan, until 1970-01-01T00:00:00Z"
    assert make(0).describe() == "by the annotation nodeagent.io/gpu-cordon: fan"
    by_hami = Cordon(gpu=gpu_uuid(0), source=CordonSource.HAMI, named="0")
    assert by_hami.describe() == "by the annotation hami.io/device-cordon"
    assert make(0, BY_COMMAND).describe() == "by a person: fan"


def test_a_cordon_of_the_brake_outlives_its_time() -> None:
    """Its end is the beginning of a trial, and a trial alone lifts it."""
    over = {source: (Cordon(gpu=gpu_uuid(0), source=source, named="0", until_seconds=5.0),) for source in CordonSource}
    assert CordonSource.BRAKE not in drop_over(CordonTable(by_source=over), 6.0)
    assert drop_over(CordonTable(by_source=over), 6.0)[CordonSource.COMMAND] == ()


@pytest.mark.parametrize(
    ("source", "until", "opens"),
    [
        (BY_COMMAND, LATER, "`nodeagent gpu uncordon 1`"),
        (BY_US, None, "take GPU-1 out of the node's annotation nodeagent.io/gpu-cordon"),
        (CordonSource.REPAIR, None, "the end of the repair: `nodeagent repairs explain 1`"),
        (CordonSource.DRIVER, None, "the end of the driver's upgrade: `nodeagent driver status`"),
        (CordonSource.HAMI, None, "take GPU-1 out of the node's annotation hami.io/device-cordon"),
        (
            CordonSource.BRAKE,
            LATER,
            "a single pod that lasts after 1970-01-01T00:17:40Z; `nodeagent gpu uncordon 1` opens GPU 1 at once",
        ),
        (CordonSource.BRAKE, None, "a single pod that lasts; `nodeagent gpu uncordon 1` opens GPU 1 at once"),
    ],
)
def test_each_source_has_its_own_way_to_open_a_gpu(source: CordonSource, until: float | None, opens: str) -> None:
    assert explain_opening(make(1, source, until, named="GPU-1"), 1) == opens
