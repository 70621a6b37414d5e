"""`claims.slices`: the devices for claims as published to schedulers."""

from typing import Literal, TypeAlias

from nodeagent.config.compound import ListOf, Nested
from nodeagent.config.kinds import OneOf, Text
from nodeagent.config.knobs import Section, knob, required

EffectWord: TypeAlias = Literal["None", "NoSchedule", "NoExecute"]

FINDING = Text("a finding such as xid-79, a pattern such as xid-*, or a verdict", r"[a-z0-9*?\[\]!-]+", 63)


class TaintRule(Section):
    """The effect of a health finding on pods with the device, and on later pods."""

    finding: str = required(
        FINDING,
        "the finding: by name or pattern (`xid-79`, `xid-*`, `remap-failed`), or by its verdict (`unhealthy`,"
        " `suspect`, `unknown`)",
    )
    effect: EffectWord = required(
        OneOf[EffectWord](("None", "NoSchedule", "NoExecute")),
        "None only tells, NoSchedule gives the device to nobody new, NoExecute also ends the pods that have it",
    )


class SlicesSettings(Section):
    """The devices for claims as published to schedulers."""

    taints: tuple[TaintRule, ...] = knob(
        ListOf(Nested(TaintRule)),
        (),
        "what findings of health do, rule by rule; the first that fits a finding counts, and where none fits, what is"
        " suspect is only told and all else gives the device to nobody new",
        "who runs on a device that fails may still come to its end, and nobody new should begin there",
        reload=True,
    )
