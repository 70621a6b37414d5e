"""The facts of a simulated node: the real host's kernel and distribution, and a made-up machine.

Owns the made-up facts: the machine's name, and the GPUs' functions on a PCI bus without them.
"""

from msgspec.structs import replace

from nodeagent.edge.simulated.profile import Profile
from nodeagent.model.labels import NodeFacts, NvidiaFunction, VgpuGuest

_3D_CONTROLLER = "0302"


def simulate_facts(facts: NodeFacts, profile: Profile) -> NodeFacts:
    """The host's facts with the profile's GPUs on the host's bus."""
    functions = tuple(NvidiaFunction(address=seat.address, pci_class=_3D_CONTROLLER) for seat in profile.seats)
    return replace(facts, machine_type=f"Simulated {profile.name}", functions=functions, vgpu=VgpuGuest())
