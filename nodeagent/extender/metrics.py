"""The extender's metrics in the Prometheus text format; pure. Tests hold the text against prometheus-client's parser.

Owns the metrics' names. Scraped a few times a minute, so nothing here is cached between scrapes.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, NamedTuple

from nodeagent.model.cluster import ApiCall

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Durations:
    """The durations of one kind of answer."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def note(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds


class Tally:
    """Answers and their durations since the start."""

    def __init__(self) -> None:
        self.durations: dict[str, Durations] = {}
        self.answers: Counter[tuple[str, str]] = Counter()
        """Answers by verb and result."""

    def note(self, verb: str, result: str, seconds: float) -> None:
        """Count an answered question."""
        self.answers[verb, result] += 1
        self.durations.setdefault(verb, Durations()).note(seconds)


class Counts(NamedTuple):
    """The present numbers for gauges."""

    nodes: int
    pods: int
    promises: int
    expired: int
    relists: int
    silent_seconds: float
    is_synced: bool
    leads: bool
    foreign: int = 0
    keys: int = 0
    certificates: Mapping[str, float] = {}
    """The certificates' ends by owner, in seconds since 1970."""


def render_metrics(tally: Tally, counts: Counts, requests: Mapping[ApiCall, int], version: str) -> bytes:
    """The text of all metrics."""
    return "".join(f"{line}\n" for line in _list_lines(tally, counts, requests, version)).encode()


def _list_lines(tally: Tally, counts: Counts, requests: Mapping[ApiCall, int], version: str) -> Iterator[str]:
    yield from _family("build_info", "gauge", "The version of the extender.", [({"version": version}, 1)])
    answers = [({"verb": verb, "result": result}, count) for (verb, result), count in sorted(tally.answers.items())]
    yield from _family("answers_total", "counter", "Questions of the scheduler, by what came of them.", answers)
    yield from _histogram(tally.durations)
    for name, text, value in (
        ("nodes", "Nodes of the cluster that give out parts of GPUs.", counts.nodes),
        ("pods", "Pods that ask for parts of GPUs and have not finished.", counts.pods),
        ("promises", "Pods that were chosen for and are not bound yet.", counts.promises),
        ("silent_seconds", "For how long a watch has been away; 0 while both are there.", counts.silent_seconds),
        ("synced", "Whether everything was listed once.", counts.is_synced),
        ("leader", "Whether this replica holds the Lease.", counts.leads),
        ("choice_keys", "Keys that prove whose choices are; without any, each choice counts.", counts.keys),
    ):
        yield from _family(name, "gauge", text, [({}, value)])
    yield from _family("expired_total", "counter", "Choices that came to nothing.", [({}, counts.expired)])
    text = "Pods with a choice that no extender made; such a choice holds nothing."
    yield from _family("foreign_choices_total", "counter", text, [({}, counts.foreign)])
    ends = [({"of": owner}, when) for owner, when in sorted(counts.certificates.items())]
    text = "When certificates end: the extender's own, and that of the client that came last."
    yield from _family("certificate_expires_timestamp_seconds", "gauge", text, ends)
    yield from _family("relists_total", "counter", "Whole lists that were read.", [({}, counts.relists)])
    calls = [({"verb": call.verb, "outcome": call.outcome}, count) for call, count in sorted_calls(requests)]
    yield from _family("api_requests_total", "counter", "Requests to the API server.", calls)


def sorted_calls(requests: Mapping[ApiCall, int]) -> list[tuple[ApiCall, int]]:
    """The API calls in a stable order."""
    return sorted(requests.items(), key=lambda each: (each[0].verb, each[0].outcome))


def _family(name: str, kind: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> Iterator[str]:
    full = f"nodeagent_extender_{name}"
    yield f"# HELP {full} {text}"
    yield f"# TYPE {full} {kind}"
    for labels, value in samples:
        yield _sample(full, labels, value)


def _histogram(durations: Mapping[str, Durations]) -> Iterator[str]:
    full = "nodeagent_extender_answer_seconds"
    yield f"# HELP {full} How long answers took, reading and writing the request left out."
    yield f"# TYPE {full} histogram"
    for verb, one in sorted(durations.items()):
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), accumulate(one.counts), strict=True):
            yield _sample(f"{full}_bucket", {"verb": verb, "le": bound}, count)
        yield _sample(f"{full}_sum", {"verb": verb}, one.sum)
        yield _sample(f"{full}_count", {"verb": verb}, sum(one.counts))


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inner = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
    return f"{name}{{{inner}}} {float(value)!r}" if inner else f"{name} {float(value)!r}"
