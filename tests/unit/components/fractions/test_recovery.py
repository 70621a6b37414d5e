"""The table of recovery, row by row, and the laws that no row may break."""

from itertools import product

import pytest

from nodeagent.components.fractions.recovery import Action, Container, Evidence, Kubelet, Own, Process, decide_recovery

J, K, P, C, A = Own, Kubelet, Process, Container, Action
ANY_PROCESS = tuple(Process)


def decide(own: Own, kubelet: Kubelet, process: Process, container: Container = C.ABSENT, *, looks: int = 2) -> Action:
    """By the word of so many looks, ten seconds apart."""
    since = 100.0 if looks > 1 else None
    evidence = Evidence(
        own=own, kubelet=kubelet, process=process, container=container, over_since_seconds=since, now_seconds=110.0
    )
    return decide_recovery(evidence).action


TABLE = {
    "normal": [(J.BOUND, K.YES, each, A.KEEP) for each in ANY_PROCESS],
    "killed before PreStart": [(J.RESERVED, K.YES, P.NONE, A.KEEP)],
    "the answer never arrived": [(J.RESERVED, K.NO, P.NONE, A.ROLL_BACK)],
    "pod ended while we were down": [(J.BOUND, K.NO, P.NONE, A.RELEASE)],
    "kubelet forgot, or a process outlives its pod": [
        (J.BOUND, K.NO, P.CONTAINER, A.ORPHAN),
        (J.BOUND, K.NO, P.HOST, A.ORPHAN),
        (J.RESERVED, K.NO, P.CONTAINER, A.ORPHAN),
    ],
    "our journal was lost": [(J.NONE, K.YES, each, A.ADOPT) for each in ANY_PROCESS],
    "our journal lost the binding alone": [(J.RESERVED, K.YES, P.CONTAINER, A.ADOPT)],
    "a foreign pod or plugin": [(J.NONE, K.NO, P.CONTAINER, A.ACCOUNT)],
    "a host process": [(J.NONE, K.NO, P.HOST, A.ACCOUNT)],
    "the kubelet is unreadable": [(own, K.UNREADABLE, each, A.FREEZE) for own in Own for each in ANY_PROCESS],
    "NVML dead": [
        (J.BOUND, K.NO, P.UNKNOWN, A.KEEP),
        (J.RESERVED, K.NO, P.UNKNOWN, A.KEEP),
        (J.RESERVED, K.YES, P.UNKNOWN, A.KEEP),
        (J.NONE, K.NO, P.UNKNOWN, A.NOTHING),
    ],
    "nothing at all": [(J.NONE, K.NO, P.NONE, A.NOTHING)],
}


@pytest.mark.parametrize("row", TABLE)
def test_the_table(row: str) -> None:
    """Each row by its meaning, at the second of two looks that agree."""
    for own, kubelet, process, expected in TABLE[row]:
        assert decide(own, kubelet, process) is expected, (own, kubelet, process)


def test_a_host_process_on_the_list_is_left_alone() -> None:
    """The other half of that row."""
    evidence = Evidence(own=J.NONE, kubelet=K.NO, process=P.HOST, is_ignored=True)
    assert decide_recovery(evidence).action is A.IGNORE


@pytest.mark.parametrize(
    ("container", "expected"), [(C.ABSENT, A.RELEASE), (C.PRESENT, A.ORPHAN), (C.UNREADABLE, A.KEEP)]
)
def test_a_binding_ends_with_its_container(container: Container, expected: Action) -> None:
    """A container without a process has the GPU still; a runtime that does not answer says nothing."""
    assert decide(J.BOUND, K.NO, P.NONE, container) is expected


@pytest.mark.parametrize(
    ("since", "expected"), [(None, A.POLL_RETRY), (100.1, A.POLL_RETRY), (100.0, A.RELEASE), (0.0, A.RELEASE)]
)
def test_two_looks_lie_ten_seconds_apart(since: float | None, expected: Action) -> None:
    """A look that follows at once says nothing new."""
    evidence = Evidence(own=J.BOUND, kubelet=K.NO, over_since_seconds=since, now_seconds=110.0)
    assert decide_recovery(evidence).action is expected
    assert decide_recovery(evidence).reason == "kubelet, processes and containers agree that it is over"


@pytest.mark.parametrize(
    ("kubelet", "process", "container", "expected"),
    [
        (K.NO, P.NONE, C.ABSENT, A.RELEASE),
        (K.NO, P.NONE, C.PRESENT, A.ORPHAN),
        (K.NO, P.NONE, C.UNREADABLE, A.KEEP),
        (K.NO, P.CONTAINER, C.ABSENT, A.ORPHAN),
        (K.NO, P.UNKNOWN, C.ABSENT, A.KEEP),
        (K.YES, P.NONE, C.ABSENT, A.KEEP),
        (K.UNREADABLE, P.NONE, C.ABSENT, A.FREEZE),
    ],
)
def test_a_pod_that_has_finished_needs_no_second_look(
    kubelet: Kubelet, process: Process, container: Container, expected: Action
) -> None:
    """It never runs again; but that alone frees nothing that any other still sees."""
    evidence = Evidence(own=J.BOUND, kubelet=kubelet, process=process, container=container, is_finished=True)
    assert decide_recovery(evidence).action is expected


def test_no_row_breaks_the_laws() -> None:
    """All that can be seen at once: what any source holds is kept, and one look never ends anything."""
    for own, kubelet, process, container in product(Own, Kubelet, Process, Container):
        action = decide(own, kubelet, process, container)
        if action in {A.RELEASE, A.ROLL_BACK}:
            assert (kubelet, process) == (K.NO, P.NONE)
            assert decide(own, kubelet, process, container, looks=1) is A.POLL_RETRY
            assert action is A.ROLL_BACK or container is C.ABSENT
        if kubelet is K.YES:
            assert action in {A.KEEP, A.ADOPT}
        if own is not J.NONE:
            assert action not in {A.NOTHING, A.ACCOUNT, A.IGNORE}
