"""What a container that starts is given: what it has, what its scheduler chose, or what fits."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from nodeagent.components.fractions.bind import (
    HELD_ALL_THE_SAME,
    Choice,
    Start,
    check_memory,
    check_request,
    choose,
    find_bindings,
    is_same_pod,
    list_names,
    plan_correction,
)
from nodeagent.components.fractions.decide import FractionView
from nodeagent.config.sections.fractions import EnforcementName, FractionsSettings
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.errors import FractionsUnavailable, NoRoom, RequestInvalid
from nodeagent.model.fractions import ContainerRequest, PodRequest
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import Binding, Enforcement, FractionTable, GpuFraction
from nodeagent.model.ports import ContainerDevices
from nodeagent.rules.fractions.profiles import CoresProfile, CountedProfile, plan_profile
from tests.support.fractions import (
    make_bound,
    make_caller,
    make_parted,
    make_pod,
    make_promise,
    make_table,
    make_view,
    part,
)
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory
from tests.support.journals import CORE, MEMORY
from tests.support.placement import GIB

SHARE = ResourceName("nvidia.com/gpu")
BLOCKS = tuple(f"m{number}" for number in range(32))
"""8 GiB in blocks."""
PROMISED = (make_promise(1, "abc"), make_promise(2, BLOCKS, MEMORY))
CALLER = make_caller("abc", BLOCKS)


def request(**fields: object) -> PodRequest:
    """What the API server says of the pod `a`."""
    return PodRequest(pod=make_pod(), **fields)  # type: ignore[arg-type]  # each test knows which


def start_with(view: FractionView | None = None, table: FractionTable | None = None, **fields: object) -> list[int]:
    """The indexes of the GPUs that the caller of three cores and 8 GiB is given."""
    known = view or make_view()
    choice = choose(Start(CALLER, request(**fields)), known, table or make_table(PROMISED), 5.0)
    return [known.inventory.gpus.index(gpu) for gpu in known.gpus if gpu.uuid in {p.gpu for p in choice.binding.parts}]


def test_a_container_is_bound_to_what_it_asks_for() -> None:
    """Cores and blocks are counted; the binding redeems both promises and keeps the name that was told."""
    choice = choose(Start(CALLER, None), make_view(), make_table(PROMISED), 5.0)
    assert choice.binding.parts == (part(0, 3, 8),)
    assert (choice.binding.number, choice.binding.reservations, choice.leaving) == (0, (1, 2), ())
    assert (choice.binding.pod, choice.binding.container, choice.binding.since_seconds) == (make_pod(), "main", 5.0)
    assert choice.binding.cdi_name == "k8s.device-plugin.nvidia.com/part=p1"
    assert choice.placement is not None
    assert choice.binding.why == choice.placement.rule == "the fullest GPU that still has room"
    assert choice.binding.core_limit is None


def test_whole_gpus_need_no_memory() -> None:
    """Two hundred cores are two GPUs with all that they have."""
    cores = [f"c{number}" for number in range(200)]
    choice = choose(Start(make_caller(cores), None), make_view(), make_table([make_promise(1, cores)]), 5.0)
    assert choice.binding.parts == (part(0, 100, 32), part(1, 100, 32))


def test_the_same_container_is_given_the_same_again() -> None:
    """Whatever has become of the GPUs meanwhile; also where a source tells less of the pod than before."""
    bound = make_bound(3, (1, 2), part(1, 3, 8))
    table = make_table(PROMISED, [bound])
    names = (make_pod(), replace(make_pod(), uid=""), PodIdentity(namespace="", name="", uid="uid-a"))
    for pod in names:
        choice = choose(Start(replace(CALLER, pod=pod), None), make_view(), table, 9.0)
        assert choice == Choice(bound)
    for pod in names:
        half = make_table(PROMISED, [replace(bound, pod=pod)])
        assert choose(Start(CALLER, None), make_view(), half, 9.0).binding == bound


def test_containers_that_share_all_ids_share_a_binding_with_all_their_names() -> None:
    """An init container and the one after it were told a name each, and both mean the same GPUs."""
    promises = (*PROMISED, make_promise(3, "cba"), make_promise(4, reversed(BLOCKS), MEMORY))
    choice = choose(Start(CALLER, None), make_view(), make_table(promises), 5.0)
    assert choice.binding.reservations == (1, 3, 2, 4)
    bound = replace(choice.binding, number=5)
    table = make_table(promises, [bound])
    assert list_names(table, bound) == ("p1", "p3")
    assert choose(Start(CALLER, None), make_view(), table, 9.0) == Choice(bound)


def test_a_container_after_one_with_some_of_its_ids_takes_its_place() -> None:
    """The kubelet gives an id to nobody else before the first has ended, so its part is free for the second."""
    first = make_bound(5, (3,), part(0, 100, 32))
    alone = make_view(make_parted(1))
    table = make_table([*PROMISED, make_promise(3, "az")], [first])
    choice = choose(Start(CALLER, None), alone, table, 9.0)
    assert (choice.leaving, choice.binding.parts) == ((5,), (part(0, 3, 8),))


def test_ids_that_were_promised_anew_are_another_containers() -> None:
    """A pod of the same name after one of which nobody has seen the end: it was told another name."""
    bound = make_bound(5, (1, 2), part(1, 3, 8))
    again = (make_promise(6, "abc"), make_promise(7, BLOCKS, MEMORY))
    pod = replace(make_pod(), uid="")
    choice = choose(Start(replace(CALLER, pod=pod), None), make_view(), make_table([*PROMISED, *again], [bound]), 9.0)
    assert (choice.leaving, choice.binding.reservations) == ((5,), (6, 7))
    assert choice.binding.cdi_name.endswith("=p6")
    other = make_bound(5, (1, 2), part(1, 3, 8), pod=make_pod("b"))
    choice = choose(Start(CALLER, None), make_view(), make_table([*PROMISED, *again], [other]), 9.0)
    assert (choice.leaving, choice.binding.parts) == ((), (part(1, 3, 8),))


def test_a_container_that_starts_under_other_ids_is_no_second_one() -> None:
    """A kubelet that has lost its notes gives it others; what other containers have, and other pods, stays."""
    alone, mine = make_view(make_parted(1)), make_bound(5, (3,), part(0, 100, 32))
    promises = [*PROMISED, make_promise(3, "xyz")]
    assert choose(Start(CALLER, None), alone, make_table(promises, [mine]), 9.0).leaving == (5,)
    for other in (replace(mine, container="side"), replace(mine, pod=make_pod(uid="later"))):
        with pytest.raises(NoRoom):
            choose(Start(CALLER, None), alone, make_table(promises, [other]), 9.0)


@pytest.mark.parametrize("promises", [(), PROMISED[1:]])
def test_nothing_is_given_that_was_not_promised(promises: Iterable[object]) -> None:
    """The runtime was told a name that stands in the promise; without it nothing could be meant by that name."""
    with pytest.raises(FractionsUnavailable, match=r"no promise of the 3 ids of tencent\.com/vcuda-core"):
        choose(Start(CALLER, None), make_view(), make_table(promises), 5.0)  # type: ignore[arg-type]  # as above


def test_without_room_the_reason_says_what_is_free() -> None:
    """Each GPU's own reason."""
    table = make_table(PROMISED, [make_bound(9, (8,), part(0, 98, 1), pod=make_pod("b"))])
    with pytest.raises(NoRoom, match=r"no room for 3 cores and 8 GiB of memory of one GPU: GPU 0: .*2"):
        choose(Start(CALLER, None), make_view(make_parted(1)), table, 5.0)


