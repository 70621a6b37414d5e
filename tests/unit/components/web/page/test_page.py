"""The page: everything is on it, nothing escapes from it, everybody can read it."""

import re

import pytest
from msgspec.structs import replace

from nodeagent.components.web.api.build import Identity, build_state
from nodeagent.components.web.api.records import GpuRecord, GpusRecord
from nodeagent.components.web.assets import POLICY, SCRIPT, STYLE
from nodeagent.components.web.page.details import is_page, render_path
from nodeagent.components.web.page.gpus import decide_style, render_gpu_facts, render_gpus
from nodeagent.components.web.page.markup import esc, prose
from nodeagent.components.web.page.overview import Page as Rendered
from nodeagent.components.web.page.overview import PageView, render_document
from nodeagent.components.web.page.sections import render_device, render_gates_and_components, render_software
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.gpu import Fabric, FabricPhase, Mig, StoredGpu
from nodeagent.model.health import DeviceHealth, Verdict
from nodeagent.model.labels import LabelState
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, ModeHolder
from nodeagent.model.runtime import RuntimeKind, RuntimeState
from tests.support.nodes import make_full_view, make_reader, make_rich_state, make_sample, make_view
from tests.support.samples import make_address, make_gpu, make_mig, make_uuid
from tests.support.texts.html import Page

HOSTILE = "<script>alert(1)</script>\"'&\n\x1b[2J\u202e"
PATHS = (
    "/",
    f"/gpus/{make_uuid(0)}",
    f"/gpus/{make_uuid(1)}",
    f"/gpus/{make_uuid(2)}",
    "/gpus/3",
    "/pods/ml/word",
    "/conditions/gpu-lost",
)


def _render(path: str, view: PageView) -> str:
    page = render_path(path, view)
    assert page is not None
    return render_document(page, "v-1")


def _empty() -> PageView:
    identity = Identity(version="1", node="n", gpu_source="nvml", pid=1, started_seconds=0.0)
    return PageView(state=build_state(identity, make_reader(), [], [], [], now_seconds=1.0), trend={}, history=())


@pytest.mark.parametrize("path", [*PATHS, "/gpus/nobody", "/pods/no/body"])
def test_everybody_can_read_each_page(path: str) -> None:
    """Landmarks, names, headings of tables and links hold on every page."""
    assert Page(_render(path, make_view())).find_faults() == []


def test_the_check_would_see_what_is_missing() -> None:
    """A page without landmarks, names and targets is told its faults."""
    bad = (
        '<html><body><section id="a"></section><svg role="img"></svg><th>x</th>'
        '<a href="#no">y</a><p tabindex="3" style="x">'
    )
    faults = Page(bad + "</p></body></html>").find_faults()
    assert len(faults) >= 9


@pytest.mark.parametrize("path", PATHS)
def test_no_text_from_outside_becomes_markup(path: str) -> None:
    """Names from hardware, pods, errors and settings are shown as they are, and do nothing."""
    tame, hostile = Page(_render(path, make_view())), Page(_render(path.replace("word", "x"), make_view(HOSTILE)))
    own = [tag for tag, _ in hostile.tags if tag == "script"]
    assert own == ["script"]
    assert hostile.find_faults() == []
    if path != "/pods/ml/word":
        assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in tame.tags]
    assert "\x1b" not in hostile.text
    assert "\u202e" not in hostile.text


def test_escaping_leaves_no_markup_and_nothing_unseen() -> None:
    """Quotes and angles are written out, control and direction characters are made visible."""
    assert esc('<a href="x">\'&\x00\u202e') == "&lt;a href=&quot;x&quot;&gt;&#x27;&amp;��"


def test_an_allocation_of_a_gpu_that_is_gone_says_so() -> None:
    """By the number that it had, and its UUID on demand; one that nobody knows goes by its UUID."""
    gone = StoredGpu(uuid=make_uuid(9), name="H100", index=9, address=make_address(9))
    gpus = GpusRecord(generation=1, vanished=(gone,))
    assert render_device(f"{gone.uuid}::1", gpus) == f'<span title="{gone.uuid}::1">GPU 9 (gone) replica 1</span>'
    assert render_device("GPU-x", gpus) == "<code>GPU-x</code>"


def test_commands_stand_out_in_a_remedy() -> None:
    """What is to be typed can be seen and copied, and is still only text."""
    assert prose("run `rm <x>` and `y`") == "run <code>rm &lt;x&gt;</code> and <code>y</code>"
    assert prose("a lone ` stays") == "a lone ` stays"


