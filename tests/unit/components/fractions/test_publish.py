"""What the node says is made anew only when it says something else, and what it leaves out is told once."""

from msgspec.structs import replace

from nodeagent.components.fractions.decide import Publisher
from tests.support.fractions import make_bound, make_parted, make_pod, make_table, make_view, part


def test_what_does_not_fit_is_told_once() -> None:
    reported: list[int] = []
    view, publisher = make_view(make_parted(16)), Publisher(reported.append)
    many = [
        replace(
            make_bound(number, (), part(number % 16, 1, 1), pod=make_pod("a", uid=f"{number:036}")), container="c" * 63
        )
        for number in range(1600)
    ]
    for bindings in (many, many[1:], many[:1], many):
        publisher.render_bound(view, make_table((), bindings))
    assert len(reported) == 2
    assert min(reported) > 0


def test_equal_views_and_tables_cost_nothing() -> None:
    """The same text is handed out."""
    view, publisher, table = make_view(), Publisher(print), make_table((), [make_bound(1, (), part(0, 30, 8))])
    assert publisher.render_bound(view, table) is publisher.render_bound(view, table)
    assert publisher.render_gpus(view) is publisher.render_gpus(view)
