"""MIG shapes: names as NVML computes them, placements as the driver chooses them."""

import pytest

from nodeagent_sim.gpus.hardware import MIB, GpuModel
from nodeagent_sim.gpus.mig_geometry import GEOMETRIES, compute_memory_eighths, list_shapes, plan_layout
from nodeagent_sim.gpus.profile import list_profiles, load_model, load_profile
from tests.support.mig import MIG_MODELS

MEMORY_PARTS = [
    (40960, {4864: 5, 9856: 10, 19968: 20, 40192: 40}),
    (81920, {9728: 10, 19968: 20, 40192: 40, 80384: 80, 81018: 80}),
    (81559, {9984: 10, 20096: 20, 40448: 40, 81152: 80}),
    (143771, {16384: 18, 33024: 35, 71168: 71, 143104: 141}),
    (183359, {20992: 23, 22528: 23, 45312: 45, 90624: 90}),
    (24576, {5952: 6, 11968: 12}),
    (97887, {23680: 24, 24192: 24, 48512: 48, 97280: 96}),
]
SEVEN = "1g.{}gb 1g.{}gb+me 1g.{}gb 2g.{}gb 3g.{}gb 4g.{}gb 7g.{}gb"
NAMES = {
    "dgx-a100": SEVEN.format(5, 5, 10, 10, 20, 20, 40),
    "a100-80gb-mig": SEVEN.format(10, 10, 20, 20, 40, 40, 80),
    "dgx-h100": SEVEN.format(10, 10, 20, 20, 40, 40, 80),
    "dgx-h200": SEVEN.format(18, 18, 35, 35, 71, 71, 141),
    "dgx-b200": SEVEN.format(23, 23, 45, 45, 90, 90, 180),
    "gb200-nvl72-node": SEVEN.format(23, 23, 47, 47, 93, 93, 186),
    "rtx-pro-6000": (
        "1g.24gb 1g.24gb+me 1g.24gb+gfx 1g.24gb+me.all 1g.24gb-me"
        " 2g.48gb 2g.48gb+gfx 2g.48gb+me.all 2g.48gb-me 4g.96gb 4g.96gb+gfx"
    ),
    "t4": "",
    "l40s": "",
}
NAMES_OF_OTHERS = {
    "a30": "1g.6gb 1g.6gb+me 2g.12gb 2g.12gb+me 4g.24gb",
    "h100-nvl-94gb": SEVEN.format(12, 12, 24, 24, 47, 47, 94),
    "h100-96gb": SEVEN.format(12, 12, 24, 24, 48, 48, 96),
}
"""Of models that no simulated node has."""
MEMORY = {
    "dgx-a100": "4864 4864 9856 9856 19968 19968 40192",
    "a100-80gb-mig": "9728 9728 19968 19968 40192 40192 80384",
    "dgx-h100": "9984 9984 20096 20096 40448 40448 81152",
    "dgx-h200": "16384 16384 33024 33024 71168 71168 143104",
    "dgx-b200": "22528 22528 45312 45312 90624 90624 182016",
}
"""Of each profile, in the order of the names, as listings of real boards have it."""
A100_80 = load_profile("a100-80gb-mig").seats[0].model
MODELS = {seat.model.name: seat.model for name in list_profiles() for seat in load_profile(name).seats}
MODELS |= {model.name: model for model in map(load_model, MIG_MODELS)}


@pytest.mark.parametrize(
    ("total_mib", "memory_mib", "gigabytes"),
    [(total, memory, part) for total, parts in MEMORY_PARTS for memory, part in parts.items()],
)
def test_memory_part_is_rounded_as_nvml_rounds(total_mib: int, memory_mib: int, gigabytes: int) -> None:
    """Eighths up, halves away from zero: 70.5 gives 71 and 22.5 gives 23."""
    assert compute_memory_eighths(memory_mib, total_mib * MIB) == gigabytes


@pytest.mark.parametrize("profile", sorted(NAMES))
def test_shapes_have_the_names_people_know(profile: str) -> None:
    """Each board offers the profiles of its table, by name and in order."""
    assert " ".join(shape.name for shape in list_shapes(load_profile(profile).seats[0].model)) == NAMES[profile]


@pytest.mark.parametrize("model", sorted(NAMES_OF_OTHERS))
def test_shapes_of_other_models_have_the_names_people_know(model: str) -> None:
    """Boards that no simulated node has are cut as they are."""
    assert " ".join(shape.name for shape in list_shapes(load_model(model))) == NAMES_OF_OTHERS[model]


@pytest.mark.parametrize("profile", sorted(MEMORY))
def test_shapes_have_the_memory_of_the_real_boards(profile: str) -> None:
    """What NVML lists for a profile is not its name times 1024."""
    shapes = list_shapes(load_profile(profile).seats[0].model)
    assert " ".join(str(shape.row.memory_mib) for shape in shapes) == MEMORY[profile]


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_full_number_of_each_shape_fits(model: GpuModel) -> None:
    """The maximum of each profile alone can be created, one more cannot, and no two overlap."""
    for shape in list_shapes(model):
        most = shape.shape.instances
        placed = plan_layout(model, (shape.name,) * most)
        slots = [slot for one in placed for slot in range(one.start, one.start + shape.shape.size)]
        assert len(set(slots)) == len(slots)
        assert len({one.gpu_instance_id for one in placed}) == most
        with pytest.raises(ValueError, match="does not fit"):
            plan_layout(model, (shape.name,) * (most + 1))


@pytest.mark.parametrize("model", [model for model in MODELS.values() if model.mig], ids=lambda model: model.name)
def test_shapes_of_a_model_agree_with_its_whole(model: GpuModel) -> None:
    """No shape has more memory or SMs than the GPU, and every shape of the geometry has its numbers."""
    assert model.mig is not None
    assert set(model.mig.shapes) == set(GEOMETRIES[model.mig.geometry].shapes)
    for row in model.mig.shapes.values():
        assert row.memory_mib <= model.memory.total_mib
        assert row.multiprocessors <= model.multiprocessors


@pytest.mark.parametrize(
    ("names", "starts"),
    [
        (("3g.40gb", "3g.40gb"), [4, 0]),
        (("1g.10gb", "2g.20gb", "1g.10gb", "3g.40gb"), [4, 2, 0, 1]),
        (("2g.20gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"), [4, 0, 1, 2, 3, 6]),
        (("4g.40gb", "3g.40gb"), [0, 4]),
        (("7g.80gb",), [0]),
        ((), []),
    ],
)
def test_driver_chooses_placements(names: tuple[str, ...], starts: list[int]) -> None:
    """Wide instances go to the back, single slices to the front, and 3g leaves room for 4g."""
    assert [one.start for one in plan_layout(A100_80, names)] == starts


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("9g.90gb",), "no MIG profile '9g.90gb': choose from 1g.10gb"),
        (("4g.40gb", "4g.40gb"), "does not fit"),
        (("3g.40gb", "3g.40gb", "1g.10gb"), "does not fit"),
        (("7g.80gb", "1g.10gb"), "does not fit"),
    ],
)
def test_impossible_layout_says_why(names: tuple[str, ...], problem: str) -> None:
    """An unknown name and a full GPU are told apart."""
    with pytest.raises(ValueError, match=problem):
        plan_layout(A100_80, names)