def test_what_nobody_can_be_given_is_refused_with_the_remedy() -> None:
    """Cores without memory, more memory than any GPU has, one GPU and a bit."""
    with pytest.raises(RequestInvalid, match=r"3 without tencent\.com/vcuda-memory"):
        choose(Start(make_caller("abc"), None), make_view(), make_table(PROMISED), 5.0)
    with pytest.raises(RequestInvalid, match="give at most 16"):
        choose(Start(CALLER, None), make_view(make_parted(1, 4 * GIB)), make_table(PROMISED), 5.0)


def test_a_request_that_can_never_be_served_is_refused_at_the_admission() -> None:
    """A pod that fails at once is seen; one that never starts is not."""
    profile = plan_profile(FractionsSettings())
    assert isinstance(profile, CoresProfile)
    with pytest.raises(RequestInvalid, match="150 is more than one GPU"):
        check_request(profile, profile.core, 150)
    check_request(profile, profile.core, 300)
    check_request(profile, profile.memory, 150)
    check_request(CountedProfile(), SHARE, 150)


CONTAINERS = (ContainerRequest(name="setup", is_init=True), ContainerRequest(name="main"))


def test_the_schedulers_choice_is_obeyed() -> None:
    """By the container's number among those that are no init containers; a switch turns that off."""
    notes = {"tencent.com/predicate-gpu-idx-0": "1"}
    assert start_with(annotations=notes, containers=CONTAINERS) == [1]
    assert start_with(annotations=notes, containers=CONTAINERS[:1]) == [0]
    choice = choose(
        Start(CALLER, request(annotations=notes, containers=CONTAINERS), FractionsSettings(use_scheduler_choice=False)),
        make_view(), make_table(PROMISED), 5.0,
    )  # fmt: skip
    assert choice.binding.parts[0].gpu == gpu_uuid(0)


