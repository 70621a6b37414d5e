"""The text of a proof: the table of checks, the verdicts, and the speeds of all GPUs as bars."""

from collections.abc import Mapping

from nodeagent.cli.answers.table import Table, clean, paint
from nodeagent.cli.gpu.proof_session import ProofResult
from nodeagent.model.proof import GpuProof, ProofVerdict, SpeedKind
from nodeagent.rules.proof.speeds import find_speeds, render_speed

_WIDTH = 40
_STYLES = {ProofVerdict.PASSED: "good", ProofVerdict.FAILED: "bad", ProofVerdict.UNTESTED: "warn"}


def tabulate_proofs(result: ProofResult) -> Table:
    """A line per check."""
    rows = [
        (str(proof.index), check.name, str(check.verdict), check.measured, check.expected or "-")
        for proof in result.proofs
        for check in proof.checks
    ]
    names = [str(proof.gpu) for proof in result.proofs]
    return Table(("GPU", "CHECK", "VERDICT", "MEASURED", "EXPECTED"), rows, names=names, nothing="no GPU")


def describe_proofs(result: ProofResult, *, colour: bool) -> list[str]:
    """The lines below the table: notes, bars, and the verdict on each GPU last."""
    lines: list[str] = []
    for proof in result.proofs:
        lines += [f"GPU {proof.index}: {clean(note)}" for note in proof.notes]
    lines += draw_spread(collect_speeds(result))
    return [*lines, "", *(_describe_verdict(proof, colour=colour) for proof in result.proofs)]


def _describe_verdict(proof: GpuProof, *, colour: bool) -> str:
    bad = [check.name for check in proof.checks if check.verdict is proof.verdict is not ProofVerdict.PASSED]
    took = f", {proof.readings.seconds:.1f} s" if proof.readings is not None and proof.readings.seconds else ""
    words = f"GPU {proof.index} {proof.verdict} ({proof.stage}{took})" + (f": {', '.join(bad)}" if bad else "")
    return paint(words, _STYLES[proof.verdict], colour=colour)


def collect_speeds(result: ProofResult) -> dict[str, dict[SpeedKind, float]]:
    """The speeds of each GPU by its name."""
    read = result.readings
    return {name: find_speeds(read[uuid]) for uuid, name in result.names.items() if uuid in read}


def draw_spread(speeds: Mapping[str, Mapping[SpeedKind, float]]) -> list[str]:
    """A bar per GPU for each kind of speed that several GPUs have, the longest for the fastest."""
    lines: list[str] = []
    for kind in SpeedKind:
        values = {name: one[kind] for name, one in speeds.items() if kind in one}
        most = max(values.values(), default=0.0)
        if len(values) > 1 and most > 0:
            width = max(map(len, values))
            lines += ["", str(kind)]
            lines += [
                f"  {name:<{width}}  {'█' * round(_WIDTH * value / most):<{_WIDTH}}  {render_speed(kind, value)}"
                for name, value in values.items()
            ]
    return lines
