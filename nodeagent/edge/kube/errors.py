"""The errors between the agent and the API server, a class for each situation that callers handle differently.

KubeError
├── CredentialsInvalid    there are credentials, but the credentials cannot be used
├── ApiUnreachable        no answer, or half an answer: the server, the network, or the server's certificate
├── NodeMissing           the cluster has no node of our name
└── ApiRefused            the server answered, and the answer is no
    ├── ApiUnauthorized   the server does not know us (401)
    ├── ApiForbidden      the server knows us and says no (403)
    ├── ApiNotFound       there is no such object or kind (404)
    ├── ApiConflict       another writer was first (409), or another object has the name (422)
    ├── ApiExpired        the version for a watch is too old (410)
    ├── ApiInvalid        the server does not take a document of this content (422)
    ├── ApiBusy           the server asks us to come back later (429)
    └── ApiFailed         the server failed (5xx)
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus

from nodeagent.model.errors import NodeagentError


class KubeError(NodeagentError):
    """An error of the API server, or of the way to the API server."""


class CredentialsInvalid(KubeError):
    """Credentials exist and cannot be used."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"cannot use the credentials in {where}: {reason}: mend them or set kubernetes.kubeconfig")
        self.where, self.reason = where, reason


class ApiUnreachable(KubeError):
    """The API server does not answer, or stopped in the middle of an answer."""

    def __init__(self, server: str, attempted: str, reason: str) -> None:
        super().__init__(f"cannot {attempted}: {server} does not answer: {reason}: nodeagent keeps trying")
        self.server, self.attempted, self.reason = server, attempted, reason


@contextmanager
def making_sense(attempted: str) -> Iterator[None]:
    """Turn a document of another shape into `ApiUnreachable`."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ApiUnreachable("the API server", attempted, f"its answer makes no sense ({error!r})") from error


class NodeMissing(KubeError):
    """The cluster does not know the node."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the cluster has no node {name}: set node.name (NODE_NAME) to the kubelet's name of this node"
        )
        self.name = name


class ApiRefused(KubeError):
    """The API server said no."""

    remedy = "read the API server's message"

    def __init__(self, attempted: str, status: int, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(f"cannot {attempted}: the API server answered {status}: {message}: {self.remedy}")
        self.attempted, self.status, self.message = attempted, status, message
        self.retry_after_seconds = retry_after_seconds


class ApiUnauthorized(ApiRefused):
    """The token or certificate is not accepted."""

    remedy = "renew the credentials"


class ApiForbidden(ApiRefused):
    """A right is missing, or an admission policy refuses."""

    remedy = "apply deploy/rbac.yaml, and run the agent with a token that is bound to its node"


class ApiNotFound(ApiRefused):
    """No such object, or no such kind of object."""

    remedy = "create it, or install what defines its kind"
    is_object = False
    """Whether the API server names the object: the kind is known, and no object has the name."""

    def demand_object(self) -> None:
        """Return where the object is gone; a 404 of a proxy, without a word on the object, proves nothing.

        Raises:
            ApiUnreachable: the server itself has not answered.
        """
        if not self.is_object:
            raise ApiUnreachable("the API server", self.attempted, f"another one answers ({self.message})") from self


class ApiConflict(ApiRefused):
    """Another writer changed or holds the same object or field."""

    remedy = "nodeagent looks again and leaves to others what is theirs"


class ApiExpired(ApiRefused):
    """The first version of a watch is no longer kept."""

    remedy = "nodeagent lists anew"


class ApiInvalid(ApiRefused):
    """The content of a document breaks the rules of the server's version."""

    remedy = "nodeagent leaves out what this server does not take, where it can"


class ApiBusy(ApiRefused):
    """Too many requests; or one evicted pod too many, with the same status."""

    remedy = "nodeagent waits as long as it was asked to"
    is_budget = False
    """Whether a disruption budget said no: about a pod, and not about our requests."""
    budget = ""
    """The budget's own words, with its name."""


class ApiFailed(ApiRefused):
    """The server itself is in trouble."""

    remedy = "nodeagent keeps trying"


_BUDGET = "DisruptionBudget"
_BY_STATUS: dict[int, type[ApiRefused]] = {
    HTTPStatus.UNAUTHORIZED: ApiUnauthorized,
    HTTPStatus.FORBIDDEN: ApiForbidden,
    HTTPStatus.NOT_FOUND: ApiNotFound,
    HTTPStatus.CONFLICT: ApiConflict,
    HTTPStatus.GONE: ApiExpired,
    HTTPStatus.UNPROCESSABLE_ENTITY: ApiInvalid,
    HTTPStatus.TOO_MANY_REQUESTS: ApiBusy,
}


def translate_status(attempted: str, status: int, message: str, retry_after_seconds: float | None = None) -> ApiRefused:
    """The error for an answer without success."""
    kind = _BY_STATUS.get(status, ApiFailed if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ApiRefused)
    return kind(attempted, status, message, retry_after_seconds=retry_after_seconds)


def translate_answer(
    attempted: str, status: int, content: bytes, *, reason: str | None, retry_after_seconds: float | None
) -> ApiRefused:
    """The error for a whole answer without success; `reason` comes from the answer's head."""
    message = find_message(content) or reason or "no reason given"
    if names_uid(content):
        return ApiConflict(attempted, status, message)
    refused = translate_status(attempted, status, message, retry_after_seconds)
    if isinstance(refused, ApiBusy):
        refused.is_budget = names_budget(content)
        refused.budget = find_budget(content)
    elif isinstance(refused, ApiNotFound):
        refused.is_object = names_object(content)
    return refused


def names_budget(content: bytes) -> bool:
    """Whether a disruption budget refuses: no other refusal has this word among the causes."""
    return _has_cause(content, "reason", _BUDGET)


def find_budget(content: bytes) -> str:
    """The disruption budget's words, such as the number of pods needed; empty for another refusal."""
    with suppress(ValueError, AttributeError, TypeError):
        causes = (json.loads(content).get("details") or {}).get("causes") or ()
        return "; ".join(str(one["message"]) for one in causes if one.get("reason") == _BUDGET and one.get("message"))
    return ""


def names_uid(content: bytes) -> bool:
    """Whether a patch was meant for a replaced object: the former uid is refused as an invalid field."""
    return _has_cause(content, "field", "metadata.uid")


def _has_cause(content: bytes, key: str, value: str) -> bool:
    with suppress(ValueError, AttributeError, TypeError):
        causes = (json.loads(content).get("details") or {}).get("causes") or ()
        return any(cause.get(key) == value for cause in causes)
    return False


def names_object(content: bytes) -> bool:
    """Whether a 404 is about an object: a 404 for an unserved path, or from a proxy, names no object."""
    with suppress(ValueError, AttributeError, TypeError):
        status = json.loads(content)
        return status.get("reason") == "NotFound" and bool((status.get("details") or {}).get("name"))
    return False


def find_message(content: bytes) -> str:
    """The server's own words; a proxy between answers with pages, cut to one line."""
    try:
        return str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        return " ".join(content[:200].decode("utf-8", "replace").split())