def test_a_choice_that_makes_no_sense_is_told_and_one_without_room_is_passed_over() -> None:
    """Neither keeps the container from starting."""
    notes = {"tencent.com/predicate-gpu-idx-0": "9"}
    choice = choose(
        Start(CALLER, request(annotations=notes, containers=CONTAINERS)), make_view(), make_table(PROMISED), 5.0
    )
    assert "names GPU '9'" in choice.problem
    assert choice.binding.parts
    full = make_table(PROMISED, [make_bound(9, (8,), part(1, 98, 1), pod=make_pod("b"))])
    notes = {"tencent.com/predicate-gpu-idx-0": "1"}
    assert start_with(table=full, annotations=notes, containers=CONTAINERS) == [0]


def test_a_pod_whose_gpu_has_left_the_node_is_not_corrected() -> None:
    """Nobody can say by which number schedulers would know it."""
    said = request(annotations={"tencent.com/predicate-gpu-idx-0": "0"}, containers=CONTAINERS)
    found = plan_correction(make_view(), said, make_bound(1, (), part(1, 30, 8)))
    assert found is not None
    assert found.annotations["tencent.com/predicate-gpu-idx-0"] == "1"
    assert plan_correction(make_view(), said, make_bound(1, (), part(7, 30, 8))) is None


def test_the_numa_node_of_the_ids_is_a_hint() -> None:
    """The topology manager has chosen processors near them."""
    inventory = make_inventory([replace(make_gpu(index, numa_node=index), memory_total_bytes=32 * GIB)
                                for index in range(2)])  # fmt: skip
    cores = ["core-n1-g00000000-0"]
    table = make_table([make_promise(1, cores), PROMISED[1]])
    choice = choose(Start(make_caller(cores, BLOCKS), None), make_view(inventory), table, 5.0)
    assert choice.binding.parts[0].gpu == gpu_uuid(1)


def test_a_pod_may_use_more_compute_than_its_part() -> None:
    """Its annotation says how much while nobody else does; nonsense in it keeps the container from starting."""
    said = request(annotations={"tencent.com/vcuda-core-limit": "60"})
    assert choose(Start(CALLER, said), make_view(), make_table(PROMISED), 5.0).binding.core_limit == 60
    said = request(annotations={"tencent.com/vcuda-core-limit": "2"})
    with pytest.raises(RequestInvalid, match="vcuda-core-limit"):
        choose(Start(CALLER, said), make_view(), make_table(PROMISED), 5.0)


def test_shares_are_as_large_as_the_pod_says() -> None:
    """Of each container its own; without the pod nobody knows."""
    view = make_view(profile="hami")
    promised = make_table([make_promise(1, "s", SHARE)])
    caller = make_caller([DeviceId("s")])
    limits = {"nvidia.com/gpumem": "4096", "nvidia.com/gpucores": "25"}
    said = request(containers=(CONTAINERS[0], ContainerRequest(name="main", limits=limits)))
    choice = choose(Start(caller, said), view, promised, 5.0)
    assert (choice.binding.parts, choice.binding.core_limit) == ((part(0, 25, 4),), None)
    for unknown in (None, request(containers=CONTAINERS[:1])):
        with pytest.raises(RequestInvalid, match="the API server has not told yet"):
            choose(Start(caller, unknown), view, promised, 5.0)
    notes = {"hami.io/vgpu-devices-allocated": f";{gpu_uuid(1)},NVIDIA,4096,25:"}
    choice = choose(Start(caller, replace(said, annotations=notes)), view, promised, 5.0)
    assert choice.binding.parts == (part(1, 25, 4),)


