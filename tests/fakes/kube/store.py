"""The objects of the stand-in API server, one row of versions for all, and what every request makes of them.

An object is found by its name alone: a name that is used in two namespaces is an error of the test.
"""

import asyncio
import base64
import json
import uuid
from bisect import bisect_right
from collections.abc import Iterator
from copy import deepcopy
from typing import Final, NamedTuple

from tests.fakes.kube import refusals
from tests.fakes.kube.kinds import KINDS, Cause, Json, Kind, Place, Unreadable
from tests.fakes.kube.patches import APPLY, STRATEGIC, apply, merge, own_changes, own_conditions
from tests.fakes.kube.selection import Selection

FIRST_VERSION: Final = 100
CREATED: Final = "2026-01-01T12:00:00Z"
GRACE_SECONDS: Final = 30
_WITH_STATUS: Final = ("nodes", "pods", "daemonsets", "resourceclaims")
_FINISHED: Final = ("Succeeded", "Failed")


class Change(NamedTuple):
    """One change of one object; with `line`, what a watch says instead."""

    version: int
    plural: str
    before: Json | None = None
    after: Json | None = None
    line: Json | None = None


class Write(NamedTuple):
    """How something is written: by whom, as which kind of patch."""

    manager: str = ""
    content_type: str = ""


