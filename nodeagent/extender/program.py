"""The extender from start to stop: settings, API server, index, answers.

Owns the wiring of this program, as `app` does for the agent's; nothing of a node's is here: no driver, no GPU, no root.
"""

import gc
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from random import Random
from typing import NamedTuple

import anyio

from nodeagent.config.schema import Settings
from nodeagent.core.clock import SystemClock
from nodeagent.core.life.shutdown import ExitWatchdog, Shutdown
from nodeagent.core.log.lines import configure_logging, get_logger, report_repeats
from nodeagent.edge.http.access import Access, open_access
from nodeagent.edge.http.capacity import decide_capacity, read_descriptor_limit
from nodeagent.edge.http.hosts import AllowedHosts
from nodeagent.edge.http.listeners import open_tcp_listener
from nodeagent.edge.http.queue import RequestQueue
from nodeagent.edge.http.routes import Route, Routes
from nodeagent.edge.http.server import HttpServer, ServerBounds, ServerLimits
from nodeagent.edge.kube.client import ClientSettings, KubeClient
from nodeagent.edge.kube.credentials import Credentials, find_credentials
from nodeagent.edge.kube.fleet import PodAnnotations, watch_nodes, watch_pods
from nodeagent.edge.kube.lease import KubeLease
from nodeagent.extender.cluster import Cluster
from nodeagent.extender.decide import Decider
from nodeagent.extender.errors import SetupInvalid
from nodeagent.extender.gpu_pod import GpuPod
from nodeagent.extender.replica import Replica
from nodeagent.extender.service import Patience, Service
from nodeagent.extender.trust.digest import ChoiceDigests
from nodeagent.extender.trust.files import Certificates, KeyFile, watch_files
from nodeagent.extender.watches import ClusterWatches
from nodeagent.rules.fractions.demands import Profiles
from nodeagent.rules.fractions.profiles import plan_class_profile, plan_cores, plan_counted_profiles


def plan_profiles(settings: Settings) -> Profiles:
    """The resource names of fractions in this cluster, the same as in the nodes' configuration."""
    names, section = settings.extender.profiles, settings.fractions
    return Profiles(
        cores=plan_cores(section) if "tencent" in names else None,
        shares=plan_counted_profiles(section) if "hami" in names else None,
        classes=tuple(plan_class_profile(section, resource) for resource in settings.extender.classes),
        enforcement=section.enforcement_annotation,
    )


def plan_patience(settings: Settings) -> Patience:
    """The waiting times; a single replica needs no confirmation."""
    section = settings.extender
    return Patience(
        assume_seconds=section.assume_seconds,
        propose_seconds=section.propose_seconds,
        confirm_seconds=section.confirm_seconds if section.leader_election else None,
    )


TELL_REPEATS_SECONDS = 10.0
QUEUE_SECONDS = 5.0
"""kube-scheduler's default timeout for an extender."""
YOUNG_OBJECTS = 50_000
"""The number of new objects that starts a collection; Python's default is 700."""
_log = get_logger(component="extender")


class ExtenderPlan(NamedTuple):
    """The inputs of one run."""

    settings: Settings
    environ: Mapping[str, str]
    announce: Callable[[str], None] = lambda _url: None
    """Called with the address, once questions are taken."""


def run_extender(plan: ExtenderPlan) -> None:
    """Run until a signal to stop.

    Raises:
        SetupInvalid: There is no API server to ask.
        HttpError: The address cannot be opened, or TLS not set up as configured.
    """
    settings = plan.settings
    configure_logging(form=settings.log.format, level=settings.log.level)
    credentials = find_credentials(settings.kubernetes.kubeconfig, plan.environ)
    if credentials is None:
        raise SetupInvalid(
            "cannot reach the cluster: there is neither kubernetes.kubeconfig nor a pod's service account:"
            " run the extender in the cluster or set kubernetes.kubeconfig"
        )
    try:
        anyio.run(_run, plan, credentials)
    finally:
        report_repeats(everything=True)


async def _run(plan: ExtenderPlan, credentials: Credentials) -> None:
    settings = plan.settings
    access = _open_access(settings)
    keys, certificates = KeyFile(settings.extender.choice_keys_file), Certificates(access, SystemClock().wall)
    digests = keys.open()
    watchdog = ExitWatchdog(settings.shutdown.total_seconds)
    with ExitStack() as opened:
        listener, probes = _open_listeners(settings, opened)
        client = KubeClient(credentials, lambda: _plan_client(settings))
        try:
            async with anyio.create_task_group() as tasks:
                stop = tasks.cancel_scope.cancel
                with Shutdown(on_stop=stop, on_force=stop, on_reload=_refuse_reload, watchdog=watchdog) as shutdown:
                    await tasks.start(shutdown.run)
                    picture, replica, service = await _compose(settings, client, certificates)
                    cluster = picture.cluster
                    cluster.use_digests(digests, 0.0)
                    use = partial(_use_digests, cluster)
                    tasks.start_soon(watch_files, keys, certificates, use, name="files")
                    tasks.start_soon(picture.run, name="picture")
                    tasks.start_soon(replica.run, name="replica")
                    tasks.start_soon(_report_repeats, name="repeated log lines")
                    tasks.start_soon(_report_ready, picture, name="ready")
                    async with AsyncExitStack() as served:
                        for server, place in _make_servers(settings, service, access, listener, probes):
                            await served.enter_async_context(server.serving(place))
                        url = _name_url(listener, is_secure=access is not None and access.context is not None)
                        aside = {} if probes is None else {"probes": _name_url(probes, is_secure=False)}
                        _log.info(
                            "extender_started",
                            url=url,
                            profiles=[*settings.extender.profiles, *settings.extender.classes],
                            **aside,
                        )
                        plan.announce(url)
                        await anyio.sleep_forever()
        finally:
            with anyio.move_on_after(1, shield=True):
                await client.aclose()
    _log.info("extender_stopped")


