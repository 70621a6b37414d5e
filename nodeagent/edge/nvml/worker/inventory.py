"""One GPU's slow facts, and a reason for each fact that cannot be read.

Runs in the worker process and returns the fields of `model.gpu.Gpu` by name.
Refuses to fail: only a GPU out of reach ends the reading, as `lost`.
"""

import time

import pynvml

from nodeagent.edge.nvml import errors
from nodeagent.edge.nvml.shared import Any
from nodeagent.edge.nvml.worker.fabric import read_fabric
from nodeagent.edge.nvml.worker.fields import LINK_SPEED, FieldBatch, read_link_count
from nodeagent.edge.nvml.worker.mig import read_mig
from nodeagent.edge.nvml.worker.query import GpuGone, Query, put

ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
BRANDS = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "GRID",
    5: "GeForce",
    6: "Titan",
    7: "NVIDIA vApps",
    8: "NVIDIA vPC",
    9: "NVIDIA vCS",
    10: "NVIDIA vWS",
    11: "NVIDIA vGaming",
    12: "Quadro RTX",
    13: "NVIDIA RTX",
    14: "NVIDIA",
    15: "GeForce RTX",
    16: "Titan RTX",
}
ADDRESSING_MODES = {0: "None", 1: "HMM", 2: "ATS"}
"""As NVIDIA's DRA driver publishes the modes."""
VIRTUALIZATION_MODES = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
_NARROW_MULTIPROCESSORS = frozenset({(7, 0), (7, 2), (7, 5), (8, 0)})
"""Compute capabilities with 64 cores in a multiprocessor; all others since Pascal have 128."""

_CPU_MASK_WORDS = 16
_COMPUTE_MODES = range(4)
"""The names of `model.gpu.ComputeMode`, by their numbers in NVML."""
_INTEGRATED = "(nvgpu)"
"""How the names of Tegra's GPUs end, where a library lists them at all."""
_INFOROM_SECONDS = 3600.0

# pynvml function → name in the model, for what can be taken as it comes
_PLAIN = {
    "nvmlDeviceGetName": "name",
    "nvmlDeviceGetSerial": "serial",
    "nvmlDeviceGetBoardPartNumber": "board_part_number",
    "nvmlDeviceGetVbiosVersion": "vbios_version",
    "nvmlDeviceGetMinorNumber": "minor",
    "nvmlDeviceGetNumaNodeId": "numa_node",
    "nvmlDeviceGetPowerManagementLimit": "power_limit_milliwatts",
}


def read_gpu(query: Query, index: int, inforoms: dict[str, tuple[float, bool | None]]) -> dict[str, Any]:
    """All facts of the GPU; `inforoms` remembers by UUID the time and result of the last infoROM check.

    Raises:
        GpuGone: Not even the GPU's identity can be read.
    """
    gpu = _read_identity(query, index)
    try:
        _read_facts(query, gpu)
        gpu["mig"] = read_mig(query, gpu.get("memory_total_bytes", 0), gpu["uuid"])
        gpu["nvlinks"] = read_links(query)
        gpu["fabric"] = read_fabric(query)
        put(gpu, "inforom_valid", _read_inforom(query, gpu["uuid"], inforoms))
    except GpuGone as gone:
        gpu["lost"] = str(gone)
    gpu["unreadable"] = query.unreadable
    return gpu


def _read_identity(query: Query, index: int) -> dict[str, Any]:
    """UUID and PCI address, the identity of a GPU."""
    code, uuid = query.attempt_of(query.handle, "nvmlDeviceGetUUID")
    if code != errors.SUCCESS:
        raise GpuGone(f"its UUID cannot be read: {errors.describe_code(code)}")
    code, pci = query.attempt_of(query.handle, "nvmlDeviceGetPciInfo_v3")
    _, name = query.attempt_of(query.handle, "nvmlDeviceGetName")
    if code == errors.NOT_SUPPORTED or (name or "").endswith(_INTEGRATED):
        what = name or "it"
        raise GpuGone(f"{what} is an integrated GPU, which has no place on the PCI bus: nodeagent does not serve it")
    if code != errors.SUCCESS:
        raise GpuGone(f"its PCI address cannot be read: {errors.describe_code(code)}")
    identity = {
        "address": render_address(pci),
        "device_id": pci.pciDeviceId,
        "subsystem_id": pci.pciSubSystemId,
    }
    return {"index": index, "uuid": uuid, "name": "", "pci": identity}


