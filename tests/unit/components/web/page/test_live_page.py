"""A reader gets what changed since it last looked, and nothing is kept for nobody."""

from msgspec import json
from msgspec.structs import replace

from nodeagent.components.web.page.live import UNREAD_MAX, LivePage, LivePages
from nodeagent.components.web.page.overview import Page, Steps
from nodeagent.components.web.page.trend import POINTS, STEP_SECONDS, Trends, plan_curves, render_spark
from nodeagent.model.telemetry import GpuSample, NodeSample
from tests.support.nodes import make_sample
from tests.support.samples import make_gpu, make_uuid

PAGE = Page(title="t", node="n", style="ok", time_seconds=1.0, sections={"a": "<p>a</p>", "b": "<p>b</p>"})


def _read(event: bytes) -> tuple[str, dict[str, str]]:
    version, kind, data, *rest = event.decode().split("\n")
    assert (kind, rest) == ("event: sections", ["", ""])
    return version.removeprefix("id: "), json.decode(data.removeprefix("data: "))["sections"]


def _with(**sections: str) -> Page:
    return replace(PAGE, sections={**PAGE.sections, **sections})


def test_only_changed_parts_are_sent() -> None:
    """A reader with everything gets nothing, a late one all that it lacks, a stranger everything."""
    live = LivePage(PAGE, "e")
    first = live.version
    assert _read(live.render_since(first)) == (first, {})
    live.update(_with(b="<p>new</p>"))
    second = live.version
    assert _read(live.render_since(first)) == (second, {"b": "<p>new</p>"})
    live.update(_with(b="<p>new</p>", a="<p>too</p>"))
    assert set(_read(live.render_since(first))[1]) == {"a", "b"}
    assert set(_read(live.render_since(second))[1]) == {"a"}
    for stranger in ("", "x-1", "e-", "e-x", "e-²"):
        assert set(_read(live.render_since(stranger))[1]) == {"a", "b"}


def test_growing_older_is_no_change() -> None:
    """Ages are counted by the reader; a page where only they differ is not sent."""
    live = LivePage(_with(a='<time data-since="1">3 s</time>'), "e")
    version = live.version
    live.update(_with(a='<time data-since="1">4 s</time>'))
    assert live.version == version
    live.update(_with(a='<time data-since="2">4 s</time>'))
    assert live.version != version


class _Renderer:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, path: str) -> Steps:
        self.calls.append(path)
        yield
        return None if path == "/nothing" else _with(a=f"<p>{len(self.calls)}</p>")


def test_a_page_is_rendered_once_for_all_who_read_it() -> None:
    """Twenty readers cost one rendering; without readers nothing is rendered."""
    render = _Renderer()
    pages = LivePages(render, "e")
    readers = [pages.follow("/") for _ in range(20)]
    assert len({id(reader) for reader in readers}) == 1
    render.calls.clear()
    list(pages.update())
    assert render.calls == ["/"]
    for _ in readers:
        pages.leave("/")
    list(pages.update())
    list(pages.update())
    assert render.calls == ["/"]
    assert pages.follow("/") is not readers[0]


def test_a_reader_goes_on_from_the_page_it_loaded() -> None:
    """Between loading and following the page is kept, and loading again renders it anew."""
    pages = LivePages(_Renderer(), "e")
    loaded = pages.load("/")
    assert loaded is not None
    assert pages.load("/") is loaded
    list(pages.update())
    assert pages.follow("/") is loaded


def test_pages_that_nobody_follows_do_not_pile_up() -> None:
    """However many addresses are tried, only so many are kept; one that is read stays."""
    pages = LivePages(_Renderer(), "e")
    read = pages.follow("/read")
    for number in range(3 * UNREAD_MAX):
        pages.load(f"/{number}")
    assert len(pages._pages) <= UNREAD_MAX + 1
    assert pages.follow("/read") is read
    assert pages.load("/nothing") is None
    assert pages.follow("/nothing") is None


def test_readers_who_saw_the_same_get_the_same_bytes() -> None:
    """An event is written out once for all who lack the same, and anew with each rendering, for it tells the time."""
    live = LivePage(PAGE, "e")
    assert live.render_since("") is live.render_since("x-1")
    before = live.render_since("")
    live.update(replace(PAGE, time_seconds=2.0))
    assert live.render_since("") != before


def test_an_older_rendering_never_replaces_a_newer_one() -> None:
    """A page that is loaded while it is being rendered for others stays as its reader got it."""
    times = iter((1.0, 2.0, 3.0, 4.0))

    def render(_path: str) -> Steps:
        page = replace(PAGE, time_seconds=next(times))
        yield
        return page

    pages = LivePages(render, "e")
    live = pages.follow("/")
    assert live is not None
    slow = pages.update()
    next(slow)
    pages.load("/")
    assert live.page.time_seconds == 3.0
    list(slow)
    assert live.page.time_seconds == 3.0


def _sample(time: float, *indexes: int, percent: int = 1) -> NodeSample:
    return NodeSample(time_seconds=time, gpus=tuple(make_sample(index, percent=percent) for index in indexes))


def test_the_ring_is_bounded_in_time_and_number() -> None:
    """The newest reading of a step stands for it, old points go, and so does a GPU that is sampled no more."""
    trends = Trends()
    for second in range(STEP_SECONDS * (POINTS + 10)):
        trends.add(_sample(second, 0, 1, percent=second % 100))
    points = trends.points()
    assert [len(points[make_uuid(index)]) for index in (0, 1)] == [POINTS, POINTS]
    assert points[make_uuid(0)][-1].utilization_percent == (STEP_SECONDS * (POINTS + 10) - 1) % 100
    trends.add(_sample(10_000, 1))
    assert list(trends.points()) == [make_uuid(1)]


def test_what_is_not_told_is_not_drawn() -> None:
    """A measure the hardware does not give is a dash, not a zero; one without a limit has its own scale."""
    trends = Trends()
    trends.add(_sample(0, 0))
    points = trends.points()[make_uuid(0)]
    assert plan_curves(make_gpu(0), None, points) == ()
    bare = plan_curves(make_gpu(0), GpuSample(uuid=make_uuid(0)), points)
    assert [(curve.now, render_spark(curve)) for curve in bare if curve.name != "Memory"] == [("–", "")] * 3
    unlimited = replace(make_sample(0), power_limit_milliwatts=None)
    power = plan_curves(make_gpu(0), unlimited, points)[2]
    assert (power.now, power.heights) == ("350 W", ((0, 100),))


def test_a_gap_is_left_where_no_reading_was() -> None:
    """Points older than the picture are left out, so that the time axis is true."""
    trends = Trends()
    trends.add(_sample(0, 0))
    trends.add(_sample(STEP_SECONDS * 500, 0))
    curve = plan_curves(make_gpu(0), make_sample(0), trends.points()[make_uuid(0)])[0]
    assert render_spark(curve).count("L") == 1


def test_pages_let_go_while_others_are_rendered_are_no_failure() -> None:
    """Addresses walked through while a page is rendered push out others that were about to be forgotten."""
    pages = LivePages(_Renderer(), "e")
    pages.follow("/read")
    for number in range(UNREAD_MAX):
        pages.load(f"/{number}")
    list(pages.update())
    slow = pages.update()
    next(slow)
    pages.load("/one-more")
    again = pages.follow("/0")
    list(slow)
    assert pages.follow("/0") is again