def _open_listeners(settings: Settings, opened: ExitStack) -> tuple[socket.socket, socket.socket | None]:
    """The listener for the scheduler, and the listener for probes, where configured apart."""
    main, aside = settings.extender.listen, settings.extender.probe_listen
    listener = opened.enter_context(open_tcp_listener(main.host, main.port, key="extender.listen"))
    if aside is None:
        return listener, None
    return listener, opened.enter_context(open_tcp_listener(aside.host, aside.port, key="extender.probe_listen"))


def _name_url(listener: socket.socket, *, is_secure: bool) -> str:
    host, port = listener.getsockname()[:2]
    scheme = "https" if is_secure else "http"
    return f"{scheme}://[{host}]:{port}/" if ":" in host else f"{scheme}://{host}:{port}/"


def _use_digests(cluster: Cluster, digests: ChoiceDigests) -> None:
    cluster.use_digests(digests, SystemClock().monotonic())


def _report_foreign(pod: GpuPod) -> None:
    reason = "no extender of this cluster made the choice on this pod, which holds nothing"
    _log.warning("choice_not_ours", pod=pod.title, node=pod.chosen_node, reason=reason)


async def _compose(
    settings: Settings, client: KubeClient, certificates: Certificates
) -> tuple[ClusterWatches, Replica, Service]:
    section, clock = settings.extender, SystemClock()
    spread = Random()  # noqa: S311 - spreads load, keeps no secret
    silence = settings.kubernetes.watch_silence_seconds
    cluster = Cluster(
        plan_profiles(settings),
        assume_seconds=section.assume_seconds,
        linger_seconds=section.linger_seconds,
        on_foreign=_report_foreign,
    )
    picture = ClusterWatches(
        cluster,
        watch_nodes(client, spread, silence_seconds=silence),
        watch_pods(client, spread, silence_seconds=silence),
        spread,
        clock.monotonic,
        settle_heap,
    )
    annotations = PodAnnotations(client)
    lease = None
    if section.leader_election:
        namespace = settings.kubernetes.namespace or await client.read_namespace()
        lease = KubeLease(client, namespace, section.lease_name, clock)
    me = f"{settings.kubernetes.pod_name or os.uname().nodename}_{secrets.token_hex(4)}"
    replica = Replica(lease, me, section.lease_seconds, cluster, annotations, clock.monotonic)
    service = Service(
        picture,
        Decider(cluster, section.policy),
        annotations,
        clock,
        plan_patience(settings),
        leads=lambda: replica.leads,
        count_requests=lambda: client.counts,
        list_certificates=certificates.list_ends,
    )
    return picture, replica, service


def _make_servers(
    settings: Settings, service: Service, access: Access | None, listener: socket.socket, probes: socket.socket | None
) -> Sequence[tuple[HttpServer, socket.socket]]:
    http, section = settings.http, settings.extender
    limits = ServerLimits(
        read_seconds=http.read_timeout_seconds,
        write_seconds=http.write_timeout_seconds,
        body_bytes_max=section.max_request_bytes,
    )
    # Questions are answered one at a time but for the writing of choices; their bodies take the memory.
    queue = RequestQueue(lambda: section.max_concurrent_requests, QUEUE_SECONDS)
    bodies = RequestQueue(lambda: section.max_request_bytes, QUEUE_SECONDS)
    capacity = decide_capacity(read_descriptor_limit(), http.max_connections, http.max_connections_per_address)
    hosts = AllowedHosts([os.uname().nodename], http.allowed_hosts)

    def make(routes: Sequence[Route], allowed: Access | None) -> HttpServer:
        return HttpServer(
            Routes(routes),
            on_error=lambda request, error: _log.exception("request_failed", error, request=request),
            on_exhausted=lambda error: _log.error("connections_exhausted", reason=str(error)),
            bounds=ServerBounds(lambda: limits, capacity, bodies),
            hosts=lambda: hosts,
            access=allowed,
        )

    servers = [(make(service.routes(queue, section.verbs), access), listener)]
    if probes is not None:
        servers.append((make(service.probes(), None), probes))
    return servers


def _open_access(settings: Settings) -> Access | None:
    path = settings.extender.web_config_file
    if path is None:
        return None
    return open_access(path, on_error=lambda reason: _log.error("certificates_not_replaced", reason=reason))


def _plan_client(settings: Settings) -> ClientSettings:
    section = settings.extender
    return ClientSettings(
        settings.kubernetes.request_timeout_seconds, section.requests_per_second, section.request_burst
    )


async def _report_ready(picture: ClusterWatches) -> None:
    await picture.wait_ready()
    _log.info("extender_ready", nodes=len(picture.cluster.nodes), pods=len(picture.cluster.pods))


def settle_heap() -> None:
    """Freeze the listed objects: they live long, and a collection over them held up one answer in fifty.

    An answer makes as many objects as there are nodes, all freed with the answer: a low threshold would scan each.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)


async def _report_repeats() -> None:
    while True:
        await anyio.sleep(TELL_REPEATS_SECONDS)
        report_repeats()


def _refuse_reload() -> None:
    _log.warning("reload_refused", reason="the extender reads its settings when it starts: start it anew")
