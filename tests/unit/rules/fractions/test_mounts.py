"""What a container sees of its limits."""

from nodeagent.model.fractions import PLACE, LibraryFiles, LimitsFolder
from nodeagent.model.plugin import ContainerMount
from nodeagent.rules.fractions.runtime import OWN_BYTES, PRELOAD, plan_fraction_mounts

LIBRARY = LibraryFiles(library="/state/vgpu/lib.so", preload="/state/vgpu/preload")
LIMITS = ContainerMount(container_path=f"{PLACE}/limits", host_path="/state/a/limits")


def test_a_container_writes_into_a_file_of_the_host() -> None:
    """That of its part is its own."""
    usage = ContainerMount(container_path=f"{PLACE}/usage", host_path="/state/a/usage", read_only=False)
    folder = LimitsFolder(limits="/state/a/limits", usage="/state/a/usage")
    assert plan_fraction_mounts(folder, None) == (LIMITS, usage)
    library, preload = plan_fraction_mounts(folder, LIBRARY)[2:]
    assert (library.container_path, preload.container_path) == (f"{PLACE}/lib.so", PRELOAD)
    assert library.read_only
    assert preload.read_only


def test_containers_of_one_claim_have_memory_of_their_own() -> None:
    """And one file of the host together, which none of them maps."""
    shared = ContainerMount(container_path=f"{PLACE}/shared", host_path="/state/a/shared", read_only=False)
    own = ContainerMount(container_path=f"{PLACE}/own", memory_bytes=OWN_BYTES, read_only=False)
    folder = LimitsFolder(limits="/state/a/limits", shared="/state/a/shared")
    assert plan_fraction_mounts(folder, None) == (LIMITS, shared, own)
    assert len(plan_fraction_mounts(folder, LIBRARY)) == 5
