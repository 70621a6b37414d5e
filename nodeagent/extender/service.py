"""Answers kube-scheduler, probes and people from the index of the cluster.

Owns the promises: a choice is counted before any wait, written on the pod before the answer, and taken back on failure.
With several replicas a choice is answered only when seen in the API server's order of all choices, and no earlier
choice took the same GPUs; so two replicas never give the same GPU twice.

Refuses to answer filter before the whole cluster was seen once: an empty cluster would be a wrong answer.
"""

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

import anyio
import anyio.lowlevel
from msgspec import json

from nodeagent import __version__
from nodeagent.config.sections.extender import VERBS, Verb
from nodeagent.core.clock import Clock
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.http.messages import TEXT, Answer, Request, Response
from nodeagent.edge.http.queue import RequestQueue
from nodeagent.edge.http.routes import Route, render_problem
from nodeagent.edge.kube.errors import ApiNotFound, KubeError
from nodeagent.edge.kube.fleet import PodAnnotations
from nodeagent.extender.cluster import Hold, number_of
from nodeagent.extender.decide import Choice, Decider, Filtered
from nodeagent.extender.errors import ChoiceNotWritten, PodUnknown, QuestionMalformed, QuestionTooLarge
from nodeagent.extender.explain import explain_pod
from nodeagent.extender.gpu_pod import GpuPod
from nodeagent.extender.metrics import Counts, Tally, render_metrics
from nodeagent.extender.watches import ClusterWatches
from nodeagent.extender.wire import (
    Asked,
    parse_question,
    render_all,
    render_filtered,
    render_refusal,
    render_scores,
)
from nodeagent.model.cluster import ApiCall
from nodeagent.model.scheduling import SeenPod
from nodeagent.rules.fractions.choices import Choice as Written
from nodeagent.rules.fractions.choices import ChosenFraction, render_choice

VERSIONS_MAX: Final = 10_000
"""The most pods whose version after the extender's own write is remembered."""
KNOWN_SECONDS: Final = 0.5
"""The longest wait of a question until its pod is seen."""
YOUNG_NODES: Final = 1000
"""The most nodes in a question beyond the known nodes: new nodes can have come a moment ago."""
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SILENT_SECONDS: Final = 60.0
"""A watch away for longer makes this replica not ready: other replicas may see more."""
_INDEX: Final = {
    "POST /scheduler/predicates": "one node with room, its GPUs chosen and written on the pod (filterVerb: predicates)",
    "POST /scheduler/filter": "all nodes with room; the scheduler chooses, the node decides on the GPUs",
    "POST /scheduler/prioritize": "a score from 0 to 10 for each node",
    "GET /explain?pod=NAMESPACE/NAME": "why a pod is where it is, or nowhere",
    "GET /metrics": "for Prometheus",
    "GET /livez": "whether it runs",
    "GET /readyz": "whether it has seen the cluster and still does",
    "GET /version": "the version",
}
_log = get_logger(component="extender")


class Patience:
    """The waiting times; read at each use."""

    def __init__(self, *, assume_seconds: float, propose_seconds: float, confirm_seconds: float | None) -> None:
        """`confirm_seconds` is `None` without another replica."""
        self.assume_seconds, self.propose_seconds = assume_seconds, propose_seconds
        self.confirm_seconds = confirm_seconds


