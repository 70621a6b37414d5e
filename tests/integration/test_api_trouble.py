"""Everything that can go wrong between the agent and a real API server: survived, said, and made good.

What the server does by itself when asked nicely (a revoked token, a right taken away, a field that somebody else holds,
no server at all) is done for real; what it does only in bad hours is put in by a proxy in front of it.
"""

import json
from collections.abc import Iterator

import pytest

from tests.integration.cluster.agent import AgentUnderTest, Settings, request_token
from tests.integration.cluster.control import RBAC, Cluster
from tests.integration.cluster.node import renew_node
from tests.integration.cluster.proxy import (
    WATCH,
    Act,
    ApiProxy,
    Seen,
    delay,
    expire,
    leave_open,
    refuse,
    running_proxy,
    tear,
)
from tests.integration.conftest import MakeAgent
from tests.integration.test_labels import COUNT, NODE, condition_of, labels_of, wait

pytestmark = pytest.mark.may_leak("connections that are frozen on purpose end with the process at their other end")
IMPATIENT: dict[str, dict[str, object]] = {
    "labels": {"hold_seconds": 0},
    "kubernetes": {"request_timeout_seconds": 1, "catch_up_max_seconds": 0},
}
# A server has nothing to say for longer than this, so it is for scenarios in which it is silent anyhow.
WARY = IMPATIENT | {"kubernetes": IMPATIENT["kubernetes"] | {"watch_silence_seconds": 8}}
STREAMED = "sendInitialEvents=true"
READ_ONLY = [{"op": "replace", "path": "/rules/0/verbs", "value": ["get", "list", "watch"]}]


@pytest.fixture
def proxy(node: Cluster) -> Iterator[ApiProxy]:
    with running_proxy(node) as made:
        yield made


def is_label_patch(seen: Seen) -> bool:
    return seen.method == "PATCH" and seen.path.startswith(f"{NODE}?")


def is_listing(seen: Seen) -> bool:
    return seen.method == "GET" and seen.path.startswith("/api/v1/nodes?")


def is_watch(seen: Seen) -> bool:
    return seen.method == WATCH


def is_beginning(seen: Seen) -> bool:
    """Whether the request asks for all there is, by a list or by a watch that streams it first."""
    return is_listing(seen) or (is_watch(seen) and STREAMED in seen.path)


def start(node: Cluster, make_agent: MakeAgent, proxy: ApiProxy, settings: Settings | None = None) -> AgentUnderTest:
    agent = make_agent(settings=settings or IMPATIENT, api_port=proxy.port)
    wait("the labels", lambda: labels_of(node).get(COUNT) == "1")
    return agent


def last_error(agent: AgentUnderTest) -> str:
    return str(agent.get_json("/api/v1/labels")["last_error"])


def counts(agent: AgentUnderTest, verb: str, code: str) -> bool:
    return f'nodeagent_api_requests_total{{code="{code}",verb="{verb}"}}' in agent.get("/metrics")[1]


@pytest.mark.parametrize(
    ("act", "said", "code"),
    [
        (refuse(401), "renew the credentials", "401"),
        (refuse(403), "apply deploy/rbac.yaml", "403"),
        (refuse(409), "leaves to others what is theirs", "409"),
        (refuse(429, headers={"Retry-After": "2"}), "waits as long as it was asked to", "429"),
        (refuse(500), "keeps trying", "500"),
        (leave_open, "does not answer", "none"),
        (delay(3), "does not answer", "none"),
        (tear, "does not answer", "none"),
    ],
    ids=["401", "403", "409", "429", "500", "half-open", "slow", "torn"],
)
def test_a_patch_that_fails_is_said_and_made_good(
    node: Cluster, make_agent: MakeAgent, proxy: ApiProxy, act: Act, said: str, code: str
) -> None:
    """The reason is on the label state and in the metrics, the kubelet is served, the label comes back."""
    agent = start(node, make_agent, proxy)
    rule = proxy.break_next(is_label_patch, act, times=2)
    node.api.patch(NODE, {"metadata": {"labels": {COUNT: None}}})
    wait("the trouble to be met", rule.met.is_set)
    wait("it to be said", lambda: said in last_error(agent))
    assert counts(agent, "PATCH", code)
    assert agent.get("/readyz")[0] == 200
    wait("the label to come back", lambda: labels_of(node).get(COUNT) == "1", timeout_seconds=60)
    wait("it to be over", lambda: not last_error(agent))


