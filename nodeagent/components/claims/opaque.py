"""The DRA driver's opaque configurations of devices in classes and claims: `GpuConfig` and `MigDeviceConfig`.

Owns strict reading, and the precedence of several for a device: the claim's before the class's, the later before the
earlier, and the driver's defaults at the end.
Refuses unknown fields by name: a setting that is silently left out is noticed too late.
"""

from collections.abc import Mapping, Sequence
from reprlib import Repr
from typing import Final, NamedTuple

from nodeagent.model.claims import ClaimResult, OpaqueConfig
from nodeagent.model.errors import ClaimRefused
from nodeagent.model.journal import SharingWay
from nodeagent.model.nvidia import DOMAIN
from nodeagent.model.wording import suggest
from nodeagent.rules.claims.quantity import QuantityUnreadable, parse_quantity

API_VERSION: Final = f"resource.{DOMAIN}/v1beta1"
FROM_CLASS, FROM_CLAIM = "FromClass", "FromClaim"
INTERVALS: Final = ("Default", "Short", "Medium", "Long")
GPU_KIND, MIG_KIND = "GpuConfig", "MigDeviceConfig"
_KINDS: Final = {GPU_KIND: "a GPU", MIG_KIND: "a MIG device"}
_SHOWN: Final = Repr()
_SHOWN.maxstring = _SHOWN.maxlong = 10 << 10  # as much as the API takes of all of it


class MpsRequest(NamedTuple):
    """`mpsConfig` as written; the meaning depends on the GPUs of the configuration."""

    thread_percentage: int | None = None
    memory_bytes: int | None = None
    memory_bytes_by_gpu: tuple[tuple[str, int], ...] = ()
    multi_user: bool = False


class SharingRequest(NamedTuple):
    """A configuration's request for its devices."""

    kind: str
    way: SharingWay | None = None
    """`None` without a sharing section."""
    interval: str = ""
    mps: MpsRequest = MpsRequest()


class PlacedRequest(NamedTuple):
    """A configuration with its place among the configurations of a claim."""

    place: int
    source: str
    requests: tuple[str, ...]
    request: SharingRequest

    def describe(self) -> str:
        """The place of the configuration in the claim."""
        return _place(self.place, self.source)


def read_configs(configs: Sequence[OpaqueConfig], driver: str) -> tuple[PlacedRequest, ...]:
    """The configurations for this driver, in falling order of precedence.

    Raises:
        ClaimRefused: A configuration has an unknown or wrong field, named in the text.
    """
    read: list[PlacedRequest] = []
    for place, config in enumerate(configs):
        where = _place(place, config.source)
        if not config.driver:
            raise ClaimRefused(f"{where} is not opaque: this driver knows no other kind of configuration")
        if config.driver != driver:
            continue
        if config.source not in {FROM_CLASS, FROM_CLAIM}:
            raise ClaimRefused(f"{where}.source is unknown: it is {FROM_CLASS} or {FROM_CLAIM}")
        request = read_parameters(config.parameters, f"{where}.opaque.parameters")
        read.append(PlacedRequest(place, config.source, config.requests, request))
    return tuple(sorted(read, key=lambda one: (one.source == FROM_CLAIM, one.place), reverse=True))


def choose_config(configs: Sequence[PlacedRequest], result: ClaimResult, *, is_gpu: bool) -> PlacedRequest | None:
    """The configuration for a device, if any.

    Raises:
        ClaimRefused: A configuration naming the request is for another kind of device.
    """
    names = {result.request, result.request.partition("/")[0]}
    for config in configs:
        is_named = not names.isdisjoint(config.requests)
        if config.requests and not is_named:
            continue
        if (config.request.kind == GPU_KIND) == is_gpu:
            return config
        if is_named:
            wanted = _KINDS[config.request.kind]
            raise ClaimRefused(
                f"cannot apply {config.request.kind} to device {result.device} of request {result.request}:"
                f" {config.describe()} is for {wanted}"
            )
    return None


def read_parameters(parameters: object, where: str) -> SharingRequest:
    """Read a configuration.

    Raises:
        ClaimRefused: A field is unknown or wrong, and named in the text.
    """
    fields = _Fields(parameters, where)
    version, kind = fields.take_text("apiVersion"), fields.take_text("kind")
    if version != API_VERSION:
        raise ClaimRefused(f"{where}.apiVersion is {_show(version)}: this driver reads {API_VERSION}")
    if kind not in _KINDS:
        raise ClaimRefused(f"{where}.kind is {_show(kind)}: this driver reads {' and '.join(_KINDS)}")
    sharing = fields.take_fields("sharing")
    fields.finish()
    return SharingRequest(kind) if sharing is None else _read_sharing(kind, sharing)


