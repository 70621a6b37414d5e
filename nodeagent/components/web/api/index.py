"""The calls of the API, as listed by the API itself."""

from nodeagent.model.orders import ORDERS
from nodeagent.model.values import Value


class Endpoint(Value, frozen=True):
    """A call and its answer."""

    call: str
    gives: str
    where: str = "everywhere"


class Index(Value, frozen=True):
    """The list of calls."""

    api: str
    promise: str
    calls: tuple[Endpoint, ...]


ADMIN = "admin socket"

INDEX = Index(
    api="v1",
    promise="fields are only ever added; a removal or a change of meaning would be /api/v2",
    calls=(
        Endpoint(call="GET /livez", gives="200 while the event loop turns"),
        Endpoint(call="GET /readyz", gives="200 or 503, a line per gate and condition"),
        Endpoint(call="GET /metrics", gives="Prometheus text"),
        Endpoint(call="GET /api/v1/", gives="this list"),
        Endpoint(call="GET /api/v1/openapi.json", gives="this list with the form of every answer, as OpenAPI 3.1"),
        Endpoint(call="GET /api/v1/state", gives="the node in one answer"),
        Endpoint(call="GET /api/v1/gpus", gives="all GPUs with sample, health and holders, and how they are linked"),
        Endpoint(call="GET /api/v1/gpus/{name}", gives="one GPU, by UUID, index or PCI address"),
        Endpoint(call="GET /api/v1/allocations", gives="who holds what"),
        Endpoint(call="GET /api/v1/allocations/history", gives="who held what, the newest first"),
        Endpoint(
            call="GET /api/v1/receipts",
            gives="who held which GPUs, the faults seen meanwhile and whom they blame, the newest first",
        ),
        Endpoint(call="GET /api/v1/mig", gives="the MIG layout that is asked for, how it stands, and what changes now"),
        Endpoint(call="GET /api/v1/layouts", gives="the MIG layouts that are configured, and the file of more"),
        Endpoint(call="GET /api/v1/mps", gives="MPS daemons, their limits, servers and clients"),
        Endpoint(call="GET /api/v1/parts", gives="the containers that have parts of GPUs, and what was promised them"),
        Endpoint(call="GET /api/v1/claims", gives="the claims that are ready, for whom, and those refused"),
        Endpoint(call="GET /api/v1/slices", gives="what schedulers see of this node's devices, as it was written"),
        Endpoint(call="GET /api/v1/usage", gives="what each of them uses of its parts, by the newest sample"),
        Endpoint(call="GET /api/v1/doors", gives="by which door each GPU is given out, and who is waited for"),
        Endpoint(call="GET /api/v1/repairs", gives="fault sessions, what would be done, and why not"),
        Endpoint(call="GET /api/v1/upgrades", gives="upgrades of the driver, what would be done, and why not"),
        Endpoint(call="GET /api/v1/proofs", gives="idle-time proofs of GPUs: verdict, stage and time"),
        Endpoint(call="GET /api/v1/devices", gives="devices of the configured classes, with holders"),
        Endpoint(call="GET /api/v1/labels", gives="node labels, wanted and applied"),
        Endpoint(call="GET /api/v1/conditions", gives="what is wrong and what to do"),
        Endpoint(call="GET /api/v1/components", gives="the parts of the agent and how they fare"),
        Endpoint(call="GET /api/v1/gates", gives="the milestones of the start"),
        Endpoint(call="GET /api/v1/driver", gives="the driver's state"),
        Endpoint(
            call="GET /api/v1/events",
            gives="server-sent events; ?types=A,B chooses, ?since=SEQ catches up, ?follow=false gives a list",
        ),
        Endpoint(call="GET /api/v1/debug", gives="tasks, bus depths and lags, loop lag"),
        *(Endpoint(call=f"POST {order.path}", gives=order.describe(), where=ADMIN) for order in ORDERS),
    ),
)