def test_retry_after_is_kept_by_all_requests(node: Cluster, make_agent: MakeAgent, proxy: ApiProxy) -> None:
    """For so many seconds as the server said nothing at all is asked of it."""
    start(node, make_agent, proxy)
    rule = proxy.break_next(is_label_patch, refuse(429, headers={"Retry-After": "6"}))
    node.api.patch(NODE, {"metadata": {"labels": {COUNT: None}}})
    wait("the trouble to be met", rule.met.is_set)
    refused = next(each.at_seconds for each in reversed(proxy.seen) if is_label_patch(each))
    wait("the label to come back", lambda: labels_of(node).get(COUNT) == "1", timeout_seconds=60)
    later = [each.at_seconds - refused for each in proxy.seen if each.at_seconds > refused]
    assert min(later) > 5.5


def test_a_watch_that_expired_is_begun_anew(node: Cluster, make_agent: MakeAgent, proxy: ApiProxy) -> None:
    """Without being away: a list, where a streamed one is refused, and a streamed one for a later watch."""
    rule = proxy.break_next(is_watch, expire, times=2)
    agent = start(node, make_agent, proxy)
    wait("the trouble to be met", lambda: rule.left == 0)
    node.api.patch(NODE, {"metadata": {"labels": {COUNT: None}}})
    wait("the label to come back", lambda: labels_of(node).get(COUNT) == "1")
    assert "api_server_away" not in agent.read_log(200)
    kinds = [each.method for each in proxy.seen if is_watch(each) or is_listing(each)]
    assert kinds[:4] == [WATCH, "GET", WATCH, WATCH]


def test_a_node_is_read_and_watched_by_one_request(node: Cluster, make_agent: MakeAgent, proxy: ApiProxy) -> None:
    """The server streams the node first, then what changes; nothing is listed, and a change needs no other request."""
    start(node, make_agent, proxy)
    node.api.patch(NODE, {"metadata": {"labels": {COUNT: None}}})
    wait("the label to come back", lambda: labels_of(node).get(COUNT) == "1")
    (watch,) = [each for each in proxy.seen if is_watch(each)]
    assert STREAMED in watch.path
    assert "resourceVersionMatch=NotOlderThan" in watch.path
    assert "allowWatchBookmarks=true" in watch.path
    assert [each for each in proxy.seen if is_listing(each)] == []


@pytest.mark.parametrize("act", [refuse(500), refuse(403), leave_open, tear], ids=["500", "403", "half-open", "torn"])
def test_a_beginning_that_fails_is_tried_again(node: Cluster, make_agent: MakeAgent, proxy: ApiProxy, act: Act) -> None:
    """The agent is ready without it, says that the server cannot be used, and labels the node once it can."""
    rule = proxy.break_next(is_beginning, act, times=2)
    agent = start(node, make_agent, proxy)
    assert rule.left == 0
    assert "api_server_away" in agent.read_log(200)
    wait("it to be over", lambda: "api_server_back" in agent.read_log(200))


def test_a_watch_whose_other_end_is_gone_is_noticed(node: Cluster, make_agent: MakeAgent, proxy: ApiProxy) -> None:
    """Its silence is taken for what it is, and what was missed is caught up with."""
    agent = start(node, make_agent, proxy, WARY)
    wait("a watch", lambda: any(map(is_watch, proxy.seen)))
    proxy.freeze_watches()
    node.api.patch(NODE, {"metadata": {"labels": {COUNT: None}}})
    wait("the silence to be noticed", lambda: "api_server_away" in agent.read_log(200))
    wait("the label to come back", lambda: labels_of(node).get(COUNT) == "1")