GIVEN_COMPUTE = {"nvidia.com/gpucores": "25"}


@pytest.mark.parametrize(
    ("setup", "main", "given", "core_limit"),
    [
        ({"nvidia.com/gpumem": "1024"}, {"nvidia.com/gpumem": "8192"}, part(0, 0, 8), None),
        ({"nvidia.com/gpumem": "8192"}, {"nvidia.com/gpumem": "1024"}, part(0, 0, 8), None),
        (GIVEN_COMPUTE | {"nvidia.com/gpumem": "1024"}, {"nvidia.com/gpumem": "8192"}, part(0, 25, 8), 100),
        ({"nvidia.com/gpumem-percentage": "50"}, GIVEN_COMPUTE | {"nvidia.com/gpumem": "1024"}, part(0, 25, 16), 100),
        ({"nvidia.com/gpumem": "1024"}, {}, part(0, 100, 32), None),
    ],
)
@pytest.mark.parametrize("containers", [("setup", "main"), ("main", "setup")])
def test_shares_that_two_containers_have_in_turn_are_as_large_as_the_larger(
    containers: tuple[str, ...],
    setup: dict[str, str],
    main: dict[str, str],
    given: GpuFraction,
    core_limit: int | None,
) -> None:
    """Nothing tells which of them starts, and neither is held to less than it asked for."""
    caller = replace(make_caller([DeviceId("s")]), containers=containers)
    said = request(
        containers=(
            ContainerRequest(name="setup", is_init=True, limits=setup),
            ContainerRequest(name="main", limits=main),
        )
    )
    promised = make_table([make_promise(1, "s", SHARE), make_promise(2, "s", SHARE)])
    binding = choose(Start(caller, said), make_view(profile="hami"), promised, 5.0).binding
    assert (binding.parts, binding.core_limit) == ((given,), core_limit)
    for half in (said.containers[:1], said.containers[1:]):
        with pytest.raises(RequestInvalid, match="the API server has not told yet"):
            choose(Start(caller, replace(said, containers=half)), make_view(profile="hami"), promised, 5.0)


@pytest.mark.parametrize(
    ("said", "word", "enforcement"),
    [
        (None, "advise", Enforcement.ADVISE),
        (None, "library", Enforcement.LIBRARY),
        ("library", "advise", Enforcement.LIBRARY),
        ("library", "mps", Enforcement.LIBRARY),
    ],
)
def test_a_pod_may_choose_what_holds_it_to_its_part(
    said: str | None, word: EnforcementName, enforcement: Enforcement
) -> None:
    """Else the configuration says it; whole GPUs need nothing."""
    pod = request(annotations={} if said is None else {"nodeagent.io/gpu-enforcement": said})
    settings = FractionsSettings(enforcement=word)
    binding = choose(Start(CALLER, pod, settings), make_view(), make_table(PROMISED), 5.0).binding
    assert binding.enforcement is enforcement
    whole = [f"c{number}" for number in range(100)]
    table = make_table([make_promise(1, whole)])
    alone = choose(Start(make_caller(whole), pod, settings), make_view(), table, 5.0)
    assert alone.binding.enforcement is Enforcement.ADVISE


def test_a_pod_frees_itself_of_its_limits_only_where_that_is_allowed() -> None:
    """By default it is held all the same, and the reason of its choice says so."""
    pod = request(annotations={"nodeagent.io/gpu-enforcement": "advise"})

    def bind(*, allowed: bool) -> Binding:
        settings = FractionsSettings(enforcement="library", allow_advise=allowed)
        return choose(Start(CALLER, pod, settings), make_view(), make_table(PROMISED), 5.0).binding

    assert bind(allowed=True).enforcement is Enforcement.ADVISE
    held = bind(allowed=False)
    assert held.enforcement is Enforcement.LIBRARY
    assert held.why == f"{bind(allowed=True).why}; {HELD_ALL_THE_SAME}"
    settings = FractionsSettings(enforcement="advise")
    advised = choose(Start(CALLER, pod, settings), make_view(), make_table(PROMISED), 5.0).binding
    assert (advised.enforcement, HELD_ALL_THE_SAME in advised.why) == (Enforcement.ADVISE, False)


