"""What can go wrong between the agent and the API server, one class for each situation a caller handles differently.

KubeError
├── CredentialsInvalid    there are credentials, but they cannot be used
├── ApiUnreachable        no answer, or half of one: the server, the network, or its certificate
├── NodeMissing           the cluster has no node of our name
└── ApiRefused            the server answered, and the answer is no
    ├── ApiUnauthorized   it does not know us (401)
    ├── ApiForbidden      it knows us and says no (403)
    ├── ApiNotFound       there is no such object or kind (404)
    ├── ApiConflict       somebody else was there first (409), or another object has its name (422)
    ├── ApiExpired        what the watch asked for is too old (410)
    ├── ApiBusy           it asks us to come back later (429)
    └── ApiFailed         it failed itself (5xx)
"""

import json
from contextlib import suppress
from http import HTTPStatus

from nodeagent.model.errors import NodeagentError


class KubeError(NodeagentError):
    """The API server, or the way to it."""


class CredentialsInvalid(KubeError):
    """Credentials are there and cannot be used."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"cannot use the credentials in {where}: {reason}: mend them or set kubernetes.kubeconfig")
        self.where, self.reason = where, reason


class ApiUnreachable(KubeError):
    """The API server does not answer, or stopped in the middle of an answer."""

    def __init__(self, server: str, attempted: str, reason: str) -> None:
        super().__init__(f"cannot {attempted}: {server} does not answer: {reason}: nodeagent keeps trying")
        self.server, self.attempted, self.reason = server, attempted, reason


class NodeMissing(KubeError):
    """The cluster does not know this node."""

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
    """Whether the API server names the object: it knows the kind, and has none of that name."""

    def demand_object(self) -> None:
        """Return where the object is gone; who does not know it, as a proxy in the server's place, says nothing of it.

        Raises:
            ApiUnreachable: the server itself has not answered.
        """
        if not self.is_object:
            raise ApiUnreachable("the API server", self.attempted, f"another one answers ({self.message})") from self


class ApiConflict(ApiRefused):
    """Another writer changed or holds the same thing."""

    remedy = "nodeagent looks again and leaves to others what is theirs"


class ApiExpired(ApiRefused):
    """The version that a watch began at is no longer kept."""

    remedy = "nodeagent lists anew"


class ApiBusy(ApiRefused):
    """Too many requests; or one pod too many was asked to go, which the same status tells."""

    remedy = "nodeagent waits as long as it was asked to"
    is_budget = False
    """Whether a disruption budget said no, which is about one pod and not about our requests."""


class ApiFailed(ApiRefused):
    """The server itself is in trouble."""

    remedy = "nodeagent keeps trying"


_BY_STATUS: dict[int, type[ApiRefused]] = {
    HTTPStatus.UNAUTHORIZED: ApiUnauthorized,
    HTTPStatus.FORBIDDEN: ApiForbidden,
    HTTPStatus.NOT_FOUND: ApiNotFound,
    HTTPStatus.CONFLICT: ApiConflict,
    HTTPStatus.GONE: ApiExpired,
    HTTPStatus.TOO_MANY_REQUESTS: ApiBusy,
}


def translate_status(attempted: str, status: int, message: str, retry_after_seconds: float | None = None) -> ApiRefused:
    """The error for an answer that is no success."""
    kind = _BY_STATUS.get(status, ApiFailed if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ApiRefused)
    return kind(attempted, status, message, retry_after_seconds=retry_after_seconds)


def translate_answer(
    attempted: str, status: int, content: bytes, *, reason: str | None, retry_after_seconds: float | None
) -> ApiRefused:
    """The error for a whole answer that is no success; `reason` is that of its head."""
    message = find_message(content) or reason or "no reason given"
    if names_uid(content):
        return ApiConflict(attempted, status, message)
    refused = translate_status(attempted, status, message, retry_after_seconds)
    if isinstance(refused, ApiBusy):
        refused.is_budget = names_budget(content)
    elif isinstance(refused, ApiNotFound):
        refused.is_object = names_object(content)
    return refused


def names_budget(content: bytes) -> bool:
    """Whether a refusal is that of a pod's disruption budget: no other has this word among its causes."""
    with suppress(ValueError, AttributeError, TypeError):
        causes = (json.loads(content).get("details") or {}).get("causes") or ()
        return any(cause.get("reason") == "DisruptionBudget" for cause in causes)
    return False


def names_uid(content: bytes) -> bool:
    """Whether a patch was meant for an object that another one has replaced: its uid is refused as an invalid field."""
    with suppress(ValueError, AttributeError, TypeError):
        causes = (json.loads(content).get("details") or {}).get("causes") or ()
        return any(cause.get("field") == "metadata.uid" for cause in causes)
    return False


def names_object(content: bytes) -> bool:
    """Whether a 404 is about an object: one for a path that is not served, or from somebody else, tells of none."""
    with suppress(ValueError, AttributeError, TypeError):
        status = json.loads(content)
        return status.get("reason") == "NotFound" and bool((status.get("details") or {}).get("name"))
    return False


def find_message(content: bytes) -> str:
    """The server's own words; what stands between us and it answers with pages, of which one line must do."""
    try:
        return str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        return " ".join(content[:200].decode("utf-8", "replace").split())
