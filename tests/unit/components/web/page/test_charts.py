"""Charts: axes that can be read, words for those who do not see them, gaps where nothing is known."""

import re

from msgspec.structs import replace

from nodeagent.components.web.page.charts import HEIGHT, WIDTH, render_charts
from nodeagent.components.web.page.details import render_path
from nodeagent.components.web.page.periods import DAY, HOUR, Period, PeriodHistory
from nodeagent.model.telemetry import NodeSample
from tests.support.nodes import make_sample, make_view
from tests.support.samples import make_gpu, make_uuid

NOON = 1_767_268_800
"""2026-01-01, 12:00 UTC."""


def draw(*readings: tuple[int, int | None]) -> dict[str, str]:
    """Charts of utilisation alone."""
    periods = Period(HOUR), Period(DAY)
    for seconds, percent in readings:
        for period in periods:
            period.add((percent, None, None, None), NOON + seconds)
    return render_charts(make_gpu(0), make_sample(0), periods)


def test_axes_have_units_and_the_nodes_time() -> None:
    """Full, half and nothing on one axis; quarters of an hour and of a day on the other."""
    parts = draw((0, 20), (60, 60))
    texts = {name: re.findall(r"<text[^>]*>([^<]*)<", part) for name, part in parts.items()}
    assert texts["hour"] == ["0 %", "50 %", "100 %", "11:15", "11:30", "11:45", "12:00"]
    assert texts["day"] == ["0 %", "50 %", "100 %", "18:00", "00:00", "06:00", "12:00"]


def test_a_drawing_says_its_range_in_words() -> None:
    """On average and at most, in the measure's own unit."""
    assert 'aria-label="Utilisation, last hour: 40 % on average, 60 % at most"' in draw((0, 20), (60, 60))["hour"]


def test_nothing_read_is_nothing_drawn_and_a_gap_is_a_gap() -> None:
    """No part without readings, no line across what is not known."""
    assert draw((0, None)) == {}
    mean = re.search(r'class="mean" d="([^"]*)"', draw((0, 20), (60, 20), (300, 20))["hour"])
    assert mean is not None
    assert re.findall("[ML]", mean[1]) == ["M", "L", "M"]


def test_nothing_is_drawn_outside() -> None:
    """A reading above the scale moves the scale; no mark of the time is cut off."""
    part = draw(*[(60 * minute, 150) for minute in range(200)])["hour"]
    numbers = [float(one) for one in re.findall(r"[MVHLx=\"](-?\d+\.?\d*)", "".join(re.findall(r'd="[^"]*"', part)))]
    assert min(numbers) >= 0
    assert max(numbers) <= max(WIDTH, HEIGHT) + 1


def test_the_page_of_a_gpu_has_them() -> None:
    """Beside the last minutes, as soon as there is something to draw, without a sample now as well."""
    book = PeriodHistory()
    book.add(NodeSample(time_seconds=NOON, gpus=(make_sample(0),)))
    view = replace(make_view(), periods=book.periods())
    page = render_path(f"/gpus/{make_uuid(0)}", view)
    assert page is not None
    assert {"hour", "day"} <= set(page.sections)
    assert set(render_charts(make_gpu(0), None, book.periods()[make_uuid(0)])) == {"hour", "day"}