def test_a_revoked_token_is_said_and_a_new_one_is_taken(node: Cluster, make_agent: MakeAgent) -> None:
    """The node that the token is bound to is deleted: a real 401 until the file holds another token."""
    agent = make_agent(settings=WARY)  # or it would ask nothing while its watch stands
    wait("the labels", lambda: labels_of(node).get(COUNT) == "1")
    renew_node(node)
    wait("the refusal", lambda: counts(agent, "WATCH", "401") or counts(agent, "GET", "401"), timeout_seconds=60)
    wait("it to be said", lambda: "renew the credentials" in agent.read_log(200))
    agent.write_credentials(request_token(node))
    wait("the labels on the new node", lambda: labels_of(node).get(COUNT) == "1", timeout_seconds=60)


def test_a_right_that_is_taken_away_is_named(node: Cluster, make_agent: MakeAgent) -> None:
    """Without the role binding the real server answers 403; with it back, so are the labels."""
    agent = make_agent(settings=IMPATIENT)
    wait("the labels", lambda: labels_of(node).get(COUNT) == "1")
    try:
        node.run("kubectl", "patch", "clusterrole", "nodeagent", "--type=json", "-p", json.dumps(READ_ONLY))
        node.api.patch(NODE, {"metadata": {"labels": {COUNT: None}}})
        wait("the refusal", lambda: "apply deploy/rbac.yaml" in last_error(agent))
        assert counts(agent, "PATCH", "403")
    finally:
        node.run("kubectl", "apply", "-f", str(RBAC))
    wait("the label to come back", lambda: labels_of(node).get(COUNT) == "1", timeout_seconds=60)


def test_a_conflict_that_was_not_seen_coming_is_left_to_the_other(
    node: Cluster, make_agent: MakeAgent, proxy: ApiProxy
) -> None:
    """A label changed hands behind the agent's back: the real server answers 409, and the other's value stays."""
    agent = start(node, make_agent, proxy, WARY)
    wait("a watch", lambda: any(map(is_watch, proxy.seen)))
    proxy.freeze_watches()
    node.api.patch(NODE, {"metadata": {"labels": {COUNT: "5"}}})
    agent.break_it("xid", "79", "0")
    wait("the refusal", lambda: counts(agent, "PATCH", "409"))
    wait("the silence to be over", lambda: agent.get_json("/api/v1/labels")["applied"].get(COUNT) == "5")
    assert labels_of(node)[COUNT] == "5"


def test_the_agent_starts_while_there_is_no_api_server(node: Cluster, make_agent: MakeAgent, proxy: ApiProxy) -> None:
    """The kubelet has its devices all the same; once there is a server, no more than one patch brings the labels."""
    token = request_token(node)
    node.api.patch(NODE, {"metadata": {"labels": {COUNT: None}}})  # whoever was here before
    node.begin_outage()
    agent = make_agent(settings=IMPATIENT, api_port=proxy.port, token=token)
    checkpoint = node.layout.device_plugins / "kubelet_internal_checkpoint"
    wait("the kubelet to know", lambda: "nvidia.com/gpu" in checkpoint.read_text() if checkpoint.exists() else False)
    wait("it to be said", lambda: "api_server_away" in agent.read_log(200))
    assert proxy.list_writes() == []
    node.end_outage()
    wait("the labels", lambda: labels_of(node).get(COUNT) == "1", timeout_seconds=90)
    wait("the condition", lambda: condition_of(node).get("status") == "True")
    capacity = "nvidia.com/gpu"
    wait("the capacity", lambda: node.api.read_node()["status"]["capacity"].get(capacity) == "1", timeout_seconds=60)
    assert len([each for each in proxy.list_writes() if is_label_patch(each)]) == 1
    assert len([each for each in proxy.list_writes() if each.path.startswith(f"{NODE}/status")]) <= 1
