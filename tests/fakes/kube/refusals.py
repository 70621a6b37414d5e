"""The API server's refusals, as the Status objects that it answers them with."""

from collections.abc import Sequence
from typing import Final

from tests.fakes.kube.kinds import Cause, Json, Kind

MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"


class Refused(Exception):
    """A request that is answered with a status of failure."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.document: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            **({"details": details} if details is not None else {}),
            "code": code,
        }


def invalid_options(causes: Sequence[tuple[str, str]]) -> Refused:
    """Of a list or watch: the parameters that do not go together, each with the reason."""
    texts = [f"{parameter}: Forbidden: {why}" for parameter, why in causes]
    words = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = {
        "group": "meta.k8s.io",
        "kind": "ListOptions",
        "causes": [
            {"reason": "FieldValueForbidden", "message": f"Forbidden: {why}", "field": parameter}
            for parameter, why in causes
        ],
    }
    return Refused(422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {words}', details)


def missing(kind: Kind, name: str) -> Refused:
    return Refused(404, "NotFound", f'{kind.full_name} "{name}" not found', _name(kind, name))


def unknown_resource() -> Refused:
    return Refused(404, "NotFound", "the server could not find the requested resource", {})


def exists(kind: Kind, name: str) -> Refused:
    return Refused(409, "AlreadyExists", f'{kind.full_name} "{name}" already exists', _name(kind, name))


def conflict(kind: Kind, name: str, why: str) -> Refused:
    message = f'Operation cannot be fulfilled on {kind.full_name} "{name}": {why}'
    return Refused(409, "Conflict", message, _name(kind, name))


def field_conflict(owners: Sequence[tuple[str, str]]) -> Refused:
    """Of an apply: the managers of fields that shall have other values, each with the field."""
    causes = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{owner}"', "field": field}
        for owner, field in owners
    ]
    several = "s" if len(owners) > 1 else ""
    texts = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    return Refused(409, "Conflict", f"Apply failed with {len(owners)} conflict{several}: {texts}", {"causes": causes})


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> Refused:
    texts = [f"{field}: {message}" for _, field, message in causes]
    words = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    prefix = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details = {
        "name": name,
        **({"group": kind.group} if kind.group else {}),
        "kind": kind.kind,
        "causes": [{"reason": reason, "message": message, "field": field} for reason, field, message in causes],
    }
    return Refused(422, "Invalid", f'{prefix} "{name}" is invalid: {words}', details)


def unreadable(message: str) -> Refused:
    return Refused(400, "BadRequest", message)


def unauthorized() -> Refused:
    return Refused(401, "Unauthorized", "Unauthorized")


def forbidden(kind: Kind, name: str, verb: str, namespace: str) -> Refused:
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    what = f'{kind.full_name} "{name}"' if name else kind.full_name
    may_not = f'User "stranger" cannot {verb} resource "{kind.plural}" in API group "{kind.group}" {where}'
    return Refused(403, "Forbidden", f"{what} is forbidden: {may_not}", _name(kind, name))


def expired(message: str) -> Refused:
    return Refused(410, "Expired", message)


def over_budget(budget: str) -> Refused:
    cause = {
        "reason": "DisruptionBudget",
        "message": f"The disruption budget {budget} needs 1 healthy pods and has 1 currently",
    }
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    return Refused(429, "TooManyRequests", message, {"causes": [cause]})


def several_budgets() -> Refused:
    """Of an eviction: an answer without a reason."""
    message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    return Refused(500, "", message)


def _name(kind: Kind, name: str) -> Json:
    named = {"name": name} if name else {}
    return named | ({"group": kind.group} if kind.group else {}) | {"kind": kind.plural}
