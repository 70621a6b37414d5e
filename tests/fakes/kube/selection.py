"""Which objects of a kind a list or a watch is about."""

import re
from typing import Final

from tests.fakes.kube.kinds import Json, Kind, Unreadable, read_path

_FIELD: Final = re.compile(r"([^!=]+)(!?)==?(.*)")
_LABEL: Final = re.compile(r"([^ =]+)(?: in \(([^)]*)\)|=(.*))")
_OUTSIDE_OF_SETS: Final = re.compile(r",(?![^(]*\))")


class Selection:
    """By namespace, fields and labels, as the query says it."""

    def __init__(self, kind: Kind, namespace: str, fields: str, labels: str) -> None:
        """Raises `Unreadable` for a field that the kind cannot be selected by."""
        known = {"metadata.name": read_path("metadata", "name"), **kind.fields}
        self._namespace = namespace
        self._fields = []
        for term in filter(None, fields.split(",")):
            found = _FIELD.fullmatch(term)
            if found is None or found[1] not in known:
                raise Unreadable(f"field label not supported: {found[1] if found else term}")
            self._fields.append((known[found[1]], found[2] == "!", found[3]))
        self._labels = []
        for term in filter(None, _OUTSIDE_OF_SETS.split(labels)):
            found = _LABEL.fullmatch(term)
            if found is None:
                raise Unreadable(f"unable to parse requirement: {term}")
            self._labels.append((found[1], set(found[2].split(",")) if found[2] is not None else {found[3]}))

    def has(self, document: Json) -> bool:
        """Whether an object is among those that are meant."""
        metadata = document.get("metadata", {})
        labels = metadata.get("labels") or {}
        return (
            self._namespace in {"", metadata.get("namespace", self._namespace)}
            and all((str(read(document) or "") == value) is not negated for read, negated, value in self._fields)
            and all(labels.get(key) in values for key, values in self._labels)
        )