class Service:
    """The handlers; belongs to the event loop's thread."""

    def __init__(
        self,
        picture: ClusterWatches,
        decider: Decider,
        annotations: PodAnnotations,
        clock: Clock,
        patience: Patience,
        *,
        leads: Callable[[], bool],
        count_requests: Callable[[], Mapping[ApiCall, int]],
        list_certificates: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """`list_certificates` returns the certificates' ends by owner."""
        self._watches, self._cluster, self._decider = picture, picture.cluster, decider
        self._annotations, self._clock, self._patience = annotations, clock, patience
        self._versions: dict[str, str] = {}
        self._leads, self._count_requests, self._list_certificates = leads, count_requests, list_certificates
        self._verbs: Collection[Verb] = ()
        self.tally = Tally()

    def routes(self, queue: RequestQueue, verbs: Collection[Verb]) -> list[Route]:
        """All routes; the scheduler's questions, with only these verbs, wait for one another in the queue."""
        questions: dict[Verb, Callable[[Asked], Awaitable[tuple[str, bytes]]]] = {
            "predicates": self._predicates,
            "filter": self._filter,
            "prioritize": self._prioritize,
        }
        self._verbs = verbs
        return [
            *(
                Route("POST", f"/scheduler/{verb}", self._asked(verb, answer), queue=queue)
                for verb, answer in questions.items()
                if verb in verbs
            ),
            Route("GET", "/explain", self._explain, queue=queue),
            *self.probes(),
            Route("GET", "/version", self._version),
            Route("GET", "/", self._index),
        ]

    def probes(self) -> list[Route]:
        """The routes for clients without the scheduler's certificate: nothing of any pod."""
        return [
            Route("GET", "/metrics", self._metrics),
            Route("GET", "/livez", self._livez),
            Route("GET", "/readyz", self._readyz),
        ]

    def _asked(
        self, verb: str, answer: Callable[[Asked], Awaitable[tuple[str, bytes]]]
    ) -> Callable[[Request], Awaitable[Answer]]:
        """A handler for one verb: reads the question, and counts the result."""

        async def handle(request: Request) -> Answer:
            if not self._watches.is_ready:
                self.tally.note(verb, "not_synced", 0.0)
                detail = "it has not seen all nodes and pods yet; the scheduler asks again"
                return render_problem(503, "the extender has just started", detail, headers={"Retry-After": "1"})
            began = time.perf_counter()
            try:
                most = len(self._cluster.nodes) + YOUNG_NODES
                result, body = await answer(parse_question(request.body, most_nodes=most))
            except QuestionTooLarge as error:
                self.tally.note(verb, "too_large", time.perf_counter() - began)
                return render_problem(413, "request too large", str(error))
            except PodUnknown as error:
                result, body = "unknown_pod", render_refusal(str(error))
            except QuestionMalformed as error:
                result, body = "malformed", render_refusal(str(error))
                if verb == "prioritize":
                    # The answer to prioritize has no place for words.
                    self.tally.note(verb, result, time.perf_counter() - began)
                    return render_problem(400, "malformed request", str(error))
            self.tally.note(verb, result, time.perf_counter() - began)
            return Response(body)

        return handle

    async def _predicates(self, asked: Asked) -> tuple[str, bytes]:
        pod = await self._read_pod(asked.pod)
        if pod is None:
            return "none_of_ours", render_all(asked)
        refusal = self._refuse(asked.pod)
        if refusal:
            return "refused", render_refusal(refusal)
        earlier = self._take_back(pod)
        found = await self._search(pod, asked.names, only_best=True, earlier=earlier)
        if found.chosen is None:
            await self._clear(asked.pod, pod, earlier)
            return "no_room", render_filtered(asked, found)
        try:
            await self._promise(asked.pod, pod, found.chosen, earlier)
        except ChoiceNotWritten as error:
            _log.warning("choice_not_written", pod=pod.title, node=found.chosen.node, reason=error.reason)
            return "not_written", render_refusal(str(error))
        _log.debug("pod_placed", pod=pod.title, node=found.chosen.node)
        return "placed", render_filtered(asked, found)

    async def _filter(self, asked: Asked) -> tuple[str, bytes]:
        pod = await self._read_pod(asked.pod)
        if pod is None:
            return "none_of_ours", render_all(asked)
        refusal = self._refuse(asked.pod)
        if refusal:
            return "refused", render_refusal(refusal)
        self._take_back(pod)
        found = await self._search(pod, asked.names, only_best=False)
        if found.chosen is not None:
            # The likeliest place, so that the next pod is not sent there too before this pod is seen bound.
            until = self._clock.monotonic() + self._patience.propose_seconds
            self._cluster.assume(pod, found.chosen.node, found.chosen.placement.parts, None, until)
        return _name_result(found), render_filtered(asked, found)

    async def _prioritize(self, asked: Asked) -> tuple[str, bytes]:
        pod = self._cluster.read_pod(asked.pod)
        if pod is None:
            return "none_of_ours", render_scores((name, 0) for name in asked.names)
        with self._cluster.aside(pod.uid):
            scores = self._decider.prioritize(pod, asked.names)
        return "scored", render_scores(scores)

    async def _read_pod(self, asked: SeenPod) -> GpuPod | None:
        """The pod as stored in the API server, whatever the question's copy says; `None` for a pod without fractions.

        Raises:
            PodUnknown: No pod of this name; the scheduler's watch may be ahead of the extender's, but not for long.
        """
        known = self._cluster.pods.get(asked.uid)
        if known is None:
            pod = self._cluster.read_pod(asked)
            if pod is None or pod.demand is None:
                return pod
            with anyio.move_on_after(KNOWN_SECONDS):
                await self._watches.wait_seen(asked.uid, "")
            known = self._cluster.pods.get(asked.uid)
        if known is None or (known.namespace, known.name) != (asked.namespace, asked.name):
            raise PodUnknown(f"{asked.namespace}/{asked.name}")
        return known

    async def _search(
        self, pod: GpuPod, names: Sequence[str], *, only_best: bool, earlier: Hold | None = None
    ) -> Filtered:
        """The nodes with room; other questions run between tries, but never between a choice and its answer."""
        search = self._decider.search(pod, names, only_best=only_best)
        while (found := search.go_on()) is None:
            # The earlier choice counts for other pods' questions, not for the pod's own.
            if earlier is not None:
                self._cluster.restore(earlier)
            await anyio.lowlevel.checkpoint()
            self._cluster.release(pod.uid)
        return found

    def _refuse(self, pod: SeenPod) -> str:
        """Why this pod is not to be scheduled at all."""
        known = self._cluster.pods.get(pod.uid)
        node = pod.node or (known.node if known is not None else "")
        return f"pod {pod.namespace}/{pod.name} is bound to {node} already" if node else ""

    def _take_back(self, pod: GpuPod) -> Hold | None:
        """Take back the earlier choice of a pod in a repeated question, while the pod is decided anew."""
        self._cluster.expire(self._clock.monotonic())
        earlier = self._cluster.holds.get(pod.uid)
        self._cluster.release(pod.uid)
        return earlier

    async def _promise(self, seen: SeenPod, pod: GpuPod, choice: Choice, earlier: Hold | None) -> None:
        """Count the choice, write it, and confirm that no earlier choice took the same."""
        written = self._render(pod, choice)
        until = self._clock.monotonic() + self._patience.assume_seconds
        self._cluster.assume(pod, choice.node, choice.placement.parts, written, until)
        if earlier is not None:
            self._cluster.keep_earlier(earlier)
        try:
            version = await self._write(seen, pod, earlier, written)
        except KubeError as error:
            raise ChoiceNotWritten(pod.title, str(error)) from error
        await self._confirm(pod, choice, version)

    async def _write(self, seen: SeenPod, pod: GpuPod, earlier: Hold | None, written: Mapping[str, str]) -> str:
        """Write the choice on the pod, without remains of an earlier choice; the pod's new version.

        After a failure the earlier choice counts on: the scheduler may have bound the pod by it, and only the watch
        reports the binding. The later choice is never answered then, so no pod is bound by it.

        Raises:
            KubeError: Not written, or unknown whether written.
        """
        before = dict.fromkeys([*pod.choice, *(earlier.written or () if earlier is not None else ())], None)
        try:
            version = await self._annotations.write(seen, {**before, **written}, at_version=self._find_version(seen))
        except BaseException as error:
            self._cluster.drop_earlier(pod.uid)
            self._cluster.release(pod.uid)
            if earlier is not None and not isinstance(error, ApiNotFound):
                self._cluster.restore(earlier)
            raise
        self._cluster.drop_earlier(pod.uid)
        self._note_version(seen, version)
        return version

    def _find_version(self, seen: SeenPod) -> str:
        """The newest known version of a pod, with the extender's own writes.

        A pod bound since, by an answer that the scheduler never heard, has another version by now, and keeps the choice
        of its binding.
        """
        known = self._cluster.pods.get(seen.uid)
        versions = (self._versions.get(seen.uid, ""), "" if known is None else known.version, seen.version)
        return max(versions, key=number_of)

    def _note_version(self, seen: SeenPod, version: str) -> None:
        """Remember the pod's version; a forgotten version costs a repeated question."""
        if len(self._versions) >= VERSIONS_MAX:
            self._versions.clear()
        self._versions[seen.uid] = version

    async def _confirm(self, pod: GpuPod, choice: Choice, version: str) -> None:
        """Check that the choices of all replicas together still fit."""
        seconds = self._patience.confirm_seconds
        if seconds is None:
            return
        with anyio.move_on_after(seconds) as scope:
            await self._watches.wait_seen(pod.uid, version)
        if scope.cancelled_caught:
            self._cluster.release(pod.uid)
            raise ChoiceNotWritten(pod.title, f"it was written and not seen again within {seconds:g} s")
        with self._cluster.aside(pod.uid):
            is_alone = self._decider.can_keep(pod, choice)
        if not is_alone:
            self._cluster.release(pod.uid)
            raise ChoiceNotWritten(pod.title, f"another replica chose the same on {choice.node} at the same time")

    async def _clear(self, seen: SeenPod, pod: GpuPod, earlier: Hold | None) -> None:
        """Take an earlier choice off a pod without room; the choice would count with other replicas."""
        if earlier is not None:
            self._cluster.restore(earlier)
        elif not pod.choice:
            return
        try:
            await self._write(seen, pod, earlier, {})
        except KubeError as error:
            _log.warning("choice_not_cleared", pod=pod.title, reason=str(error))
        else:
            self._cluster.release(pod.uid)

    def _render(self, pod: GpuPod, choice: Choice) -> dict[str, str]:
        account = self._cluster.find_space(choice.node, pod.device_class)
        assert account is not None
        assert pod.demand is not None
        profile = self._cluster.profiles.find(pod.demand.profile)
        assert profile is not None
        indexes = {room.gpu: room.index for room in account.space.rooms}
        fractions = {
            number: tuple(ChosenFraction(index=indexes[fraction.gpu], part=fraction) for fraction in placement.shares)
            for number, placement in choice.placement.placements.items()
        }
        written = Written(
            node=choice.node,
            time_nanoseconds=int(self._clock.wall() * 1e9),
            parts=fractions,
            containers=pod.containers,
            init_containers=pod.init_containers,
            has_uuids=account.published.has_uuids,
        )
        return self._cluster.digests.sign(pod, profile, render_choice(profile, written))

    async def _explain(self, request: Request) -> Answer:
        title = request.query.get("pod", "")
        if title.count("/") != 1:
            return render_problem(400, "which pod", "ask for /explain?pod=NAMESPACE/NAME")
        pod = self._cluster.find_pod(title)
        if pod is None:
            names = "the names in extender.profiles and extender.classes"
            detail = f"it has finished, asks for no part of a GPU by {names}, or for what cannot be"
            return render_problem(404, f"no pod {title} that is looked at", detail)
        return Response(json.format(json.encode(explain_pod(self._cluster, self._decider, pod))) + b"\n")

    async def _metrics(self, _request: Request) -> Answer:
        cluster = self._cluster
        counts = Counts(
            nodes=sum(entry.published is not None or bool(entry.classes) for entry in cluster.nodes.values()),
            pods=len(cluster.pods),
            promises=len(cluster.holds),
            expired=cluster.expired,
            relists=self._watches.relists,
            silent_seconds=self._watches.silent_seconds,
            is_synced=self._watches.is_ready,
            leads=self._leads(),
            foreign=cluster.foreign,
            keys=len(cluster.digests.keys),
            certificates=self._list_certificates(),
        )
        body = render_metrics(self.tally, counts, self._count_requests(), __version__)
        return Response(body, content_type=METRICS_TYPE)

    async def _livez(self, _request: Request) -> Answer:
        return Response(b"ok\n", content_type=TEXT)

    async def _readyz(self, _request: Request) -> Answer:
        if not self._watches.is_ready:
            return Response(b"[-] not all nodes and pods were listed and counted yet\n", 503, TEXT)
        silent = self._watches.silent_seconds
        if silent > SILENT_SECONDS:
            return Response(f"[-] a watch has been away for {silent:.0f} s\n".encode(), 503, TEXT)
        return Response(b"[+] the cluster is seen\n", content_type=TEXT)

    async def _version(self, _request: Request) -> Answer:
        return Response(json.encode({"version": __version__}) + b"\n")

    async def _index(self, _request: Request) -> Answer:
        off = {f"POST /scheduler/{verb}" for verb in VERBS if verb not in self._verbs}
        return Response(json.format(json.encode({key: text for key, text in _INDEX.items() if key not in off})) + b"\n")


def _name_result(found: Filtered) -> str:
    return "room" if found.fitting else "no_room"