@pytest.mark.parametrize(
    ("path", "before"),
    [
        ("/", "<p>"),
        ("/", "<br>"),
        ("/", ": "),
        (f"/gpus/{make_uuid(1)}", "</b>"),
        (f"/gpus/{make_uuid(1)}", "</span> "),
    ],
)
def test_commands_stand_out_wherever_they_are_named(path: str, before: str) -> None:
    """In details, reasons, errors and events as in remedies."""
    assert f"{before}run <code>rm x</code> and wait" in _render(path, make_view("run `rm x` and wait"))


def test_everything_a_paged_person_needs_is_on_the_page() -> None:
    """Verdict, conditions with remedy and anchor, each GPU's state and holder, versions, labels and parts."""
    page = Page(_render("/", make_view()))
    for part in (
        "broken word",
        "What to do: word",
        "GPU 0 ✓ healthy",
        "GPU 1 ✗ unhealthy",
        "GPU 2 ✗ lost",
        "42 %",
        "8 / 80 GiB",
        "350 / 700 W",
        "61 °C",
        "readings are 60 s old",
        "ml/word",
        "pod not known yet",
        "forgotten by the kubelet",
        "missing",
        "NVSwitch 0",
        "NUMA node 0",
        "NV18",
        "SYS",
        "XID 79 on GPU 0: word",
        "→ GPU 0 healthy → unhealthy: word",
        "CUDA 13.0",
        "open kernel module",
        "CDI off",
        "not registered",
        "not written yet",
        "to be removed",
        "backing off",
        "waits for g",
        "simulated GPUs",
    ):
        assert part in page.text, part
    assert {"condition-c-word", "condition-d", f"gpu-{make_uuid(0)}"} <= set(page.ids())


def test_sparklines_say_their_range_in_words() -> None:
    """Who does not see the picture hears what it shows."""
    labels = [one.get("aria-label") for one in Page(_render("/", make_view())).all("svg")]
    assert "Utilisation, last 1 min: 0 to 11 %" in labels


def test_a_page_loads_nothing_from_elsewhere() -> None:
    """No address but this agent's own is on the page, and its policy allows none."""
    page = Page(_render("/", make_view()))
    assert page.all("img") == page.all("iframe") == []
    assert [one for one in page.all("link") if not str(one["href"]).startswith("data:")] == []
    assert [one for one in page.all("a") if "://" in str(one["href"])] == []
    assert "://" not in STYLE + SCRIPT
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none'; ")


def test_an_agent_that_knows_nothing_yet_says_so() -> None:
    """Before the first readout every part of the page is there and invents nothing."""
    page = Page(_render("/", _empty()))
    assert "No GPU is known yet." in page.text
    assert "not looked at yet" in page.text
    assert "Labels have not been made yet." in page.text
    assert page.find_faults() == []
    assert "does not know it now" in Page(_render("/gpus/0", _empty())).text


def test_an_address_stays_an_answer_when_its_subject_is_gone() -> None:
    """A link in a ticket says that the pod or GPU is gone, rather than nothing at all."""
    for path in ("/gpus/nobody", "/pods/no/body"):
        page = render_path(path, make_view())
        assert page is not None
        assert page.status == 404
        assert is_page(path)
    for path in ("/nothing", "", "/gpus", "/pods/a", "/gpus/a/b"):
        assert not is_page(path)
        assert render_path(path, make_view()) is None


def test_a_gpu_page_tells_only_of_its_gpu() -> None:
    """Events of other GPUs are left out, allocations of its replicas are not."""
    page = Page(_render(f"/gpus/{make_uuid(0)}", make_view()))
    assert "XID 79 on GPU 0" in page.text
    assert "allocation 9" in page.text
    assert "XID 79" not in Page(_render("/gpus/3", make_view())).text


