"""Whether a choice on a pod is the extender's own: a keyed digest over the whole choice and its pod.

Any user who may create a pod may write annotations on it, and a choice holds GPUs before its pod is bound. Owns the
input of the digest: the pod's uid, the sizes of its containers, and each annotation of the choice, so the node, the
GPUs and the moment. The first key makes digests, every key proves them, so that keys are changed one at a time.
"""

import hmac
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final

from msgspec import json

from nodeagent.extender.errors import KeysInvalid
from nodeagent.extender.gpu_pod import CHOICE_DIGEST, GpuPod, read_choice
from nodeagent.rules.fractions.demands import ContainerDemand
from nodeagent.rules.fractions.profiles import Profile

KEY_BYTES_MIN: Final = 32
KEYS_MAX: Final = 8
_FORMAT: Final = "nodeagent-choice-1"


class ChoiceDigests:
    """The keys of this moment; without a key, a choice of any author is believed."""

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self.keys = tuple(keys)

    def sign(self, pod: GpuPod, profile: Profile, written: Mapping[str, str]) -> dict[str, str]:
        """The annotations of a choice for this pod, with their digest where there is a key."""
        if not self.keys:
            return dict(written)
        content = _render(pod, read_choice(profile, written))
        return {**written, CHOICE_DIGEST: _digest(self.keys[0], content)}

    def proves(self, pod: GpuPod) -> bool:
        """Whether a holder of a key made the choice on this pod for this pod."""
        if not self.keys:
            return True
        said = pod.choice.get(CHOICE_DIGEST, "").encode(errors="replace")
        content = _render(pod, {key: text for key, text in pod.choice.items() if key != CHOICE_DIGEST})
        return any(hmac.compare_digest(_digest(key, content).encode(), said) for key in self.keys)


def parse_keys(content: bytes) -> tuple[bytes, ...]:
    """The keys of a file, one a line.

    Raises:
        KeysInvalid: No key, too many keys, or a key short enough to guess.
    """
    lines = [line.strip() for line in content.splitlines()]
    keys = tuple(line for line in lines if line and not line.startswith(b"#"))
    if not keys:
        raise KeysInvalid("it has no key")
    if len(keys) > KEYS_MAX:
        raise KeysInvalid(f"it has {len(keys)} keys, and at most {KEYS_MAX} are used")
    for number, key in enumerate(keys, 1):
        if len(key) < KEY_BYTES_MIN:
            raise KeysInvalid(f"key {number} is {len(key)} characters long, and at least {KEY_BYTES_MIN} are needed")
    return keys


def _digest(key: bytes, content: bytes) -> str:
    return hmac.digest(key, content, sha256).hex()


def _render(pod: GpuPod, choice: Mapping[str, str]) -> bytes:
    """The digest's input: unambiguous, and the same in every replica."""
    sizes = [] if pod.demand is None else list(_list_sizes(pod.demand.containers))
    return json.encode([_FORMAT, pod.uid, sizes, sorted(choice.items())])


def _list_sizes(containers: Iterable[ContainerDemand]) -> Iterable[tuple[object, ...]]:
    for each in containers:
        demand = each.demand
        yield each.number, demand.gpus, demand.cores, demand.memory_bytes, demand.memory_percent
