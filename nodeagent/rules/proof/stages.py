"""The work of each stage that needs the GPU itself."""

from typing import Final

from msgspec.structs import replace

from nodeagent.model.proof import ProofPlan, ProofStage

_QUICK: Final = ProofPlan(turns=64, rounds=20_000)
_PROOF: Final = replace(_QUICK, rounds=400_000, all_memory=True, with_peers=True)
_PLANS: Final = {
    ProofStage.QUICK: _QUICK,
    ProofStage.PROOF: _PROOF,
    ProofStage.SOAK: replace(_PROOF, repeat_seconds=180.0),
}


def plan_stage(stage: ProofStage) -> ProofPlan | None:
    """What the prover has to do; `None` for the stage without a context on the GPU."""
    return _PLANS.get(stage)


def plan_neighbour(plan: ProofPlan) -> ProofPlan:
    """What a GPU has to do that is only compared with: the speeds alone, which are measured alike in every stage."""
    return replace(plan, rounds=_QUICK.rounds, all_memory=False, with_peers=False, repeat_seconds=0.0)
