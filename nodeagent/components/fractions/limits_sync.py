"""Whether a container's limits file differs from the journal; pure."""

from collections.abc import Sequence

from nodeagent.model.parts import PartLimit


def is_outdated(told: Sequence[PartLimit], due: Sequence[PartLimit]) -> bool:
    """Whether the file is to be written again.

    Settings hold from the start of a container on, so changed settings make no file outdated. Nor is a file outdated
    that is missing or names other GPUs: the next start writes the file.
    """
    if [each.gpu for each in told] != [each.gpu for each in due]:
        return False
    return any(
        one.memory_bytes != other.memory_bytes or (None not in (one.cores, other.cores) and one.cores != other.cores)
        for one, other in zip(told, due, strict=True)
    )
