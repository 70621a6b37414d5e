"""The proofs of GPUs as kept over restarts.

Refuses files: bytes in, bytes out.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import json

from nodeagent.model.ids import GpuUuid
from nodeagent.model.proof import ProofRecord

PROOFS_VERSION: Final = 1
STORE: Final = ("proofs.json", "nodeagent-proofs", PROOFS_VERSION)
"""Name of the file, its seal, and the version of its content."""


def encode_proofs(records: Mapping[GpuUuid, ProofRecord]) -> bytes:
    """The same proofs always give the same bytes."""
    return json.encode(dict(records), order="sorted")


def decode_proofs(content: bytes) -> Mapping[GpuUuid, ProofRecord]:
    """The proofs in these bytes.

    Raises:
        DecodeError: The bytes are no proofs of this version.
    """
    return json.decode(content, type=dict[GpuUuid, ProofRecord])
