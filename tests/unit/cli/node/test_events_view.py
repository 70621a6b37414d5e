"""Events in a terminal."""

from nodeagent.cli.node.events_view import FOLLOWED_MAX, FollowedEvents, render_chains
from nodeagent.components.web.api.records import EventRecord
from nodeagent.components.web.page.chains import Chain, Link

HOSTILE = "bad\x1b[2Jname"


def event(seq: int, text: str, cause: int | None = None, gpu: str = "") -> EventRecord:
    value = {"gpu": gpu} if gpu else {}
    return EventRecord(seq=seq, time_seconds=0.0, type="X", source="test", value=value, cause=cause, text=text)


def test_effects_stand_under_their_cause_with_their_delay() -> None:
    """The newest chain is the last, because that is where a person at a terminal looks."""
    newest = Chain(links=(Link(seq=9, time_seconds=70.0, text="newest"),))
    chain = Chain(
        links=(
            Link(seq=1, time_seconds=5.0, text="XID 79"),
            Link(seq=2, time_seconds=5.056, text="vanished", depth=1),
            Link(seq=3, time_seconds=7.5, text="told", depth=2),
        ),
        left_out=3,
    )
    lines = render_chains((newest, chain), width=80, colour=False)
    assert [line[21:] for line in lines] == ["XID 79", "  vanished", "    told", "and 3 more", "newest"]
    assert [line[:19].strip() for line in lines[1:4]] == ["+56 ms", "+2.5 s", ""]


def test_a_terminal_obeys_nothing_that_comes_from_outside() -> None:
    """Control characters are shown as such, lines fit, and colour is only ours."""
    chain = Chain(links=(Link(seq=1, time_seconds=5.0, text=HOSTILE * 20),))
    (line,) = render_chains((chain,), width=60, colour=False)
    assert "\x1b" not in line
    assert len(line) == 60
    (painted,) = render_chains((chain,), width=60, colour=True)
    assert painted.count("\x1b") == 2


def test_followed_events_are_indented_by_their_causes() -> None:
    """What says nothing hands its depth on, and one whose cause is unknown begins at the margin."""
    followed = FollowedEvents(None)
    shown = [
        followed.render(one, width=200)
        for one in (event(1, "xid"), event(2, "", 1), event(3, "vanished", 2), event(4, "told", 3), event(9, "new", 7))
    ]
    assert [line[21:] for line in shown] == ["xid", "", "  vanished", "    told", "new"]


def test_following_one_gpu_follows_its_effects() -> None:
    """What follows from an event of the GPU is shown though it does not name it; others are not."""
    followed = FollowedEvents(frozenset({"GPU-a"}))
    events = (
        event(1, "a", gpu="GPU-a"),
        event(2, "b", gpu="GPU-b"),
        event(3, "c", 1),
        event(4, "d", 2),
        event(5, "e", 3),
    )
    shown = [followed.render(one, width=200)[21:].strip() for one in events]
    assert shown == ["a", "", "c", "", "e"]


def test_following_for_weeks_remembers_a_bounded_number() -> None:
    """The memory of depths does not grow with what happens."""
    followed = FollowedEvents(None)
    for seq in range(1, FOLLOWED_MAX + 10):
        followed.render(event(seq, "x"), width=80)
    assert followed.render(event(FOLLOWED_MAX + 20, "x", cause=1), width=80)[21:] == "x"
    assert followed.render(event(FOLLOWED_MAX + 21, "x", cause=FOLLOWED_MAX + 9), width=80)[21:] == "  x"


def test_a_restart_of_the_agent_stands_where_it_was() -> None:
    """Between what an earlier life told and what this one tells."""
    chains = [
        Chain(links=(Link(seq=seq, time_seconds=float(100 + seq), text=f"event {seq}"),)) for seq in (2, 1, -1, -2)
    ]
    lines = [line.split("  ")[-1].strip() for line in render_chains(chains, width=80, colour=False)]
    assert lines == ["event -2", "event -1", "the agent was restarted", "event 1", "event 2"]
    assert len(render_chains(chains[2:], width=80, colour=False)) == 2
