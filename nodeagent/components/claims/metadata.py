"""Metadata files: what a container reads about the devices of each request of its claim (KEP-5304).

Owns the path in containers and the content: a stream of the same document in each version of the format, the newest
first, with the attributes that schedulers see. A share has no field in the format: its amounts are attributes of the
agent's own domain.
Refuses to keep a pod from starting: a claim whose files cannot be written is prepared without them.
"""

import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from nodeagent.model.claims import ResourceClaim
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import NodeagentError
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import PciAddress
from nodeagent.model.journal import PreparedClaim, PreparedDevice
from nodeagent.model.plugin import ContainerMount
from nodeagent.model.ports import MetadataFiles
from nodeagent.model.slices import Attribute, Version
from nodeagent.rules.claims.attributes import DeviceFacts, describe_attributes, learn_facts
from nodeagent.rules.claims.naming import find_device

CONTAINER_FOLDER: Final = "/var/run/kubernetes.io/dra-device-attributes"
VERSIONS: Final = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
"""The versions of the format, the newest first: a reader takes the first that it knows."""
OWN_DOMAIN: Final = "nodeagent.io"
FIRST_RELEASE: Final = (1, 37)
"""The first Kubernetes whose consumers read the files."""
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

DescribedDevice: TypeAlias = tuple[PreparedDevice, Mapping[str, Attribute]]
"""A device of a claim with its attributes."""
ReadRoots: TypeAlias = Callable[[Collection[PciAddress]], Awaitable[Mapping[PciAddress, str]]]


def wants_metadata(choice: Literal["auto", "true", "false"], node: ClusterNode | None) -> bool:
    """Whether new claims get metadata files; where the kubelet's version decides, an unknown version is an old one."""
    if choice != "auto":
        return choice == "true"
    return node is not None and (node.kubelet_release or (0, 0)) >= FIRST_RELEASE


def find_pod_claim_name(claim: ResourceClaim) -> str:
    """The name that a pod has for a claim from a template, and a part of a path; empty for any other claim."""
    return claim.pod_claim_name if _LABEL.fullmatch(claim.pod_claim_name) else ""


def list_requests(claim: PreparedClaim) -> dict[str, tuple[PreparedDevice, ...]]:
    """The devices of each request, in the claim's order; an alternative counts for its request."""
    found: dict[str, tuple[PreparedDevice, ...]] = {}
    for device in claim.devices:
        for request in device.requests:
            found[request] = (*found.get(request, ()), device)
    return found


def locate_in_container(claim: PreparedClaim, request: str, driver: str) -> str:
    """The path at which containers look for the file of a request."""
    kind, name = "resourceclaims", claim.name
    if claim.pod_claim_name:
        kind, name = "resourceclaimtemplates", claim.pod_claim_name
    return f"{CONTAINER_FOLDER}/{kind}/{name}/{request}/{driver}-metadata.json"


def describe_claimed(device: PreparedDevice, inventory: Inventory, facts: DeviceFacts) -> dict[str, Attribute]:
    """The attributes of a claim's device: as in the slice, its UUID in any case, and the amounts of a share."""
    named = find_device(inventory, device.device)
    # A MIG device made for the claim is newer than the inventory: its UUID is the claim's own.
    told = describe_attributes(named, facts, on_demand=True) if named is not None else {}
    return told | {"uuid": device.uuid} | dict(_list_share(device))


def _list_share(device: PreparedDevice) -> Iterator[tuple[str, Attribute]]:
    if device.share_id:
        yield f"{OWN_DOMAIN}/shareID", device.share_id
    if device.part is not None:
        yield f"{OWN_DOMAIN}/shareCores", device.part.cores
        yield f"{OWN_DOMAIN}/shareMemoryBytes", device.part.memory_bytes


def render_metadata(
    claim: PreparedClaim,
    request: str,
    devices: Sequence[DescribedDevice],
    driver: str,
    before: bytes = b"",
) -> bytes:
    """The file of a request, unchanged where it says the same as before, else of the next generation.

    `devices` are the devices of the request.
    """
    generation = _read_generation(before)
    same = _render(claim, request, devices, driver, max(1, generation))
    return same if same == before or not generation else _render(claim, request, devices, driver, generation + 1)