def _read_facts(query: Query, gpu: dict[str, Any]) -> None:
    for function, name in _PLAIN.items():
        put(gpu, name, query.ask(name, function))
    pci = gpu["pci"]
    put(pci, "link_generation_max", query.ask("link_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"))
    put(pci, "link_width_max", query.ask("link_width_max", "nvmlDeviceGetMaxPcieLinkWidth"))
    memory = query.ask("memory_total_bytes", "nvmlDeviceGetMemoryInfo")
    put(gpu, "memory_total_bytes", memory and memory.total)
    gpu["brand"] = BRANDS.get(query.ask("brand", "nvmlDeviceGetBrand", default=0), "")
    gpu["architecture"] = ARCHITECTURES.get(query.ask("architecture", "nvmlDeviceGetArchitecture", default=0), "")
    gpu["cpu_affinity"] = _read_cpus(query)
    capability = query.ask("compute_capability", "nvmlDeviceGetCudaComputeCapability")
    put(gpu, "compute_capability", capability)
    cores = query.ask("multiprocessor_count", "nvmlDeviceGetNumGpuCores")
    if cores is not None and capability is not None:
        gpu["multiprocessor_count"] = cores // (64 if capability in _NARROW_MULTIPROCESSORS else 128)
    _put_flag(gpu, "persistence_mode", query.ask("persistence_mode", "nvmlDeviceGetPersistenceMode"))
    mode = query.ask("compute_mode", "nvmlDeviceGetComputeMode")
    put(gpu, "compute_mode", mode if mode in _COMPUTE_MODES else None)
    _put_application_clocks(query, gpu)
    ecc = query.ask("ecc_enabled", "nvmlDeviceGetEccMode")
    _put_flag(gpu, "ecc_enabled", None if ecc is None else ecc[0])
    virtualization = query.ask("virtualization_mode", "nvmlDeviceGetVirtualizationMode", default=0)
    addressing = query.ask("addressing_mode", "nvmlDeviceGetAddressingMode")
    put(gpu, "addressing_mode", ADDRESSING_MODES.get(addressing))
    gpu["virtualization_mode"] = VIRTUALIZATION_MODES.get(virtualization, "none")


def _read_inforom(query: Query, uuid: str, inforoms: dict[str, tuple[float, bool | None]]) -> bool | None:
    """Whether the infoROM's checksums are right; rarely asked, because the library reads the whole flash."""
    looked_at, known = inforoms.get(uuid, (-_INFOROM_SECONDS, None))
    now = time.monotonic()
    if now - looked_at < _INFOROM_SECONDS:
        return known
    code, _ = query.attempt_of(query.handle, "nvmlDeviceValidateInforom")
    valid = True if code == errors.SUCCESS else False if code == errors.CORRUPTED_INFOROM else None
    if valid is None:
        query.mark("inforom_valid", code)
    inforoms[uuid] = now, valid
    return valid


def _put_application_clocks(query: Query, gpu: dict[str, Any]) -> None:
    kinds = (pynvml.NVML_CLOCK_MEM, pynvml.NVML_CLOCK_GRAPHICS)
    clocks = [query.ask("application_clocks_mhz", "nvmlDeviceGetApplicationsClock", kind) for kind in kinds]
    if None not in clocks:
        gpu["application_clocks_mhz"] = clocks


def _put_flag(values: dict[str, Any], name: str, value: int | None) -> None:
    if value is not None:
        values[name] = value == 1


def render_address(pci: Any) -> str:
    """A PCI address in sysfs' form: `0000:1b:00.0`."""
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"


def _read_cpus(query: Query) -> str:
    words = query.ask("cpu_affinity", "nvmlDeviceGetCpuAffinity", _CPU_MASK_WORDS, default=())
    return render_cpus([64 * number + bit for number, word in enumerate(words) for bit in range(64) if word >> bit & 1])


def render_cpus(cpus: list[int]) -> str:
    """A list such as `0-55,112-167` of ascending CPU numbers."""
    spans: list[list[int]] = []
    for cpu in cpus:
        if spans and spans[-1][1] == cpu - 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def read_links(query: Query) -> list[dict[str, Any]]:
    """The GPU's NVLinks in order."""
    links = []
    for number in range(read_link_count(query) or pynvml.NVML_NVLINK_MAX_LINKS):
        code, state = query.attempt_of(query.handle, "nvmlDeviceGetNvLinkState", number)
        if code in (errors.NOT_SUPPORTED, errors.INVALID_ARGUMENT, errors.FUNCTION_NOT_FOUND):
            break  # past the last one; ports are numbered without holes
        if code != errors.SUCCESS:
            query.mark(f"nvlink {number}", code)
            continue
        links.append(_read_link(query, number, active=state == 1))
    _add_speeds(query, links)
    return links


def _read_link(query: Query, number: int, *, active: bool) -> dict[str, Any]:
    link: dict[str, Any] = {"link": number, "active": active}
    what = f"nvlink {number}"
    put(link, "version", query.ask(what, "nvmlDeviceGetNvLinkVersion", number))
    if not active:
        return link
    kind = query.ask(what, "nvmlDeviceGetNvLinkRemoteDeviceType", number)
    link["remote_is_switch"] = kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
    remote = query.ask(what, "nvmlDeviceGetNvLinkRemotePciInfo", number)
    if remote is not None:
        link["remote"] = _shorten_address(remote.busId)
    return link


def _shorten_address(bus_id: str) -> str:
    """A PCI address without NVML's padding: sysfs has four digits of domain, NVML eight."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _add_speeds(query: Query, links: list[dict[str, Any]]) -> None:
    active = [link for link in links if link["active"]]
    if not active:
        return
    speeds = dict(FieldBatch("nvlink speed", [(link["link"], LINK_SPEED, link["link"]) for link in active]).read(query))
    for link in active:
        if speeds.get(link["link"]):
            link["speed_mbps"] = speeds[link["link"]]
