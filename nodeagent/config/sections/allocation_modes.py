"""`doors`: whether a GPU is given whole, in fractions, by claims, or not at all."""

from typing import Final, Literal, TypeAlias, get_args

from nodeagent.config.compound import ListOf, Nested
from nodeagent.config.kinds import OneOf, Text
from nodeagent.config.knobs import Section, knob, required
from nodeagent.model.offering import ModeWord

ModeChange: TypeAlias = Literal["drain", "wait"]

ALL: Final = "all"
MODE_SELECTOR = Text("all, an index, a UUID, a PCI address or a model pattern such as NVIDIA A100*", r".+", 256)


class AllocationModeRule(Section):
    """The door, or allocation mode, of some GPUs."""

    gpus: tuple[str, ...] = required(
        ListOf(MODE_SELECTOR, shortest=1), "the GPUs: all, or by index, UUID, PCI address or model pattern"
    )
    door: ModeWord = required(
        OneOf[ModeWord](get_args(ModeWord)),
        "whole by the device plugin (with sharing and MIG), in fractions, by claims, or not at all",
    )


class AllocationModeSettings(Section):
    """The door, or allocation mode, of each GPU: whole, in fractions, by claims, or not at all."""

    rules: tuple[AllocationModeRule, ...] = knob(
        ListOf(Nested(AllocationModeRule)),
        (),
        "doors by GPU, rule by rule; the first rule that fits a GPU counts, a GPU without a rule is given whole",
        "every GPU is given whole",
        reload=True,
    )
    change: ModeChange = knob(
        OneOf[ModeChange](("drain", "wait")),
        "drain",
        "while pods still hold a GPU that shall go through another door: drain gives the GPU to"
        " no new pod, wait goes on giving out the GPU through the old door",
        "a GPU that gets new pods again and again would never change its door",
        reload=True,
    )
