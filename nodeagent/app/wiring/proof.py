"""Builds the component that proves GPUs while nobody has them, only if the settings ask for proofs."""

from collections.abc import Callable
from pathlib import Path

from nodeagent.app.host_root import find_driver_roots
from nodeagent.app.services import Services
from nodeagent.components.proof.component import Proof
from nodeagent.components.proof.proof_store import STORE
from nodeagent.core.life.component import ComponentSpec
from nodeagent.edge.cuda.child import BackgroundProver
from nodeagent.edge.host.driver.cuda_check import LIBRARY
from nodeagent.edge.host.driver.roots import find_library
from nodeagent.edge.host.files.sealed_store import SealedStore


class ProofWiring:
    """The prover, which outlives a restart of the component."""

    def __init__(self, services: Services, open_store: Callable[[str, str, int], SealedStore], node: str) -> None:
        self._services, self._open_store, self._node = services, open_store, node
        self._prover = BackgroundProver(self._find_library, dict(services.live.now.driver.worker_environment))

    def specs(self) -> tuple[ComponentSpec, ...]:
        """The component; it waits for GPUs, verdicts and modes itself, and never proves before the journal is read."""
        return (ComponentSpec(Proof.name, self._build, needs=("allocations_recovered",), stop_stage=10),)

    def close(self) -> None:
        """Let the thread end."""
        self._prover.close()

    def _build(self) -> Proof:
        return Proof(*self._services, self._prover, self._open_store(*STORE), self._node)

    def _find_library(self) -> Path | None:
        return find_library(find_driver_roots(self._services.live.now).driver, LIBRARY)
