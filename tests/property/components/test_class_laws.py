"""Laws of parts where a class of devices is divided beside the driver's GPUs, for any order of coming and going."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.components.allocations.roles.fractions import refuse_binding
from nodeagent.components.fractions.bind import Start, choose
from nodeagent.components.fractions.class_views import plan_class_view
from nodeagent.components.fractions.decide import FractionView, list_resources
from nodeagent.config.sections.fractions import FractionsSettings
from nodeagent.model.devices import DeviceClassState
from nodeagent.model.errors import AllocationError
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import Enforcement, FractionTable, Reservation
from nodeagent.rules.devices.group import render_id
from tests.component.fractions.classes import make_device
from tests.support.fractions import make_caller, make_pod, make_view, used
from tests.support.placement import GIB

AMD, INTEL = ResourceName("amd.com/gpu"), ResourceName("gpu.intel.com/xe")
SIZES = st.sampled_from((1, 16, 64))
STORY = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from((1, 30, 50, 99, 100, 200)),
        st.sampled_from((1, 8, 64, 300)),
        st.booleans(),
        st.booleans(),
    ),
    max_size=25,
)


@st.composite
def class_views(draw: st.DrawFn, resource: ResourceName) -> FractionView:
    """Up to three devices, some ill and some held whole by somebody."""
    devices = [
        make_device(render_id(resource, f"d{number}"), draw(SIZES) * GIB, draw(st.sampled_from(("", "", "ill"))))
        for number in range(draw(st.integers(1, 3)))
    ]
    holders = {str(device.id): "somebody" for device in devices if draw(st.integers(0, 5)) == 0}
    state = DeviceClassState(resource=resource, divisible=True, devices=tuple(devices))
    return plan_class_view(state, FractionsSettings(), "", holders)


class Node:
    """What is promised and bound of all kinds together, in one journal."""

    def __init__(self) -> None:
        self.table, self._number = FractionTable(), 0

    def start(self, view: FractionView, name: str, cores: int, blocks: int) -> None:
        """A container named as every other of its pod starts, with ids that nobody has."""
        core, memory = list_resources(view.profile)
        asked = {core: cores, memory: blocks}
        ids = {
            resource: tuple(DeviceId(f"{resource}-{name}-{number}") for number in range(count))
            for resource, count in asked.items()
        }
        for resource, devices in ids.items():
            self._number += 1
            promise = Reservation(
                number=self._number,
                resource=resource,
                devices=devices,
                since_seconds=0.0,
                cdi_name=f"k8s.device-plugin.nvidia.com/part=p{self._number}" if resource == core else "",
            )
            self.table = replace(self.table, reservations={**self.table.reservations, self._number: promise})
        caller = make_caller(ids[core], ids[memory], make_pod(name))
        choice = choose(Start(caller, None), view, self.table, 0.0)
        assert choice.leaving == ()
        self._number += 1
        binding = replace(choice.binding, number=self._number)
        assert refuse_binding(self.table, binding, view.capacities) == ""
        self.table = replace(self.table, bindings={**self.table.bindings, self._number: binding})

    def end(self, number: int) -> None:
        ended = set(self.table.bindings[number].reservations)
        self.table = FractionTable(
            reservations={key: each for key, each in self.table.reservations.items() if key not in ended},
            bindings={key: each for key, each in self.table.bindings.items() if key != number},
        )


@given(class_views(AMD), class_views(INTEL), STORY, st.integers())
def test_no_device_of_any_class_is_given_more_than_it_has(
    amd: FractionView, intel: FractionView, story: list[tuple[int, int, int, bool, bool]], seed: int
) -> None:
    """Two classes and the driver's GPUs side by side; a pod may have parts of all three and lose none."""
    views, node, chance = (amd, intel, make_view()), Node(), Random(seed)  # plausible, not secret
    whole = {each.gpu: each for view in views for each in view.capacities}
    for number, (kind, cores, blocks, ends, is_same_pod) in enumerate(story):
        if ends and node.table.bindings:
            node.end(chance.choice(sorted(node.table.bindings)))
        view = views[kind]
        holders = {(each.pod.name, view.owns(each)) for each in node.table.bindings.values()}
        name = "all" if is_same_pod and ("all", True) not in holders else f"pod-{number}"
        try:
            node.start(view, name, cores, blocks)
        except AllocationError:
            pass
        else:
            newest = node.table.bindings[max(node.table.bindings)]
            assert view.owns(newest)
            assert not any(view.unfit[each.gpu] for each in newest.parts)
            assert (newest.enforcement is Enforcement.COUNTED) is bool(view.device_class)
        for gpu, (given_cores, given_bytes, _) in used(node.table).items():
            assert given_cores <= whole[gpu].cores
            assert given_bytes <= whole[gpu].memory_bytes