@pytest.mark.parametrize("is_held", [True, False])
def test_a_gpu_behind_a_closed_door_says_which(*, is_held: bool) -> None:
    """On its tile and on its page; nobody's it is then, but not free, and who has it is named beside."""
    view = make_view()
    assert view.state.gpus is not None
    first, *rest = view.state.gpus.gpus
    holder = ModeHolder(door=AllocationMode.WHOLE, name="allocation 9")
    door = GpuAllocationMode(
        gpu=first.gpu.uuid,
        index=0,
        address=first.gpu.pci.address,
        door=AllocationMode.WHOLE if is_held else AllocationMode.NONE,
        wanted=AllocationMode.NONE,
        reason="set by a person",
        is_open=False,
        waits_for=(holder,) if is_held else (),
    )
    changed = replace(first, door=door, allocations=first.allocations if is_held else ())
    view = replace(view, state=replace(view.state, gpus=replace(view.state.gpus, gpus=(changed, *rest))))
    said = "until allocation 9 is gone, then none" if is_held else "door none (set by a person)"
    tile = next(part for part in _render("/", view).split('<li class="tile') if "GPU 0" in part and "</header>" in part)
    assert said in tile
    assert ">free<" not in tile
    page = _render(f"/gpus/{first.gpu.uuid}", view)
    assert (f"Nobody: {said}" in page) is not is_held
    assert ": free" not in page


def test_a_pod_page_says_how_its_gpus_are() -> None:
    """The person who owns the pod sees at once whether its GPU is the trouble."""
    page = Page(_render("/pods/ml/word", make_view()))
    assert "GPU 0 healthy, GPU 1 unhealthy" in page.text


def test_a_gpu_without_verdict_says_what_is_known() -> None:
    """Not judged is not healthy: a GPU that answers says only that."""
    assert decide_style(GpuRecord(gpu=make_gpu(0))) == ("warn", "not read yet", "")
    assert decide_style(GpuRecord(gpu=make_gpu(0), sample=make_sample(0))) == ("ok", "answers", "")


def test_mig_devices_lie_where_they_are() -> None:
    """A block starts at its memory slice and is as wide as its placement; without one it flows."""
    mig = make_mig(0, 2)
    placed = tuple(
        replace(device, placement_start=start, placement_size=4, profile="3g.40gb")
        for device, start in zip(mig.devices, (4, 7), strict=True)
    )
    state = make_rich_state()
    record = GpuRecord(gpu=make_gpu(0, mig=replace(mig, devices=placed)))
    html = render_gpus(replace(state, gpus=GpusRecord(generation=1, gpus=(record,))), {})
    assert 'class="w4 x4"' in html
    assert 'class="w4"' in html
    assert "○ 3g.40gb" in html
    bare = GpuRecord(gpu=make_gpu(0, mig=Mig(enabled=True, pending=True)))
    html = render_gpus(replace(state, gpus=GpusRecord(generation=1, gpus=(bare,))), {})
    assert "no device has been made" in html
    assert "This node has no GPU." in render_gpus(replace(state, gpus=GpusRecord(generation=1)), {})


def test_readings_of_long_ago_are_no_part_of_what_a_gpu_is() -> None:
    """Nor those of a GPU that is lost; what does not change stays."""
    state = make_rich_state()
    now = GpuRecord(gpu=make_gpu(0), sample=make_sample(0), sample_age_seconds=0.5)
    lost = replace(now, gpu=make_gpu(0, lost="fell off"))
    for record, is_shown in ((now, True), (replace(now, sample_is_old=True), False), (lost, False)):
        text = Page(f"<html>{render_gpu_facts(record, state)}</html>").text
        assert ("ECC errors" in text) is ("Processes" in text) is is_shown
        assert "Board part" in text


@pytest.mark.parametrize(
    ("verdict", "style", "sign"),
    [(Verdict.SUSPECT, "warn", "!"), (Verdict.UNKNOWN, "warn", "!"), (Verdict.UNHEALTHY, "bad", "✗")],
)
def test_the_sign_of_a_mig_device_is_that_of_its_verdict(verdict: Verdict, style: str, sign: str) -> None:
    """As on the tile that it stands on: what needs attention is not broken."""
    gpu = make_gpu(0, mig=make_mig(0, 1))
    uuid = gpu.mig_devices[0].uuid
    health = DeviceHealth(device=uuid, gpu=gpu.uuid, verdict=verdict, since_seconds=1.0, reason="r")
    state = make_rich_state()
    html = render_gpus(replace(state, gpus=GpusRecord(generation=1, gpus=(GpuRecord(gpu=gpu, health=(health,)),))), {})
    block = html[html.index('<ul class="mig"') : html.index("</ul>", html.index('<ul class="mig"'))]
    assert f' {style}" title=' in block
    assert f">{sign} 1g" in block