def _read_sharing(kind: str, fields: "_Fields") -> SharingRequest:
    strategy = fields.take_text("strategy")
    slicing = fields.take_fields("timeSlicingConfig") if kind == GPU_KIND else None
    mps = fields.take_fields("mpsConfig")
    fields.finish()
    ways = {way.value: way for way in SharingWay}
    if strategy not in ways:
        raise ClaimRefused(f"{fields.where}.strategy is {_show(strategy)}: it is {' or '.join(ways)}")
    if ways[strategy] is SharingWay.TIME_SLICING:
        if mps is not None:
            raise ClaimRefused(f"{mps.where}: cannot use MpsConfig with the 'TimeSlicing' strategy")
        return SharingRequest(kind, SharingWay.TIME_SLICING, _read_interval(slicing))
    if slicing is not None:
        raise ClaimRefused(f"{slicing.where}: cannot use TimeSlicingConfig with the 'MPS' strategy")
    return SharingRequest(kind, SharingWay.MPS, mps=MpsRequest() if mps is None else _read_mps(mps))


def _read_interval(fields: "_Fields | None") -> str:
    if fields is None:
        return INTERVALS[0]
    interval = fields.take_text("interval", INTERVALS[0])
    fields.finish()
    if interval not in INTERVALS:
        raise ClaimRefused(f"{fields.where}.interval is {_show(interval)}: it is one of {', '.join(INTERVALS)}")
    return interval


def _read_mps(fields: "_Fields") -> MpsRequest:
    percentage = fields.take("defaultActiveThreadPercentage")
    if percentage is not None and (type(percentage) is not int or not 0 <= percentage <= 100):
        raise ClaimRefused(f"{fields.where}.defaultActiveThreadPercentage is {_show(percentage)}: give 0 to 100")
    limit = fields.take("defaultPinnedDeviceMemoryLimit")
    by_gpu = fields.take_fields("defaultPerDevicePinnedMemoryLimit")
    multi_user = fields.take("multiUser")
    fields.finish()
    if multi_user is not None and not isinstance(multi_user, bool):
        raise ClaimRefused(f"{fields.where}.multiUser is {_show(multi_user)}: give true or false")
    where = f"{fields.where}.defaultPinnedDeviceMemoryLimit"
    sizes = (
        [] if by_gpu is None else [(key, _read_size(each, f"{by_gpu.where}.{key[:60]}")) for key, each in by_gpu.rest()]
    )
    memory_bytes = None if limit is None else _read_size(limit, where)
    return MpsRequest(percentage, memory_bytes, tuple(sizes), multi_user=bool(multi_user))


def _read_size(value: object, where: str) -> int:
    if type(value) is int:
        value = str(value)
    if not isinstance(value, str):
        raise ClaimRefused(f"{where} is {_show(value)}: give a quantity such as 10Gi")
    try:
        return parse_quantity(value)
    except QuantityUnreadable as error:
        raise ClaimRefused(f"{where}: {error}") from error


class _Fields:
    """A mapping whose fields are taken once each, without a rest."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, Mapping):
            raise ClaimRefused(f"{where} is {_show(value)}: give a mapping")
        self._value, self.where, self._known = dict(value), where, list[str]()

    def take(self, name: str) -> object:
        """A field; `None` for a missing field."""
        self._known.append(name)
        return self._value.pop(name, None)

    def take_text(self, name: str, default: str = "") -> str:
        """A field with a text."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise ClaimRefused(f"{self.where}.{name} is {_show(value)}: give a text")
        return value

    def take_fields(self, name: str) -> "_Fields | None":
        """A field with fields of its own."""
        value = self.take(name)
        return None if value is None else _Fields(value, f"{self.where}.{name}")

    def rest(self) -> Sequence[tuple[str, object]]:
        """The fields not taken, where names are free."""
        return [(str(key), value) for key, value in self._value.items()]

    def finish(self) -> None:
        """Refuse fields not taken."""
        if self._value:
            name = str(min(self._value, key=str))
            raise ClaimRefused(f'unknown field "{self.where}.{name[:60]}"{suggest(name, self._known)}')


def _place(place: int, source: str) -> str:
    return f"config[{place}] ({source[:40]})"


def _show(value: object) -> str:
    """A shortened text of the value, however long or deep; the full text may be deeper than Python goes."""
    text = _SHOWN.repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


ALL_CORES: Final = 100
