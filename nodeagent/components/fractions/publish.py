"""The node's annotations for schedulers: GPUs with fractions, and the bindings of containers."""

from collections.abc import Callable
from typing import Final

from nodeagent.components.fractions.decide import PartView, publish_view
from nodeagent.model.journal import PartTable
from nodeagent.rules.fractions.bound import RenderedBound, render_bound

_NOTHING: Final = RenderedBound("")


class Publisher:
    """Renders each annotation anew only after a change of content."""

    def __init__(self, report_left_out: Callable[[int], None]) -> None:
        """`report_left_out` takes the number of pods that the annotation has no room for, once until all fit again."""
        self._gpus: tuple[PartView, str] | None = None
        self._bound: tuple[PartView, PartTable, RenderedBound] | None = None
        self._report_left_out = report_left_out

    def render_gpus(self, view: PartView) -> str:
        """The annotation about GPUs; empty without GPUs."""
        if self._gpus is None or self._gpus[0] is not view:
            self._gpus = (view, publish_view(view))
        return self._gpus[1]

    def render_bound(self, view: PartView, table: PartTable) -> str:
        """The annotation about bindings; empty where the node publishes no GPUs."""
        if self._bound is None or self._bound[0] is not view or self._bound[1] is not table:
            before = self._bound[2].left_out if self._bound is not None else 0
            rendered = render_bound(table.bindings.values(), view.inventory) if view.gpus else _NOTHING
            self._bound = (view, table, rendered)
            if rendered.left_out and not before:
                self._report_left_out(rendered.left_out)
        return self._bound[2].text
