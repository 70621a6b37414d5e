"""A node to simulate: the boards, models and places of its GPUs, read from `profiles/` and `models/`.

Owns the form of the profile files and all checks of profiles.
Refuses state: a profile never changes, `world` has the changing state.
"""

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from nodeagent.model.errors import SourceUnusable
from nodeagent.model.gpu import PathKind
from nodeagent.model.ids import PciAddress, parse_pci_address
from nodeagent.model.wording import suggest
from nodeagent.model.yaml_text import YamlUnreadable, parse_yaml
from nodeagent_sim.gpus.hardware import GpuModel, Spec
from nodeagent_sim.gpus.mig_geometry import plan_layout

_HERE = Path(__file__).parent

SpecT = TypeVar("SpecT", bound=Spec)


class UnknownProfile(SourceUnusable):
    """No profile has the given name."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no simulated profile {name!r}: known are {', '.join(known)}{suggest(name, known)}")
        self.name, self.known = name, known


class InvalidProfile(SourceUnusable):
    """A profile's file cannot be read or contradicts itself."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"cannot use the simulated profile in {path}: {problem}")
        self.path, self.problem = path, problem


class DriverSpec(Spec, frozen=True):
    """The driver installed on the node."""

    version: str
    cuda: tuple[int, int]
    open_module: bool = False

    @property
    def nvml_version(self) -> str:
        """The library's own version: the CUDA generation and the driver's version."""
        return f"{self.cuda[0]}.{self.version}"

    @property
    def branch(self) -> int:
        """The driver's release branch, such as 580."""
        return int(self.version.split(".", maxsplit=1)[0])


class GpuGroup(Spec, frozen=True):
    """GPUs of one model on one piece of the PCIe tree."""

    model: str
    addresses: tuple[str, ...]
    numa: int | None = None
    path: PathKind = PathKind.SYSTEM
    """The path between two GPUs of the group."""


class WiringSpec(Spec, frozen=True):
    """The NVLinks' wiring: from GPU to GPU in equal numbers, or all to switches."""

    wiring: Literal["mesh", "switch"]
    links_per_switch: tuple[int, ...] = ()
    """Number of each GPU's links to each switch; empty for switches outside the node's sight."""
    switches: tuple[str, ...] = ()


class FabricSpec(Spec, frozen=True):
    """The fabric manager's data of each GPU."""

    cluster_uuid: str = "00000000-0000-0000-0000-000000000000"
    clique_id: int = 0
    health_mask: int = 0


class ProfileSpec(Spec, frozen=True):
    """The content of a profile's file."""

    summary: str
    driver: DriverSpec
    gpus: tuple[GpuGroup, ...]
    numa_cpus: dict[int, str] = msgspec.field(default_factory=dict)
    nvlink: WiringSpec | None = None
    fabric: FabricSpec | None = None
    addressing_mode: Literal["", "None", "HMM", "ATS"] = ""
    """How the GPUs reach the host's memory; empty for a driver without an answer."""
    mig: dict[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    jobs: bool = True
    """Whether jobs come and go by themselves while holders are not set; else the GPUs rest."""


class Seat(Spec, frozen=True):
    """One GPU's place in the node."""

    index: int
    model: GpuModel
    address: PciAddress
    group: int
    path: PathKind
    numa_node: int | None
    cpu_affinity: str


class Profile(Spec, frozen=True):
    """A node to simulate, whole and checked."""

    name: str
    summary: str
    driver: DriverSpec
    seats: tuple[Seat, ...]
    nvlink: WiringSpec | None
    switches: tuple[PciAddress, ...]
    fabric: FabricSpec | None
    addressing_mode: str
    mig: dict[int, tuple[str, ...]]
    jobs: bool


def list_profiles() -> tuple[str, ...]:
    """The names of all profiles in the package."""
    return tuple(sorted(path.stem for path in (_HERE / "profiles").glob("*.yaml")))


def load_profile(name: str) -> Profile:
    """The profile of a name, or the profile in a file if the name is a path.

    Raises:
        UnknownProfile: No profile has the name.
        InvalidProfile: The profile's file cannot be read or contradicts itself.
    """
    if "/" in name:
        path = Path(name)
    elif name in (known := list_profiles()):
        path = _HERE / "profiles" / f"{name}.yaml"
    else:
        raise UnknownProfile(name, known)
    spec = _read_spec(path, ProfileSpec)
    try:
        return _build_profile(path.stem, spec)
    except ValueError as error:
        raise InvalidProfile(str(path), str(error)) from error


def _read_spec(path: Path, kind: type[SpecT]) -> SpecT:
    try:
        return msgspec.convert(parse_yaml(path.read_bytes()), kind)
    except (OSError, YamlUnreadable, msgspec.ValidationError) as error:
        raise InvalidProfile(str(path), " ".join(str(error).split())) from error


def load_model(name: str) -> GpuModel:
    """The GPU model of a name.

    Raises:
        InvalidProfile: The model's file is missing or cannot be read.
    """
    return _read_spec(_HERE / "models" / f"{name}.yaml", GpuModel)


def _load_once(name: str, cache: dict[str, GpuModel]) -> GpuModel:
    if name not in cache:
        cache[name] = load_model(name)
    return cache[name]


def _build_profile(name: str, spec: ProfileSpec) -> Profile:
    seats = _seat_gpus(spec)
    _check(spec, seats)
    return Profile(
        name=name,
        summary=spec.summary,
        driver=spec.driver,
        seats=seats,
        nvlink=spec.nvlink,
        switches=tuple(parse_pci_address(address) for address in spec.nvlink.switches) if spec.nvlink else (),
        fabric=spec.fabric,
        addressing_mode=spec.addressing_mode,
        mig=spec.mig,
        jobs=spec.jobs,
    )


def _seat_gpus(spec: ProfileSpec) -> tuple[Seat, ...]:
    """The GPUs in NVML's order, by PCI address, whatever the order in the file."""
    models: dict[str, GpuModel] = {}
    places = sorted(
        (parse_pci_address(address), number) for number, group in enumerate(spec.gpus) for address in group.addresses
    )
    return tuple(
        Seat(
            index=index,
            model=_load_once(spec.gpus[number].model, models),
            address=address,
            group=number,
            path=spec.gpus[number].path,
            numa_node=(numa := spec.gpus[number].numa),
            cpu_affinity=spec.numa_cpus.get(numa, "") if numa is not None else "",
        )
        for index, (address, number) in enumerate(places)
    )


def _check(spec: ProfileSpec, seats: tuple[Seat, ...]) -> None:
    """Check the profile beyond msgspec's checks.

    Raises:
        ValueError: The profile contradicts itself.
    """
    if len({seat.address for seat in seats}) != len(seats):
        raise ValueError("two GPUs share one PCI address")
    if spec.nvlink is not None and len(spec.nvlink.links_per_switch) != len(spec.nvlink.switches):
        raise ValueError("nvlink.links_per_switch and nvlink.switches differ in length")
    for index, names in spec.mig.items():
        if not 0 <= index < len(seats):
            raise ValueError(f"mig names GPU {index}, the last one is {len(seats) - 1}")
        plan_layout(seats[index].model, names)