def test_an_enforcement_that_there_is_not_is_refused() -> None:
    """The words are in the answer."""
    pod = request(annotations={"nodeagent.io/gpu-enforcement": "prayer"})
    with pytest.raises(RequestInvalid, match="'prayer'; give one of advise, library, mps"):
        choose(Start(CALLER, pod), make_view(), make_table(PROMISED), 5.0)


MPS = FractionsSettings(enforcement="mps")


def test_a_part_that_mps_holds_is_alone_with_its_like() -> None:
    """Beside others of its kind it is on the fullest GPU, beside any other it is not; whole GPUs are nobody's part."""
    some = make_bound(7, (), part(0, 30, 8), pod=make_pod("b"))
    for enforcement, given in ((Enforcement.LIBRARY, 1), (Enforcement.MPS, 0)):
        table = make_table(PROMISED, [replace(some, enforcement=enforcement)])
        choice = choose(Start(CALLER, None, MPS), make_view(has_mps=True), table, 5.0)
        assert (choice.binding.parts, choice.binding.enforcement) == ((part(given, 3, 8),), Enforcement.MPS)
        choice = choose(Start(CALLER, None), make_view(), table, 5.0)
        assert choice.binding.parts == (part(1 - given, 3, 8),)
    table = make_table(PROMISED, [replace(some, enforcement=Enforcement.MPS)])
    with pytest.raises(NoRoom, match="GPU 0: its parts are held by MPS"):
        choose(Start(CALLER, None), make_view(make_parted(1)), table, 5.0)


def test_mps_is_refused_where_it_cannot_hold() -> None:
    """Where nobody looks after daemons, and over several GPUs: a process is the client of one daemon."""
    pod = request(annotations={"nodeagent.io/gpu-enforcement": "mps"})
    with pytest.raises(RequestInvalid, match="nobody looks after MPS daemons on this node"):
        choose(Start(CALLER, pod), make_view(), make_table(PROMISED), 5.0)
    assert choose(Start(CALLER, pod), make_view(has_mps=True), make_table(PROMISED), 5.0).binding.enforcement == "mps"
    limits = {"nvidia.com/gpumem": "4096", "nvidia.com/gpucores": "25"}
    said = request(containers=(ContainerRequest(name="main", limits=limits),))
    table, caller = make_table([make_promise(1, "st", SHARE)]), make_caller([DeviceId("s"), DeviceId("t")])
    with pytest.raises(RequestInvalid, match="parts of 2 GPUs are asked for"):
        choose(Start(caller, said, MPS), make_view(has_mps=True, profile="hami"), table, 5.0)


def test_a_binding_is_found_by_pod_and_container() -> None:
    table = make_table(bindings=[make_bound(1, (1,)), make_bound(2, (2,), pod=make_pod("b"))])
    for pod, container, numbers in (("a", "", [1]), ("ns/b", "main", [2]), ("a", "side", []), ("x/a", "", [])):
        assert [each.number for each in find_bindings(table, pod, container)] == numbers


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (make_pod("a"), make_pod("a"), True),
        (make_pod("a"), make_pod("a", uid="later"), False),
        (make_pod("a"), PodIdentity(namespace="ns", name="a"), True),
        (make_pod("a"), PodIdentity(namespace="ns", name="b"), False),
        (make_pod("a"), PodIdentity(namespace="", name="", uid="uid-a"), True),
    ],
)
def test_a_pod_is_the_same_by_uid_or_else_by_name(one: PodIdentity, other: PodIdentity, *, same: bool) -> None:
    """A stateful set's next pod has the name of the one before."""
    assert is_same_pod(one, other) is same


def test_memory_alone_is_told_at_the_start() -> None:
    """A container without cores is given no GPU, and its author learns why; one with both starts."""
    holder = ContainerDevices(pod=CALLER.pod, container="main", resource=MEMORY, devices=CALLER.memory)
    cores = ContainerDevices(pod=CALLER.pod, container="main", resource=CORE, devices=CALLER.cores)
    with pytest.raises(RequestInvalid, match=r"without tencent\.com/vcuda-core"):
        check_memory(CoresProfile(), (holder,), CALLER.memory)
    check_memory(CoresProfile(), (holder, cores), CALLER.memory)
    check_memory(CoresProfile(), (), CALLER.memory)
    check_memory(CountedProfile(), (holder,), CALLER.memory)
