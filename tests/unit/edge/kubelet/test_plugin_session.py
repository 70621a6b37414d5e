"""When to register again."""

from nodeagent.edge.kubelet.plugin_session import LONGEST_PAUSE_SECONDS, plan_pause


def test_pauses_grow_to_a_bound() -> None:
    """A first loss is healed within a quarter second, later ones ever slower, never slower than the bound."""
    pauses = [plan_pause(failures) for failures in range(100)]
    assert plan_pause(1) <= 0.25
    assert pauses == sorted(pauses)
    assert max(pauses) == LONGEST_PAUSE_SECONDS
