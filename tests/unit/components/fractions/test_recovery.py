"""The table of recovery, row by row, and the laws that no row may break."""

from itertools import product

import pytest

from nodeagent.components.fractions.recovery import Action, Container, Evidence, Kubelet, Process, decide_recovery

K, P, C, A = Kubelet, Process, Container, Action


def decide(kubelet: Kubelet, process: Process, container: Container = C.ABSENT, *, looks: int = 2) -> Action:
    """By the word of so many looks, ten seconds apart."""
    since = 100.0 if looks > 1 else None
    evidence = Evidence(
        kubelet=kubelet, process=process, container=container, over_since_seconds=since, now_seconds=110.0
    )
    return decide_recovery(evidence).action


TABLE = {
    "normal": [(K.YES, each, A.KEEP) for each in Process],
    "pod ended while we were down": [(K.NO, P.NONE, A.RELEASE)],
    "kubelet forgot, or a process outlives its pod": [(K.NO, P.CONTAINER, A.ORPHAN)],
    "the kubelet is unreadable": [(K.UNREADABLE, each, A.KEEP) for each in Process],
    "NVML dead": [(K.NO, P.UNKNOWN, A.KEEP)],
}


@pytest.mark.parametrize("row", TABLE)
def test_the_table(row: str) -> None:
    """Each row by its meaning, at the second of two looks that agree."""
    for kubelet, process, expected in TABLE[row]:
        assert decide(kubelet, process) is expected, (kubelet, process)


@pytest.mark.parametrize(
    ("kubelet", "since", "expected"),
    [(K.YES, 0.0, A.KEEP), (K.UNREADABLE, 0.0, A.KEEP), (K.NO, 0.0, A.RELEASE), (K.NO, None, A.POLL_RETRY)],
)
def test_a_reservation_is_taken_back_where_the_answer_never_arrived(
    kubelet: Kubelet, since: float | None, expected: Action
) -> None:
    """Not before a second look, and not while the kubelet holds the ids or cannot be asked."""
    evidence = Evidence(is_bound=False, kubelet=kubelet, over_since_seconds=since, now_seconds=110.0)
    assert decide_recovery(evidence).action is expected


@pytest.mark.parametrize(
    ("container", "expected"), [(C.ABSENT, A.RELEASE), (C.PRESENT, A.ORPHAN), (C.UNREADABLE, A.KEEP)]
)
def test_a_binding_ends_with_its_container(container: Container, expected: Action) -> None:
    """A container without a process has the GPU still; a runtime that does not answer says nothing."""
    assert decide(K.NO, P.NONE, container) is expected


@pytest.mark.parametrize(
    ("since", "expected"), [(None, A.POLL_RETRY), (100.1, A.POLL_RETRY), (100.0, A.RELEASE), (0.0, A.RELEASE)]
)
def test_two_looks_lie_ten_seconds_apart(since: float | None, expected: Action) -> None:
    """A look that follows at once says nothing new."""
    evidence = Evidence(kubelet=K.NO, over_since_seconds=since, now_seconds=110.0)
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
        (K.UNREADABLE, P.NONE, C.ABSENT, A.KEEP),
    ],
)
def test_a_pod_that_has_finished_needs_no_second_look(
    kubelet: Kubelet, process: Process, container: Container, expected: Action
) -> None:
    """It never runs again; but that alone frees nothing that any other still sees."""
    evidence = Evidence(kubelet=kubelet, process=process, container=container, is_finished=True)
    assert decide_recovery(evidence).action is expected


def test_no_row_breaks_the_laws() -> None:
    """All that can be seen at once: what any source holds is kept, and one look never ends anything."""
    for kubelet, process, container in product(Kubelet, Process, Container):
        action = decide(kubelet, process, container)
        if action is A.RELEASE:
            assert (kubelet, process, container) == (K.NO, P.NONE, C.ABSENT)
            assert decide(kubelet, process, container, looks=1) is A.POLL_RETRY
        if kubelet is not K.NO:
            assert action is A.KEEP
