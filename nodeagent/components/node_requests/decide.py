"""The configuration named by the label `nvidia.com/mig.config`, and whether the GPUs are cut accordingly; pure.

Owns the reading of the configurations that every MIG manager knows by name: `all-disabled`, `all-enabled`,
`all-balanced` and `all-<profile>`. Refuses to guess at others: their meaning lies in a file of the manager's, whose
label `nvidia.com/mig.config.state` is then the only news. Serves agents without `mig.manage`: with it, the MIG
component carries the request out and reports.
"""

from collections import Counter
from collections.abc import Sequence
from enum import Enum, StrEnum, auto

from nodeagent.model.cluster import MIG_STATE_LABEL, MIG_UNDER_WAY, NodeRequests
from nodeagent.model.gpu import Gpu, Mig
from nodeagent.model.values import Value
from nodeagent.rules.mig.profiles import plain_profile

NOT_APPLIED = "mig-config-not-applied"
_BALANCED = ({1: 2, 2: 1, 3: 1}, {1: 2, 2: 1})
"""By slice count, the number of instances: on GPUs of seven slices, and on GPUs of four."""


class RequestStanding(StrEnum):
    """How the request and the GPUs compare."""

    NONE = "none"
    MET = "met"
    CHANGING = "changing"
    FAILED = "failed"
    UNMET = "unmet"
    UNKNOWN = "unknown"


_SAID = (RequestStanding.CHANGING, RequestStanding.FAILED)
"""Published by another manager, until the manager reports otherwise."""


class MigRequest(Value, frozen=True):
    """The requested configuration, and how the GPUs compare."""

    standing: RequestStanding = RequestStanding.NONE
    config: str = ""
    detail: str = ""

    @property
    def is_refused(self) -> bool:
        """Whether people must be told of a configuration not applied."""
        return _CONDITIONS.get(self.standing) == NOT_APPLIED

    def conditions(self) -> dict[str, dict[str, str]]:
        """The conditions to set, by code and key; a code without keys is cleared."""
        told = _CONDITIONS.get(self.standing)
        return {code: {"": self.detail} if code == told else {} for code in sorted({*_CONDITIONS.values()})}


_CONDITIONS = {
    RequestStanding.UNMET: NOT_APPLIED,
    RequestStanding.UNKNOWN: NOT_APPLIED,
    RequestStanding.FAILED: NOT_APPLIED,
    RequestStanding.CHANGING: "mig-config-changing",
}


NO_REQUEST = MigRequest()


def judge_mig_request(
    requests: NodeRequests, gpus: Sequence[Gpu] | None, before: MigRequest = NO_REQUEST
) -> MigRequest:
    """The standing of the request in the node's labels; an empty label requests nothing.

    Without `gpus`, as while the driver is away, the standing from `before` holds.
    """
    config, state = requests.mig_config, requests.mig_state
    if not config:
        return NO_REQUEST
    if state in MIG_UNDER_WAY:
        detail = f"another manager is carrying out {config} ({MIG_STATE_LABEL}={state})"
        return MigRequest(standing=RequestStanding.CHANGING, config=config, detail=detail)
    if state == "failed":
        detail = f"another manager could not carry out {config} ({MIG_STATE_LABEL}=failed); its log says why"
        return MigRequest(standing=RequestStanding.FAILED, config=config, detail=detail)
    if gpus is not None:
        return _compare(config, state, gpus)
    return before if before.config == config and before.standing not in _SAID else NO_REQUEST


def _compare(config: str, state: str, gpus: Sequence[Gpu]) -> MigRequest:
    differing = find_differing(config, gpus)
    if differing is None:
        known = state == "success"
        detail = "" if known else f"{config} is a name of a MIG manager's own, and none has said that it is carried out"
        return MigRequest(
            standing=RequestStanding.MET if known else RequestStanding.UNKNOWN, config=config, detail=detail
        )
    if not differing:
        return MigRequest(standing=RequestStanding.MET, config=config)
    indexes = ", ".join(str(gpu.index) for gpu in differing)
    claimed = " although another manager says that it is" if state == "success" else ""
    detail = f"GPU {indexes} is not cut as {config} asks{claimed}: mig.manage is off, so a MIG manager has to do it"
    return MigRequest(standing=RequestStanding.UNMET, config=config, detail=detail)


def find_differing(config: str, gpus: Sequence[Gpu]) -> tuple[Gpu, ...] | None:
    """The GPUs cut otherwise than a well-known configuration asks; `None` for an unknown name.

    GPUs without MIG, and GPUs without the profile, are left as they are by every manager.
    """
    capable = {gpu.uuid: gpu.mig for gpu in gpus if gpu.mig is not None and not gpu.lost}
    profile = config.removeprefix("all-")
    if config in ("all-disabled", "all-enabled"):
        alike = {uuid for uuid, mig in capable.items() if mig.enabled is (config == "all-enabled")}
    elif config == "all-balanced":
        alike = {uuid for uuid, mig in capable.items() if _is_balanced(mig)}
    elif profile != config and any(_find_maximum(mig, profile) for mig in capable.values()):
        alike = {uuid for uuid, mig in capable.items() if _is_all(mig, profile)}
    else:
        return None
    return tuple(gpu for gpu in gpus if gpu.uuid in capable.keys() - alike)


def _is_all(mig: Mig, profile: str) -> bool:
    most = _find_maximum(mig, profile)
    return not most or _list_profiles(mig) == [profile] * most


def _find_maximum(mig: Mig, profile: str) -> int:
    return next((one.instances_max for one in mig.profiles if plain_profile(one.name) == profile), 0)


def _is_balanced(mig: Mig) -> bool:
    devices = mig.devices if mig.enabled else ()
    return dict(Counter(device.attributes.gpu_instance_slice_count for device in devices)) in _BALANCED


def _list_profiles(mig: Mig) -> list[str]:
    return [plain_profile(device.profile) for device in mig.devices] if mig.enabled else []


class Step(Enum):
    """The treatment of the GPU handles."""

    RELEASE = auto()
    RESUME = auto()


class Pause(Value, frozen=True):
    """The pause in force."""

    label: str = ""
    """Empty while there is none."""
    released_until: float = 0.0
    """When the release ends by itself: a node must not be lost because its agent is never resumed."""


def decide_step(wanted: str, pause: Pause, now: float, lasts_seconds: float) -> Step | None:
    """Release while the label asks for a pause, anew at half time; take back only releases made here."""
    if wanted and (wanted != pause.label or now > pause.released_until - lasts_seconds / 2):
        return Step.RELEASE
    return Step.RESUME if pause.label and not wanted else None
