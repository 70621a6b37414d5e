"""Whether a container was told other limits than it has by the journal; pure."""

from collections.abc import Sequence

from nodeagent.model.parts import PartLimit


def is_outdated(told: Sequence[PartLimit], due: Sequence[PartLimit]) -> bool:
    """Whether its file is to be written again.

    Settings hold from the start of a container on: that one says otherwise now makes no file outdated. Nor is one that
    is not there, or is for other GPUs: the next start writes it.
    """
    if [each.gpu for each in told] != [each.gpu for each in due]:
        return False
    return any(
        one.memory_bytes != other.memory_bytes or (None not in (one.cores, other.cores) and one.cores != other.cores)
        for one, other in zip(told, due, strict=True)
    )
