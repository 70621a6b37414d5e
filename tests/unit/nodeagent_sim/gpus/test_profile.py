"""Profiles: every one loads, is what its hardware is, and says clearly what is wrong with a bad one."""

from pathlib import Path

import pytest

from nodeagent_sim.gpus.hardware import make_gpu_uuid, make_mig_uuid, make_serial
from nodeagent_sim.gpus.profile import InvalidProfile, Profile, UnknownProfile, list_profiles, load_profile

WANTED = {
    "t4": (1, "Tesla T4", 15360, (7, 5), 0x1EB810DE),
    "l40s": (4, "NVIDIA L40S", 46068, (8, 9), 0x26B910DE),
    "a100-40gb": (2, "NVIDIA A100-PCIE-40GB", 40960, (8, 0), 0x20F110DE),
    "a100-80gb-mig": (4, "NVIDIA A100-SXM4-80GB", 81920, (8, 0), 0x20B210DE),
    "dgx-a100": (8, "NVIDIA A100-SXM4-40GB", 40960, (8, 0), 0x20B010DE),
    "dgx-h100": (8, "NVIDIA H100 80GB HBM3", 81559, (9, 0), 0x233010DE),
    "dgx-h200": (8, "NVIDIA H200", 143771, (9, 0), 0x233510DE),
    "dgx-b200": (8, "NVIDIA B200", 183359, (10, 0), 0x290110DE),
    "gb200-nvl72-node": (4, "NVIDIA GB200", 189471, (10, 0), 0x294110DE),
    "rtx-pro-6000": (4, "NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, (12, 0), 0x2BB510DE),
    "mixed": (3, "NVIDIA A100-PCIE-40GB", 40960, (8, 0), 0x20F110DE),
}
GOOD = """
summary: one card
driver: {version: 580.65.06, cuda: [13, 0]}
gpus: [{model: t4, addresses: ["01:00.0"]}]
"""


def test_every_promised_profile_is_there() -> None:
    assert set(list_profiles()) == set(WANTED)


@pytest.mark.parametrize("name", sorted(WANTED))
def test_profile_is_true_to_its_hardware(name: str) -> None:
    """Count, name, memory, capability and PCI id of the first GPU are those of the real board."""
    profile = load_profile(name)
    model = profile.seats[0].model
    assert (
        len(profile.seats),
        model.name,
        model.memory.total_mib,
        model.compute_capability,
        model.pci.device_id,
    ) == WANTED[name]


@pytest.mark.parametrize("name", sorted(WANTED))
def test_profile_is_consistent(name: str) -> None:
    """Indices count up in the order of PCI addresses; limits are ordered as physics orders them."""
    profile = load_profile(name)
    assert [seat.index for seat in profile.seats] == list(range(len(profile.seats)))
    assert [seat.address for seat in profile.seats] == sorted(seat.address for seat in profile.seats)
    for seat in profile.seats:
        model = seat.model
        assert model.pci.device_id & 0xFFFF == model.pci.subsystem_id & 0xFFFF == 0x10DE
        assert model.power.idle_watts < model.power.limit_watts >= model.power.minimum_watts
        limits = model.thermal
        assert limits.idle_celsius < limits.busy_celsius < limits.maximum_celsius < limits.slowdown_celsius
        assert limits.slowdown_celsius < limits.shutdown_celsius
        assert model.clocks.sm_idle_mhz < model.clocks.sm_mhz
        assert model.memory.reserved_mib < model.memory.total_mib
        assert seat.cpu_affinity


def test_dgx_h100_sits_where_the_real_one_does() -> None:
    """The eight PCI addresses and the two NUMA halves are the real board's."""
    seats = load_profile("dgx-h100").seats
    assert [seat.address[5:7] for seat in seats] == ["1b", "43", "52", "61", "9d", "c3", "d1", "df"]
    assert [seat.numa_node for seat in seats] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_library_is_named_by_cuda_generation_and_driver() -> None:
    """NVML's own version and the release branch follow from the driver's version."""
    driver = load_profile("dgx-a100").driver
    assert (driver.nvml_version, driver.branch) == ("12.550.163.01", 550)


def test_unknown_profile_names_the_nearest_and_all() -> None:
    """A misspelt name is answered with the likely one and the whole list."""
    with pytest.raises(UnknownProfile, match="did you mean 'dgx-h100'") as caught:
        load_profile("dgx-h10")
    assert "gb200-nvl72-node" in str(caught.value)


def test_hopeless_name_gets_no_guess() -> None:
    """Nothing is suggested where nothing is near."""
    with pytest.raises(UnknownProfile) as caught:
        load_profile("zzz")
    assert "did you mean" not in str(caught.value)


def test_profile_may_be_a_file(tmp_path: Path) -> None:
    """A path is read in place of a built-in profile, and the profile is called by its stem."""
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    assert load_profile(str(path)).name == "mine"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (": [", "mapping|parsing|expected"),
        ("summary: x", "driver"),
        (GOOD + "colour: red\n", "colour"),
        (GOOD.replace("t4", "t5"), "No such file"),
        (GOOD.replace("01:00.0", "nowhere"), "is no PCI address"),
        (GOOD.replace('"01:00.0"', '"01:00.0", "0000:01:00.0"'), "share one PCI address"),
        (GOOD + "mig: {0: [1g.5gb]}\n", "Tesla T4 knows no MIG"),
        (GOOD + "mig: {1: []}\n", "mig names GPU 1, the last one is 0"),
        (GOOD + 'nvlink: {wiring: switch, switches: ["05:00.0"]}\n', "differ in length"),
    ],
)
def test_bad_profile_says_file_and_problem(tmp_path: Path, text: str, problem: str) -> None:
    """Whatever is wrong, the message names it in one line."""
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(InvalidProfile, match=problem) as caught:
        load_profile(str(path))
    assert "\n" not in str(caught.value)


def test_missing_file_is_an_invalid_profile(tmp_path: Path) -> None:
    """A path to nothing is named."""
    with pytest.raises(InvalidProfile, match="nothing"):
        load_profile(str(tmp_path / "nothing.yaml"))


def test_identities_are_stable_distinct_and_well_formed() -> None:
    """The same slot of the same node has one UUID for ever, and no other slot has it."""
    uuids = {make_gpu_uuid(name, node, index) for name in ("a", "b") for node in ("n", "m") for index in range(8)}
    assert len(uuids) == 32
    assert make_gpu_uuid("a", "n", 0) in uuids
    assert all([len(part) for part in uuid.split("-")] == [3, 8, 4, 4, 4, 12] for uuid in uuids)
    gpu = make_gpu_uuid("a", "n", 0)
    assert make_mig_uuid(gpu, 7, 0, 1).startswith("MIG-")
    assert make_mig_uuid(gpu, 7, 0, 1) != make_mig_uuid(gpu, 7, 0, 2)
    assert len(make_serial(gpu)) == 13
    assert make_serial(gpu).isdigit()


@pytest.fixture(scope="module")
def mixed() -> Profile:
    return load_profile("mixed")


def test_mixed_node_has_two_models(mixed: Profile) -> None:
    """One node, two products, so that nothing may assume there is only one."""
    assert [seat.model.name for seat in mixed.seats] == ["NVIDIA A100-PCIE-40GB", "NVIDIA L40S", "NVIDIA L40S"]
