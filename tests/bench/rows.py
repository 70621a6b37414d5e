"""What a measurement is: a name, samples with a unit, and the limit that they are held against."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    unit: str
    samples: Sequence[float]
    limit: float | None = None
    limit_is_for: float = 0.5
    """The percentile that the limit speaks of."""

    def percentile(self, share: float) -> float:
        """By nearest rank."""
        ordered = sorted(self.samples)
        return ordered[round((len(ordered) - 1) * share)]

    @property
    def verdict(self) -> str:
        """Whether the limit is kept; empty without one."""
        if self.limit is None:
            return ""
        return "ok" if self.percentile(self.limit_is_for) <= self.limit else "OVER"


def render_table(rows: Sequence[Row]) -> str:
    """The table as people read it."""
    head = f"{'measure':<44} {'unit':<4} {'runs':>6} {'p50':>9} {'p90':>9} {'p99':>9}  limit"
    return "\n".join([head, *map(_render_row, rows)])


def _render_row(row: Row) -> str:
    values = " ".join(f"{row.percentile(share):>9.2f}" for share in (0.5, 0.9, 0.99))
    limit = f"p{row.limit_is_for * 100:.0f} <= {row.limit:g} {row.verdict}" if row.limit is not None else ""
    return f"{row.name:<44} {row.unit:<4} {len(row.samples):>6} {values}  {limit}"


def index_rows(rows: Sequence[Row]) -> dict[str, dict[str, object]]:
    """As `to_json`, by name."""
    return {row.name: kept for row, kept in zip(rows, to_json(rows), strict=True)}


def to_json(rows: Sequence[Row]) -> list[dict[str, object]]:
    return [
        {
            "name": row.name,
            "unit": row.unit,
            "runs": len(row.samples),
            **{f"p{share * 100:.0f}": row.percentile(share) for share in (0.5, 0.9, 0.99)},
            "limit": row.limit,
            "limit_is_for": row.limit_is_for,
        }
        for row in rows
    ]