class ObjectStore:
    """Objects by plural and name."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Json]] = {kind.plural: {} for kind in KINDS}
        self.version = FIRST_VERSION
        self.oldest = FIRST_VERSION
        """Older versions are forgotten."""
        self.budgets: set[str] = set()
        self.crowded: set[str] = set()
        """Applications with several disruption budgets."""
        """Values of the label `app` whose running pods no budget lets go."""
        self.is_rehearsal = False
        """Whether writes are answered and forgotten, as in a dry run."""
        self.changes: list[Change] = []
        self.changed = asyncio.Event()
        """Set with the next change, and then replaced by another one."""
        self._pages: dict[str, list[Json]] = {}

    def wake(self) -> None:
        """Have watches look at the changes."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def forget(self) -> None:
        self.oldest = self.version
        self._pages.clear()

    def find(self, place: Place) -> Json:
        found = self.objects[place.kind.plural].get(place.name)
        if found is None or place.namespace not in {"", found.get("metadata", {}).get("namespace", place.namespace)}:
            raise refusals.missing(place.kind, place.name)
        return found

    def list_page(self, selection: Selection, plural: str, limit: int, token: str) -> tuple[list[Json], str, str]:
        """The objects of one page, the version of the list, and the token of the next page."""
        if token:
            version, items = self._read_token(token)
        else:
            found = self.objects[plural]
            version, items = self.version, [found[name] for name in sorted(found) if selection.has(found[name])]
        if not limit or len(items) <= limit:
            return items, str(version), ""
        place = {"v": "meta.k8s.io/v1", "rv": version, "start": items[limit]["metadata"]["name"]}
        following = base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")
        self._pages[following] = deepcopy(items[limit:])
        return items[:limit], str(version), following

    def _read_token(self, token: str) -> tuple[int, list[Json]]:
        try:
            version = int(json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))["rv"])
        except (ValueError, KeyError) as error:
            raise refusals.unreadable(f"continue key is not valid: {error}") from error
        if version < self.oldest or token not in self._pages:
            raise refusals.expired("The provided continue parameter is too old to display a consistent list result.")
        return version, self._pages[token]

    def since(self, version: int, plural: str, selection: Selection) -> Iterator[tuple[int, Json]]:
        """What a watch says of the changes after a version, each with its own."""
        first = bisect_right(self.changes, version, key=lambda change: change.version)
        for change in self.changes[first:]:
            line = change.line or _tell(change, selection)
            if line is not None and change.plural == plural:
                yield change.version, line

    def create(self, place: Place, body: Json, write: Write = Write()) -> Json:  # noqa: B008 - it is frozen
        kind, name = place.kind, str(body["metadata"]["name"])
        found = self.objects[kind.plural].get(name)
        if found is not None:
            assert found["metadata"].get("namespace", "") in {"", place.namespace}, f"{name} is in two namespaces"
            raise refusals.exists(kind, name)
        metadata = {"uid": str(uuid.uuid4()), "creationTimestamp": CREATED} | body["metadata"]
        if place.namespace:
            metadata["namespace"] = place.namespace
        document = {"kind": kind.kind, "apiVersion": kind.api_version} | body | {"metadata": metadata}
        if kind.plural in _WITH_STATUS[1:]:
            document.pop("status", None)
        own_changes({"metadata": {}}, document, write.manager or "unknown")
        return self._save(kind, name, None, document)

    def update(self, place: Place, body: Json) -> Json:
        before = self.find(place)
        uid = before["metadata"]["uid"]
        if body["metadata"].get("uid", uid) != uid:
            raise refusals.conflict(place.kind, place.name, _describe_uid(body["metadata"]["uid"], uid))
        self._check_version(place, before, body["metadata"].get("resourceVersion"))
        metadata = {key: before["metadata"][key] for key in ("uid", "creationTimestamp") if key in before["metadata"]}
        return self._save(place.kind, place.name, before, body | {"metadata": body["metadata"] | metadata})

    def patch(self, place: Place, body: Json, write: Write) -> Json:
        if write.content_type == APPLY:
            return self._apply(place, body, write.manager)
        before = self.find(place)
        self._check_version(place, before, body.get("metadata", {}).get("resourceVersion"))
        self._check_uid(place, before, body)
        merged = merge(before, body, is_strategic=write.content_type == STRATEGIC)
        assert isinstance(merged, dict)
        if place.kind.plural in _WITH_STATUS:
            kept = "spec" if place.subresource == "status" else "status"
            merged[kept] = before.get(kept) or {}
        after = deepcopy(merged)
        own_changes(before, after, write.manager or "unknown")
        own_conditions(before, after, write.manager or "unknown")
        return self._save(place.kind, place.name, before, after)

    def _apply(self, place: Place, body: Json, manager: str) -> Json:
        if not manager:
            required = ("FieldValueRequired", "fieldManager", "Required value: is required for apply patch")
            raise refusals.Refused(422, "Invalid", f'PatchOptions.meta.k8s.io "" is invalid: {required[1]}')
        if place.name not in self.objects[place.kind.plural]:
            uid = body["metadata"].get("uid")
            if uid:
                why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                raise refusals.conflict(place.kind, place.name, why)
            fresh = body | {"metadata": {key: value for key, value in body["metadata"].items() if key != "labels"}}
            self.create(place, fresh)
        before = self.find(place)
        self._check_uid(place, before, body)
        return self._save(place.kind, place.name, before, deepcopy(apply(before, body, manager)))

    def delete(self, place: Place, options: Json) -> Json:
        """The object in its last version; one with grace is only marked."""
        before = self.find(place)
        wanted, known = options.get("preconditions") or {}, before["metadata"]
        if wanted.get("uid", known["uid"]) != known["uid"]:
            raise refusals.conflict(place.kind, place.name, _describe_uid(wanted["uid"], known["uid"]))
        version = wanted.get("resourceVersion", known.get("resourceVersion"))
        if version != known.get("resourceVersion"):
            why = f"Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta: "
            raise refusals.conflict(place.kind, place.name, why + str(known.get("resourceVersion")))
        if self.is_rehearsal:
            return before
        if place.kind.plural == "pods" and (before.get("spec") or {}).get("nodeName"):
            grace = _find_grace(before, options.get("gracePeriodSeconds"))
            marks = {"deletionTimestamp": CREATED, "deletionGracePeriodSeconds": grace}
            before = self._save(place.kind, place.name, before, deepcopy(before) | {"metadata": known | marks})
            if grace:
                return before
        return self._remove(place.kind, place.name)

    def evict(self, place: Place, body: Json) -> None:
        pod = self.find(place)
        application = (pod["metadata"].get("labels") or {}).get("app")
        is_running = (pod.get("status") or {}).get("phase", "Running") == "Running"
        if application in self.crowded:
            raise refusals.several_budgets()
        if application in self.budgets and is_running and not pod["metadata"].get("deletionTimestamp"):
            raise refusals.over_budget(str(application))
        self.delete(place, body.get("deleteOptions") or {})

    def bind(self, place: Place, body: Json) -> None:
        before = self.find(place)
        spec = before["spec"] | {"nodeName": body["target"]["name"]}
        self._save(place.kind, place.name, before, deepcopy(before) | {"spec": spec})

    def note(self, plural: str, name: str, before: Json | None) -> Json:
        """An object was written past all requests; it has a new version, and watches see it."""
        self.version += 1
        document = self.objects[plural][name]
        document["metadata"]["resourceVersion"] = str(self.version)
        self.changes.append(Change(self.version, plural, before, deepcopy(document)))
        self.wake()
        return document

    def drop(self, plural: str, name: str) -> Json:
        """An object was taken away past all requests."""
        return self._remove(next(kind for kind in KINDS if kind.plural == plural), name)

    def _save(self, kind: Kind, name: str, before: Json | None, after: Json) -> Json:
        try:
            kind.prepare(after)
        except Unreadable as error:
            message = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error}'
            raise refusals.unreadable(message) from error
        causes = kind.check(after)
        if causes:
            raise refusals.invalid(kind, name, causes)
        for holder, key in (
            (after["metadata"], "labels"),
            (after["metadata"], "annotations"),
            (after.get("spec") or {}, "taints"),
        ):
            if key in holder and not holder[key]:
                del holder[key]
        if self.is_rehearsal or (before is not None and _strip(before) == _strip(after)):
            return before if before is not None and not self.is_rehearsal else after
        earlier = deepcopy(before)
        self.objects[kind.plural][name] = after
        return self.note(kind.plural, name, earlier)

    def _remove(self, kind: Kind, name: str) -> Json:
        document = self.objects[kind.plural].pop(name)
        self.version += 1
        last = deepcopy(document)
        last["metadata"]["resourceVersion"] = str(self.version)
        self.changes.append(Change(self.version, kind.plural, last, None))
        self.wake()
        return document

    def _check_version(self, place: Place, before: Json, wanted: object) -> None:
        if wanted is not None and wanted != before["metadata"].get("resourceVersion"):
            raise refusals.conflict(place.kind, place.name, refusals.MODIFIED)

    def _check_uid(self, place: Place, before: Json, body: Json) -> None:
        uid = body.get("metadata", {}).get("uid")
        if uid is not None and uid != before["metadata"]["uid"]:
            immutable: Cause = ("FieldValueInvalid", "metadata.uid", f'Invalid value: "{uid}": field is immutable')
            # The real one says it twice.
            raise refusals.invalid(place.kind, place.name, (immutable, immutable))