def _render(
    claim: PreparedClaim,
    request: str,
    devices: Sequence[DescribedDevice],
    driver: str,
    generation: int,
) -> bytes:
    """A line for each version of the format."""
    by_request: dict[str, list[dict[str, Any]]] = {}
    for device, attributes in devices:
        name = f"{request}/{device.alternative}" if device.alternative else request
        document = {"driver": driver, "pool": device.pool, "name": device.device}
        told = {key: _render_attribute(value) for key, value in attributes.items()}
        by_request.setdefault(name, []).append(document | {"attributes": told})
    content = {
        "metadata": {
            "name": claim.name,
            "namespace": claim.namespace,
            "uid": claim.uid,
            "generation": generation,
        },
        **({"podClaimName": claim.pod_claim_name} if claim.pod_claim_name else {}),
        "requests": [{"name": name, "devices": found} for name, found in by_request.items()],
    }
    versions = ({"kind": "DeviceMetadata", "apiVersion": version, **content} for version in VERSIONS)
    return b"".join(msgspec.json.encode(document) + b"\n" for document in versions)


def _render_attribute(value: Attribute) -> dict[str, Any]:
    if isinstance(value, Version):
        return {"version": value.text}
    if isinstance(value, bool):
        return {"bool": value}
    return {"int": value} if isinstance(value, int) else {"string": value}


def _read_generation(content: bytes) -> int:
    """The generation of a written file; 0 for no file, and for one that a power cut has emptied."""
    try:
        return int(json.loads(content.partition(b"\n")[0])["metadata"]["generation"])
    except (ValueError, TypeError, KeyError):
        return 0


class ClaimMetadata:
    """Writes the metadata files of claims, and remembers the claims without."""

    def __init__(self, files: MetadataFiles, driver: str, read_roots: ReadRoots | None) -> None:
        """`read_roots` is `None` where no PCIe trees are published, as where GPUs are simulated."""
        self._files, self._driver, self._read_roots = files, driver, read_roots
        self._facts = DeviceFacts()
        self.problems: dict[str, str] = {}
        """By the claim's uid why its files are not as they should be."""

    async def open_metadata(
        self, claim: PreparedClaim, inventory: Inventory, driver: DriverState | None
    ) -> dict[str, tuple[ContainerMount, ...]]:
        """Write the files of a claim; by CDI name the mounts that come with the first device of each request.

        After a failure, the mounts of files that were written before.
        """
        if not claim.has_metadata:
            return {}
        present: Mapping[str, bytes] = {}
        try:
            present = await self._files.read(claim.uid)
            wanted = await self._plan(claim, inventory, driver, present)
            changed = {request: content for request, content in wanted.items() if present.get(request) != content}
            if changed:
                await self._files.write(claim.uid, changed)
            present = wanted
            self.problems.pop(claim.uid, None)
        except NodeagentError as error:
            self.problems[claim.uid] = f"{claim.describe()}: {error}"
        mounts: dict[str, tuple[ContainerMount, ...]] = {}
        for request, (first, *_) in list_requests(claim).items():
            if present.get(request):
                name, path = first.cdi_names[0], locate_in_container(claim, request, self._driver)
                mount = ContainerMount(container_path=path, host_path=self._files.locate(claim.uid, request))
                mounts[name] = (*mounts.get(name, ()), mount)
        return mounts

    async def _plan(
        self, claim: PreparedClaim, inventory: Inventory, driver: DriverState | None, present: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        gpus = {device.gpu for device in claim.devices}
        addresses = frozenset(gpu.pci.address for gpu in inventory.gpus if gpu.uuid in gpus)
        roots = await self._read_roots(addresses) if self._read_roots is not None else {}
        self._facts = learn_facts(self._facts, driver, inventory.pairs, roots)
        return {
            request: render_metadata(
                claim,
                request,
                [(device, describe_claimed(device, inventory, self._facts)) for device in devices],
                self._driver,
                present.get(request, b""),
            )
            for request, devices in list_requests(claim).items()
        }

    async def close_metadata(self, claim: PreparedClaim) -> None:
        """Remove the files of a claim, if it has any; a folder that stays is removed by `keep_metadata`."""
        self.problems.pop(claim.uid, None)
        if claim.has_metadata:
            try:
                await self._files.remove(claim.uid)
            except NodeagentError as error:
                self.problems[claim.uid] = f"{claim.describe()}: {error}"

    async def keep_metadata(self, list_claims: Callable[[], Collection[str]]) -> None:
        """Remove the files of all other claims than the present ones, listed after the files."""
        try:
            present = await self._files.list_uids()
            claims = list_claims()
            self.problems = {uid: problem for uid, problem in self.problems.items() if uid in claims}
            for uid in present:
                if uid not in claims:
                    await self._files.remove(uid)
        except NodeagentError as error:
            self.problems[""] = str(error)
