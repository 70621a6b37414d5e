"""The request of a container, judged: cores and memory blocks by count, or shares with a size given by the pod.

Owns the possible combinations, and the messages for impossible ones: key, value, remedy.

Refuses nothing for a mere lack of room: waiting helps, and the request is sound.
"""

import re
from collections.abc import Mapping
from typing import Final

from nodeagent.model.errors import RequestInvalid
from nodeagent.model.journal import Enforcement
from nodeagent.model.wording import render_bytes
from nodeagent.rules.fractions.profiles import MIB, CoresProfile, CountedProfile
from nodeagent.rules.placement.place import Demand
from nodeagent.rules.placement.space import CORES

_QUANTITY: Final = re.compile(r"\+?([0-9]{1,18})(k|M|G|T|Ki|Mi|Gi|Ti|[eE][0-9])?")
_UNITS: Final = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_ENFORCEMENTS: Final = tuple(str(each) for each in Enforcement if each is not Enforcement.COUNTED)


def check_cores(profile: CoresProfile, cores: int) -> None:
    """Check a number of cores by itself, without the rest of the request.

    Raises:
        RequestInvalid: the cores are neither a fraction of one GPU nor whole GPUs.
    """
    if cores < 1:
        raise RequestInvalid(profile.core, f"{cores} is no part of a GPU; give 1 to 99, or a multiple of {CORES}")
    if cores > CORES and cores % CORES:
        reason = f"{cores} is more than one GPU and not a number of whole GPUs; give 1 to 99, or a multiple of {CORES}"
        raise RequestInvalid(profile.core, reason)


def read_counts(profile: CoresProfile, cores: int, blocks: int, largest_bytes: int) -> Demand:
    """The demand of a container with so many cores and blocks of memory.

    Beside whole GPUs the blocks change nothing, for whole GPUs come with all their memory.

    Raises:
        RequestInvalid: no GPU could ever serve the demand.
    """
    if cores < 1 <= blocks:
        reason = f"{blocks} without {profile.core}; ask for 1 to 99 of that too, or for {CORES} to have a whole GPU"
        raise RequestInvalid(profile.memory, reason)
    check_cores(profile, cores)
    if cores >= CORES:
        return Demand(gpus=cores // CORES)
    if blocks < 1:
        unit = render_bytes(profile.block_bytes)
        reason = f"{cores} without {profile.memory}; ask for blocks of {unit} too, or for {CORES} to have a whole GPU"
        raise RequestInvalid(profile.core, reason)
    memory_bytes = blocks * profile.block_bytes
    if memory_bytes > largest_bytes:
        fitting = largest_bytes // profile.block_bytes
        reason = (
            f"{blocks} blocks are {render_bytes(memory_bytes)}, the largest GPU here has {render_bytes(largest_bytes)};"
            f" give at most {fitting}, or ask for {CORES} of {profile.core}"
        )
        raise RequestInvalid(profile.memory, reason)
    return Demand(cores=cores, memory_bytes=memory_bytes)


def read_counted(profile: CountedProfile, shares: int, limits: Mapping[str, str], largest_bytes: int) -> Demand:
    """The demand of a container with so many shares.

    A share without a size is a whole GPU; a share with cores alone has all the memory, a share with memory alone has
    no limit of compute.

    Raises:
        RequestInvalid: no GPU could ever serve the demand.
    """
    if shares < 1:
        raise RequestInvalid(profile.share, f"{shares} is no number of shares; give 1 or more")
    cores = min(read_quantity(profile.cores, limits) or 0, CORES)
    mebibytes = read_quantity(profile.memory_mib, limits)
    percent = read_quantity(profile.memory_percent, limits) or 100
    if percent > 100:
        raise RequestInvalid(profile.memory_percent, f"{percent} is more than all of a GPU's memory; give 1 to 100")
    memory_bytes = (mebibytes or 0) * MIB
    if memory_bytes > largest_bytes:
        reason = f"{mebibytes} MiB are asked for, the largest GPU here has {largest_bytes // MIB}; give at most that"
        raise RequestInvalid(profile.memory_mib, reason)
    if cores == CORES or (not cores and not memory_bytes and percent == 100):
        return Demand(gpus=shares)
    if memory_bytes:
        return Demand(gpus=shares, cores=cores, memory_bytes=memory_bytes)
    return Demand(gpus=shares, cores=cores, memory_percent=percent)


def read_quantity(key: str, limits: Mapping[str, str]) -> int | None:
    """A limit as the API server writes it (`8k` for 8000); `None` where there is none.

    Raises:
        RequestInvalid: the text is no whole number.
    """
    text = limits.get(key)
    if text is None:
        return None
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise RequestInvalid(key, f"{text[:40]!r} is no whole number that is not negative; give one")
    digits, unit = found.groups()
    if unit is None:
        return int(digits)
    return int(digits) * (_UNITS[unit] if unit in _UNITS else 10 ** int(unit[1:]))


def read_core_limit(profile: CoresProfile, annotations: Mapping[str, str], demand: Demand) -> int | None:
    """The most compute allowed by the pod itself, in percent; `None` without the annotation or for whole GPUs.

    Raises:
        RequestInvalid: the annotation is no such number, or less than the promised cores.
    """
    text = annotations.get(profile.core_limit)
    if text is None or demand.is_exclusive:
        return None
    found = re.fullmatch(r"[0-9]{1,9}", text, re.ASCII)
    if found is None or int(text) < demand.cores:
        reason = f"annotation with value {text[:40]!r}; give a number from {demand.cores}, which the container asks for"
        raise RequestInvalid(profile.core_limit, f"{reason} of {profile.core}, to {CORES}, or take it away")
    return min(int(text), CORES)


def read_enforcement_choice(key: str, annotations: Mapping[str, str]) -> Enforcement | None:
    """The pod's own choice; `None` where the pod leaves the choice to the node.

    Raises:
        RequestInvalid: there is no such enforcement.
    """
    chosen = annotations.get(key)
    if chosen is not None and chosen not in _ENFORCEMENTS:
        raise RequestInvalid(key, f"annotation with value {chosen[:40]!r}; give one of {', '.join(_ENFORCEMENTS)}")
    return None if chosen is None else Enforcement(chosen)


def explain_several(gpus: int) -> str:
    """Why MPS cannot hold a container to fractions of so many GPUs."""
    remedy = "ask for one, or give library or advise in this annotation"
    return f"parts of {gpus} GPUs are asked for, and MPS holds a process to its part of one: {remedy}"
