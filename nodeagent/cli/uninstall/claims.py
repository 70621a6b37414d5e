"""The files of claims and receipts with running pods: they stay, or no container of such a pod could start again.

Owns the choice, by the journal and by the pods' processes; where processes are invisible, a pod counts as running.
"""

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from nodeagent.app.runtime_edge import see_processes
from nodeagent.cli.uninstall.fractions import explain_unseen
from nodeagent.cli.uninstall.steps import Outcome, Step, act, read_ledger, remove_directory
from nodeagent.config.schema import Settings
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.metadata_files import METADATA_FOLDERS
from nodeagent.edge.host.files.pseudo_file import list_names
from nodeagent.edge.host.processes.process_places import find_pods
from nodeagent.model.journal import PreparedClaim
from nodeagent.rules.container_receipts import locate_receipts, name_claim_receipt

_AGAIN: Final = "such a pod ends when an agent has put its claim away; uninstall again after that"


def find_claims(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """Prepared claims with running pods, by uid, each with the reason to keep its specification."""
    claims = read_ledger(settings).claims
    if not claims:
        return {}
    unseen = explain_unseen(settings, environ)
    if unseen:
        return dict.fromkeys(claims, f"whether a pod of its claim runs is {unseen}: {_AGAIN}")
    try:
        running = find_pods(see_processes(settings))
    except HostError as error:
        return dict.fromkeys(claims, f"whether a pod of its claim runs is not to be seen: {error}")
    users = {uid: _list_users(each, running) for uid, each in claims.items()}
    return {uid: f"claim {claims[uid].describe()} is {each}: {_AGAIN}" for uid, each in users.items() if each}


def remove_metadata(settings: Settings, kept: Mapping[str, str], *, dry: bool) -> list[Outcome]:
    """Remove the metadata files of claims, except those of the kept claims, by uid."""
    return _remove_folders(settings.node.state_dir / METADATA_FOLDERS, kept, "metadata of a claim", dry=dry)


def remove_receipts(
    settings: Settings, fractions: Mapping[str, str], claims: Mapping[str, str], *, dry: bool
) -> list[Outcome]:
    """Remove the receipts of containers, except those of kept fractions and claims; runtimes make any other anew."""
    kept = {**fractions, **{name_claim_receipt(uid): reason for uid, reason in claims.items()}}
    return _remove_folders(Path(locate_receipts(settings)), kept, "receipt of a container", dry=dry)


def _remove_folders(root: Path, kept: Mapping[str, str], what: str, *, dry: bool) -> list[Outcome]:
    folders = [root / name for name in list_names(root)]
    outcomes = [
        Outcome(Step.KEPT, str(each), kept[each.name])
        if each.name in kept
        else act(partial(shutil.rmtree, each), each, what, dry=dry)
        for each in folders
    ]
    return outcomes if any(each.name in kept for each in folders) else [*outcomes, *remove_directory(root, dry=dry)]


def _list_users(claim: PreparedClaim, running: frozenset[str]) -> str:
    """The claim's running or unknown pods, as the end of a sentence; empty where all pods have ended."""
    if not all(pod.uid for pod in claim.pods) or not claim.pods:
        return "ready for pods that the journal does not name"
    users = ", ".join(pod.describe() for pod in claim.pods if pod.uid in running)
    return f"used by {users}" if users else ""
