"""What the node object is to say to schedulers of the GPUs that are given in parts, and of who has which."""

from typing import Final

from nodeagent.components.fractions.decide import PartView, publish_view
from nodeagent.core.log.lines import get_logger
from nodeagent.model.journal import PartTable
from nodeagent.rules.fractions.bound import RenderedBound, render_bound

_NOTHING: Final = RenderedBound("")


class Publisher:
    """A text is made anew only when what it says has changed: a start changes the one, a GPU the other."""

    def __init__(self) -> None:
        self._gpus: tuple[PartView, str] | None = None
        self._bound: tuple[PartView, PartTable, RenderedBound] | None = None
        self._log = get_logger(component="fractions")

    def render_gpus(self, view: PartView) -> str:
        """What there is to be given; empty where there are no GPUs."""
        if self._gpus is None or self._gpus[0] is not view:
            self._gpus = (view, publish_view(view))
        return self._gpus[1]

    def render_bound(self, view: PartView, table: PartTable) -> str:
        """What containers have of it; empty where the node says nothing of GPUs."""
        if self._bound is None or self._bound[0] is not view or self._bound[1] is not table:
            before = self._bound[2].left_out if self._bound is not None else 0
            rendered = render_bound(table.bindings.values(), view.inventory) if view.gpus else _NOTHING
            self._bound = (view, table, rendered)
            if rendered.left_out and not before:
                self._log.warning("bound_parts_not_published", pods=rendered.left_out)
        return self._bound[2].text