def test_the_place_in_the_fabric_is_told() -> None:
    """Domain and clique for the node and for the GPU; boards whose fabric ends at their own switches have none."""
    state = make_rich_state()
    assert state.gpus is not None
    inside = Fabric(phase=FabricPhase.COMPLETED, cluster_uuid="5f2c9a1e-73d4-4b0e-9c55-1d8e6a07b4f2", clique_id=7)
    alone = Fabric(phase=FabricPhase.COMPLETED, cluster_uuid="00000000-0000-0000-0000-000000000000")
    gpus = tuple(
        GpuRecord(gpu=replace(make_gpu(number), fabric=fabric)) for number, fabric in enumerate((inside, inside, alone))
    )
    state = replace(state, gpus=GpusRecord(generation=1, gpus=gpus))
    assert f"completed, clique 7 of domain {inside.cluster_uuid}, 2 GPUs" in render_software(state)
    assert alone.cluster_uuid not in render_software(state)
    facts = [render_gpu_facts(record, state) for record in gpus]
    assert "<dt>Fabric clique</dt><dd>7</dd>" in facts[0]
    assert "Fabric clique" not in facts[2]
    assert "<dt>Fabric</dt><dd>–</dd>" in render_gpu_facts(GpuRecord(gpu=replace(make_gpu(0), fabric=None)), state)


def test_what_one_seldom_reads_is_folded_while_all_is_well() -> None:
    """Parts that do not run, and gates that are closed, are never behind a line."""
    state = make_rich_state()
    running = tuple(replace(one, phase="running") for one in state.components)
    gates = tuple(replace(gate, open=True) for gate in state.gates)
    assert "<summary>" in render_gates_and_components(replace(state, components=running, gates=gates))
    stopped = (replace(running[0], phase="failed"), *running[1:])
    assert "<summary>" not in render_gates_and_components(replace(state, components=stopped, gates=gates))
    closed = (replace(gates[0], open=False), *gates[1:])
    assert "<summary>" not in render_gates_and_components(replace(state, components=running, gates=closed))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"conditions": (), "notices": ()}, "Nothing is wrong"),
        ({"labels": LabelState(wanted={}, applied={})}, "Node labels none"),
        (
            {"labels": LabelState(wanted={"a": "1"}, applied={"a": "1"}, held_back={"a": "2", "b": ""})},
            "Held back until it has lasted: a=2, b to go",
        ),
        ({"labels": LabelState(wanted={"a": "1"}, applied={})}, "none is on the node yet 1 labels a 1"),
        ({"plugin": None, "runtime": None, "cdi": None}, "nothing is offered to the kubelet yet"),
        ({"runtime": RuntimeState(kind=RuntimeKind.CRIO)}, "CDI unknown"),
        ({"runtime": RuntimeState(kind=RuntimeKind.DOCKER, through_shim=True)}, "every container is created through"),
        ({"allocations": ()}, "No device is handed out."),
        ({"driver": DriverState(phase=DriverPhase.NOT_LOADED)}, "✗ not loaded"),
    ],
)
def test_what_is_absent_is_said_in_words(change: dict[str, object], words: str) -> None:
    """An empty part says that it is empty."""
    view = make_view()
    assert words in Page(_render("/", replace(view, state=replace(view.state, **change)))).text


def test_a_page_without_events_says_so() -> None:
    """Nothing happened is an answer too."""
    assert "Nothing yet." in Page(_render("/", replace(make_view(), history=()))).text


def test_pages_stay_small() -> None:
    """Eight GPUs with five minutes of curves and MIG fit in what one transfer may weigh."""
    assert len(_render("/", make_full_view(8)).encode()) < 60_000


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_colour_of_text_can_be_read_on_every_ground(theme: int) -> None:
    """The contrast is at least 4.5 to 1 in both themes, as WCAG AA asks of small text."""
    palette = dict(re.findall(r"--(\w+):(#[0-9a-f]{6})", STYLE.split(":root{")[theme + 1]))
    pairs = [
        (text, ground) for text in ("text", "dim", "link", "ok", "warn", "bad") for ground in ("bg", "card", "soft")
    ]
    pairs += [(text, f"{text}bg") for text in ("ok", "warn", "bad")] + [
        ("text", f"{one}bg") for one in ("ok", "warn", "bad")
    ]
    faint = {pair: round(_contrast(palette[pair[0]], palette[pair[1]]), 2) for pair in pairs}
    assert {pair: contrast for pair, contrast in faint.items() if contrast < 4.5} == {}


def test_a_document_carries_the_version_its_script_goes_on_from() -> None:
    """What is on the page already is not sent again."""
    page = Rendered(title="t", node="n", style="ok", time_seconds=5.0, sections={})
    html = render_document(page, "e-3")
    assert 'data-version="e-3" data-time="5.0"' in html
    assert "<nav" not in html
