"""The kinds of objects that the stand-in API server has: their paths, their selectors, what is wrong with one."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

Json = dict[str, Any]
Cause = tuple[str, str, str]
"""Of a refusal: the reason, the field and the message."""
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_DEVICE_FIELDS: Final = (
    "name attributes capacity consumesCounters nodeName nodeSelector allNodes taints bindsToNode bindingConditions "
    "bindingFailureConditions allowMultipleAllocations nodeAllocatableResourceMappings"
)
_SLICE_FIELDS: Final = "driver pool nodeName nodeSelector allNodes devices perDeviceNodeSelection sharedCounters"


class Kind(NamedTuple):
    """One kind of object, with what the server does to a document before it is stored."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    is_namespaced: bool = True
    fields: Mapping[str, Callable[[Json], object]] = {}
    """What can be selected by, besides name and namespace."""
    prepare: Callable[[Json], None] = lambda document: None
    """Drops what the kind does not have, and fills in what is not given; raises `Unreadable`."""
    check: Callable[[Json], list[Cause]] = lambda document: []

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Unreadable(Exception):
    """A document that the server cannot make anything of."""


class Place(NamedTuple):
    """What a path leads to."""

    kind: Kind
    namespace: str
    name: str
    subresource: str


def find_place(path: str, served: Mapping[str, Kind]) -> Place | None:
    """The object or collection at a path; `None` where nothing of the kind is served.

    Raises:
        LookupError: nothing is served for the whole group or version.
    """
    parts = path.strip("/").split("/")
    group, version, *rest = ["", *parts[1:]] if parts[0] == "api" else parts[1:]
    of_group = [kind for kind in served.values() if (kind.group, kind.version) == (group, version)]
    if not of_group:
        raise LookupError(path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "")[:3]
    kind = next((each for each in of_group if each.plural == plural), None)
    return Place(kind, namespace, name, subresource) if kind is not None else None


def read_path(*keys: str) -> Callable[[Json], object]:
    def read(document: Json) -> object:
        found: Any = document
        for key in keys:
            found = (found or {}).get(key)
        return found

    return read


def _prepare_slice(document: Json) -> None:
    spec = document["spec"]
    for key in spec.keys() - set(_SLICE_FIELDS.split()):
        del spec[key]
    for device in spec.get("devices") or ():
        for key in device.keys() - set(_DEVICE_FIELDS.split()):
            del device[key]
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", "2026-01-01T12:00:00Z")


def _check_slice(document: Json) -> list[Cause]:
    return [
        (
            "FieldValueInvalid",
            f"spec.devices[{number}].name",
            f'Invalid value: "{device["name"]}": a lowercase RFC 1123 label',
        )
        for number, device in enumerate(document["spec"].get("devices") or ())
        if not _LABEL.fullmatch(device["name"])
    ]


def _prepare_lease(document: Json) -> None:
    for key in ("renewTime", "acquireTime"):
        text = document.get("spec", {}).get(key)
        if text is not None:
            try:
                datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")  # noqa: DTZ007 - it ends in a Z
            except ValueError as error:
                raise Unreadable(f'parsing time "{text}": {error}') from error


def _check_event(document: Json) -> list[Cause]:
    causes: list[Cause] = []
    if len(document.get("note", "").encode()) > 1024:
        causes.append(("FieldValueInvalid", "note", 'Invalid value: "": can have at most 1024 characters'))
    causes += [("FieldValueRequired", key, "Required value") for key in ("action", "reason") if not document.get(key)]
    if (document.get("series") or {"count": 2})["count"] < 2:
        causes.append(("FieldValueInvalid", "series.count", 'Invalid value: "": should be at least 2'))
    controller = document.get("reportingController", "")
    if not _NAME.fullmatch(controller.rpartition("/")[2]):
        causes.append(
            ("FieldValueInvalid", "reportingController", f'Invalid value: "{controller}": name part must consist of')
        )
    return causes


def _prepare_node(document: Json) -> None:
    document.setdefault("spec", {})
    for condition in document.setdefault("status", {}).get("conditions") or ():
        for key in ("lastHeartbeatTime", "lastTransitionTime"):
            condition.setdefault(key, None)


def _prepare_pod(document: Json) -> None:
    document.setdefault("status", {}).setdefault("phase", "Pending")


def _prepare_daemon_set(document: Json) -> None:
    for condition in document.setdefault("status", {}).get("conditions") or ():
        condition.setdefault("lastTransitionTime", None)


KINDS: Final = (
    Kind("nodes", "Node", is_namespaced=False, prepare=_prepare_node),
    Kind(
        "pods",
        "Pod",
        fields={
            "spec.nodeName": read_path("spec", "nodeName"),
            "status.phase": read_path("status", "phase"),
            "status.nominatedNodeName": read_path("status", "nominatedNodeName"),
        },
        prepare=_prepare_pod,
    ),
    Kind("daemonsets", "DaemonSet", "apps", prepare=_prepare_daemon_set),
    Kind("events", "Event", "events.k8s.io", check=_check_event),
    Kind("leases", "Lease", "coordination.k8s.io", prepare=_prepare_lease),
    Kind("nodefeatures", "NodeFeature", "nfd.k8s-sigs.io", "v1alpha1"),
    Kind("resourceclaims", "ResourceClaim", "resource.k8s.io"),
    Kind(
        "resourceslices",
        "ResourceSlice",
        "resource.k8s.io",
        is_namespaced=False,
        fields={"spec.driver": read_path("spec", "driver"), "spec.nodeName": read_path("spec", "nodeName")},
        prepare=_prepare_slice,
        check=_check_slice,
    ),
    Kind("deviceclasses", "DeviceClass", "resource.k8s.io", is_namespaced=False),
    Kind("selfsubjectaccessreviews", "SelfSubjectAccessReview", "authorization.k8s.io", is_namespaced=False),
)
