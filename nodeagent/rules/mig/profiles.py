"""MIG profiles by name, in every spelling of people, drivers, labels and layout files.

Owns the grammar: `[<compute>c.]<slices>g.<gigabytes>gb`, then additions (`+me`, `+gfx`) or omissions (`-me`).
Refuses tables: the profiles of a GPU, and their names, are known to the GPU's driver alone.
"""

import re
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from nodeagent.model.values import Value

_NAME: Final = re.compile(
    r"(?:(?P<compute>[1-9][0-9]{0,2})c\.)?(?P<slices>[1-9][0-9]{0,2})g\.(?P<gigabytes>[1-9][0-9]{0,4})gb"
    r"(?P<tail>(?:[+.-][a-z][a-z0-9]*(?:[.,][a-z][a-z0-9]*)*)*)"
)
_TAIL: Final = re.compile(r"([+.-])([^+-]+)")
FORM: Final = "a MIG profile such as 1g.10gb, 1g.10gb+me, 2g.48gb+gfx, 1g.24gb-me or 1c.3g.40gb"


class ProfileUnreadable(ValueError):
    """A text that is no name of a profile; the message shows the form."""


class Profile(Value, frozen=True):
    """A shape of MIG device: of GPU instance, and of compute instance."""

    compute_slices: int
    gpu_slices: int
    gigabytes: int
    more: tuple[str, ...] = ()
    """Additions to the plain profile: `me`, `me.all`, `gfx`."""
    less: tuple[str, ...] = ()
    """Omissions from the plain profile: `me`."""

    @property
    def name(self) -> str:
        """The name in the driver's spelling."""
        compute = "" if self.is_whole else f"{self.compute_slices}c."
        more = f"+{','.join(self.more)}" if self.more else ""
        less = f"-{','.join(self.less)}" if self.less else ""
        return f"{compute}{self.gpu_slices}g.{self.gigabytes}gb{more}{less}"

    @property
    def is_whole(self) -> bool:
        """Whether the compute instance fills the GPU instance."""
        return self.compute_slices == self.gpu_slices

    @property
    def instance(self) -> "Profile":
        """The shape of the GPU instance alone."""
        return self.with_compute(self.gpu_slices)

    def with_compute(self, slices: int) -> "Profile":
        """A compute instance of so many slices in a GPU instance of the same shape."""
        return replace(self, compute_slices=slices)


def parse_profile(text: str) -> Profile:
    """The profile named by a text, with the plus sign possibly written as a dot, as in labels and resources.

    Raises:
        ProfileUnreadable: the text names no profile.
    """
    found = _NAME.fullmatch(text.strip().lower())
    if found is None:
        raise ProfileUnreadable(f"{text!r} is no MIG profile: write {FORM}")
    gpu_slices = int(found["slices"])
    compute_slices = int(found["compute"] or gpu_slices)
    if compute_slices > gpu_slices:
        raise ProfileUnreadable(f"{text!r} has more compute than its GPU instance: at most {gpu_slices}c fit into it")
    signs = [(sign, words.split(",")) for sign, words in _TAIL.findall(found["tail"])]
    return Profile(
        compute_slices=compute_slices,
        gpu_slices=gpu_slices,
        gigabytes=int(found["gigabytes"]),
        more=_collect(words for sign, words in signs if sign != "-"),
        less=_collect(words for sign, words in signs if sign == "-"),
    )


def _collect(groups: Iterable[list[str]]) -> tuple[str, ...]:
    return tuple(sorted({word for words in groups for word in words}))


def same_profile(left: str, right: str) -> bool:
    """Whether two names mean one profile; names of an unknown form mean themselves."""
    try:
        return left == right or parse_profile(left) == parse_profile(right)
    except ProfileUnreadable:
        return False


def plain_profile(profile: str) -> str:
    """A profile without the plus sign, forbidden in resource names and labels: `1g.10gb.me`."""
    return profile.replace("+", ".")