def _describe_uid(wanted: str, known: str) -> str:
    return f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {known}"


def _find_grace(pod: Json, wanted: int | None) -> int:
    if (pod.get("status") or {}).get("phase") in _FINISHED:
        return 0
    return int(pod["spec"].get("terminationGracePeriodSeconds", GRACE_SECONDS) if wanted is None else wanted)


def _strip(document: Json) -> Json:
    """Without what changes with each writing."""
    metadata = {
        key: value for key, value in document["metadata"].items() if key not in {"resourceVersion", "managedFields"}
    }
    entries = [
        {key: value for key, value in each.items() if key != "time"}
        for each in document["metadata"].get("managedFields") or []
    ]
    return document | {
        "metadata": metadata,
        "managed": sorted(entries, key=lambda each: (each["manager"], each["operation"])),
    }


def _tell(change: Change, selection: Selection) -> Json | None:
    """A change as it looks to who watches a selection."""
    was = change.before is not None and selection.has(change.before)
    if change.after is not None and selection.has(change.after):
        return {"type": "MODIFIED" if was else "ADDED", "object": change.after}
    if not was or change.before is None:
        return None
    metadata = change.before["metadata"] | {"resourceVersion": str(change.version)}
    return {"type": "DELETED", "object": change.before | {"metadata": metadata}}
