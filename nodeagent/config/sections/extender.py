"""`extender`: the scheduler's extender, run by `nodeagent extender`; the agent on a node ignores the section."""

from pathlib import Path
from typing import Final, Literal, TypeAlias

from nodeagent.config.compound import ListOf
from nodeagent.config.kinds import AbsolutePath, Address, Flag, ListenAddress, Maybe, Number, OneOf, Text, Whole
from nodeagent.config.knobs import Section, knob
from nodeagent.config.sections.fractions import QUALIFIED, ProfileName

NodePolicy: TypeAlias = Literal["pack", "spread"]
Verb: TypeAlias = Literal["predicates", "filter", "prioritize"]
VERBS: Final[tuple[Verb, ...]] = ("predicates", "filter", "prioritize")
LEASE_NAME = Text("the name of a Lease", r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", 253)


class ExtenderSettings(Section):
    """The scheduler's extender (`nodeagent extender`): chooses node and GPUs for pods with fractions of GPUs."""

    listen: Address = knob(
        ListenAddress(),
        Address("127.0.0.1", 3456),
        "address and port; an empty host is every interface",
        "the address of gpu-admission",
    )
    web_config_file: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "TLS, client certificates and basic authentication, in the exporter-toolkit format; health checks and metrics"
        " are under it too",
        "plain HTTP on loopback needs none",
    )
    probe_listen: Address | None = knob(
        Maybe(ListenAddress()),
        None,
        "address and port at which health checks and metrics alone are served, without TLS, beside `listen`: for a"
        " kubelet and a Prometheus that have no certificate",
        "where web_config_file asks for no certificate, `listen` serves them as well",
    )
    choice_keys_file: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "a file of keys, one a line, by which the extender recognises its own choices on pods:"
        " the first key signs, every key is accepted, and a changed file is read while the"
        " extender runs; without the file a choice counts whoever wrote the choice",
        "the chart makes one; all replicas need the same",
    )
    profiles: tuple[ProfileName, ...] = knob(
        ListOf(OneOf[ProfileName](("tencent", "hami"))),
        ("tencent",),
        "by which names pods ask for parts, spelt as in `fractions`: tencent for hundredths and blocks of memory, hami"
        " for shares; a pod that asks by others passes every filter",
        "where nvidia.com/gpu counts whole GPUs, it must not be taken for shares",
    )
    classes: tuple[str, ...] = knob(
        ListOf(QUALIFIED),
        (),
        "the resources of `devices.classes` that are divisible on nodes of this cluster, such as amd.com/gpu: pods"
        " that ask for parts of them by <resource>-core and <resource>-memory are placed too",
        "the driver's GPUs alone",
    )
    verbs: tuple[Verb, ...] = knob(
        ListOf(OneOf[Verb](VERBS)),
        ("predicates",),
        "the verbs that kube-scheduler is told of as `filterVerb` and `prioritizeVerb`; questions of others get 404",
        "what the scheduler does not ask, only strangers do",
    )
    policy: NodePolicy = knob(
        OneOf[NodePolicy](("pack", "spread")),
        "pack",
        "which nodes come first: pack leaves the least on a GPU, spread fills the emptiest; a pod may say otherwise by"
        " hami.io/node-scheduler-policy",
        "whole nodes stay free for pods that need whole nodes",
    )
    assume_seconds: float = knob(
        Number(1, 86400),
        600.0,
        "how long a choice counts for a pod that is not bound",
        "as long as kube-scheduler waits for volumes before it binds; a pod that is deleted before is free at once",
    )
    linger_seconds: float = knob(
        Number(0, 3600),
        30.0,
        "how long a pod counts on its node that was deleted before it had finished, as by force",
        "containers run on for a moment after a pod's end, and the node frees the fractions after"
        " two looks ten seconds apart",
    )
    propose_seconds: float = knob(
        Number(1, 3600),
        10.0,
        "how long the best node counts after the verb filter, where the scheduler chooses itself",
        "long enough for the binding to be seen",
    )
    leader_election: bool = knob(
        Flag(),
        default=True,
        what="share the cluster with other replicas: a choice is answered once it is seen to be the first, and the"
        " holder of a Lease takes choices off pods that came to nothing",
        why="two replicas without it may give the same GPU twice",
    )
    lease_name: str = knob(
        LEASE_NAME, "nodeagent-extender", "the Lease, in `kubernetes.namespace`", "the program's name"
    )
    lease_seconds: float = knob(
        Number(2, 3600), 15.0, "how long a Lease is held without being renewed", "as kube-scheduler's own"
    )
    confirm_seconds: float = knob(
        Number(0.1, 60),
        3.0,
        "how long a choice may take to be seen in the API server, with several replicas",
        "kube-scheduler waits 5 seconds for an extender unless it is told otherwise",
    )
    requests_per_second: float = knob(
        Number(1, 10000), 100.0, "requests to the API server in the long run", "each scheduled pod costs one request"
    )
    request_burst: int = knob(Whole(1, 10000), 200, "requests to the API server at once", "a deployment scaled up")
    max_request_bytes: int = knob(
        Whole(1024, 1 << 30),
        64 << 20,
        "longest request body, and as much as all bodies together may hold in memory; further ones wait",
        "without nodeCacheCapable kube-scheduler sends all nodes whole, some ten kilobytes each",
    )
    max_concurrent_requests: int = knob(
        Whole(1, 1024),
        4,
        "questions answered at a time; further ones wait in the order of their coming, for 5 seconds at most",
        "kube-scheduler asks one question after the other, and the time goes into writing choices",
    )
