"""One look at a runtime, and what follows from it."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeagent.components.runtime.choose import ChosenRuntime, NoRuntime
from nodeagent.components.runtime.plan import RuntimePlan, Wanted
from nodeagent.components.runtime.probe import Probe, ShimInPlace, decide_shim, probe_runtime, render_state
from nodeagent.config.sections.containers import RuntimeSettings
from nodeagent.config.sections.shim import ShimSettings
from nodeagent.model.ports import ContainerRuntime
from nodeagent.model.runtime import (
    ConfigTree,
    FileChange,
    RuntimeCandidate,
    RuntimeEvidence,
    RuntimeFlavour,
    RuntimeKind,
)
from tests.component.runtime.fakes import CRIO, START, WRAPPER, FakeRuntime

CHANGE = FileChange(path="/x", before=None, after=b"")
CONTAINERD = ChosenRuntime(
    kind=RuntimeKind.CONTAINERD, flavour=RuntimeFlavour.PLAIN, socket="/s", config_file="/c", version="2.1.4"
)
SHIM = ShimInPlace(program="/shim", names=("/name",), default=True)
CLASS = replace(RuntimeSettings(), legacy_class=True)


def make_look(runtime: ChosenRuntime, plan: RuntimePlan, wanted: Wanted | None = None) -> Probe:
    return Probe(runtime=runtime, tree=ConfigTree(files=()), wanted=wanted or Wanted(), plan=plan)


@pytest.mark.parametrize(
    ("running", "files", "takes", "restart"),
    [
        (True, True, True, False),
        (False, True, False, True),
        (True, False, True, False),
        (False, False, False, False),
        (None, True, True, False),
        (None, False, False, False),
    ],
)
def test_what_the_daemon_says_counts_more_than_its_files(
    running: bool | None, files: bool, takes: bool, restart: bool
) -> None:
    """A restart is needed only where files that are right are known not to be in force."""
    look = make_look(replace(CONTAINERD, cdi_in_force=running), RuntimePlan(cdi_enabled=files))
    assert (look.takes_cdi, bool(look.restart_needed)) == (takes, restart)


@pytest.mark.parametrize(("handlers", "restart"), [(("runc",), True), (("runc", "nvidia"), False), (None, False)])
def test_a_class_that_is_only_written_waits_for_a_restart(handlers: tuple[str, ...] | None, restart: bool) -> None:
    """A runtime that does not list its classes is taken at its files' word."""
    runtime = replace(CONTAINERD, cdi_in_force=True, handlers=handlers)
    wanted = Wanted(cdi=True, wrapper=WRAPPER)
    assert bool(make_look(runtime, RuntimePlan(cdi_enabled=True), wanted).restart_needed) is restart
    for plan in (RuntimePlan(cdi_enabled=True, changes=(CHANGE,)), RuntimePlan(cdi_enabled=True, problem="no")):
        look = make_look(runtime, plan, wanted)
        assert (look.restart_needed, look.is_in_force) == ("", False)


@pytest.mark.parametrize(
    ("programs", "default", "restart"),
    [
        ({"nvidia": SHIM.program}, "nvidia", False),
        ({"nvidia": "/name"}, "nvidia", False),
        ({}, "", False),
        ({"nvidia": WRAPPER}, "nvidia", True),
        ({"nvidia": SHIM.program}, "runc", True),
    ],
)
def test_a_class_that_is_another_program_waits_for_a_restart(
    programs: dict[str, str], default: str, restart: bool
) -> None:
    """So does a default that is another class, of daemons that say it."""
    runtime = replace(CONTAINERD, cdi_in_force=True, handlers=("nvidia",), programs=programs, default_handler=default)
    wanted = Wanted(cdi=True, wrapper=SHIM.program, names=SHIM.names, default=True)
    assert bool(make_look(runtime, RuntimePlan(cdi_enabled=True), wanted).restart_needed) is restart


@pytest.mark.parametrize(
    ("programs", "default", "shim", "goes"),
    [
        ({"nvidia": "/shim"}, "nvidia", SHIM, True),
        ({"nvidia": "/name"}, "nvidia", SHIM, True),
        ({"nvidia": "/name.legacy"}, "nvidia", replace(SHIM, names=("/name.legacy",)), False),
        ({"nvidia": "/shim"}, "nvidia", replace(SHIM, takes_names=False), False),
        ({"nvidia": "/shim"}, "runc", SHIM, False),
        ({"nvidia": "/other"}, "nvidia", SHIM, False),
        ({"nvidia": "/shim"}, "nvidia", None, False),
        ({}, "", SHIM, False),
    ],
)
def test_every_container_goes_through_a_shim_that_is_the_default_by_the_daemons_word(
    programs: dict[str, str], default: str, shim: ShimInPlace | None, goes: bool
) -> None:
    """What files say and nobody runs gives no container its devices."""
    runtime = replace(CONTAINERD, programs=programs, default_handler=default)
    found = replace(make_look(runtime, RuntimePlan(cdi_enabled=False)), shim=shim)
    assert render_state(found).through_shim is goes


async def test_a_shim_in_place_is_the_class(tmp_path: Path) -> None:
    """Whatever NVIDIA's program would be; and of a release too old for CDI nothing else is wanted."""
    for settings in (RuntimeSettings(), CLASS):
        found = await probe_runtime(FakeRuntime(START), settings, shim=SHIM)
        assert isinstance(found, Probe)
        assert found.wanted == Wanted(cdi=True, wrapper=SHIM.program, names=SHIM.names, default=True)
        assert b"/shim" in (found.plan.changes[0].after or b"")
    old = await probe_runtime(FakeRuntime(START, "1.6.36"), RuntimeSettings(), shim=SHIM)
    assert isinstance(old, Probe)
    assert (old.wanted.cdi, old.plan.problem) == (False, "")
    settings_of_it = ShimSettings(nvidia_name_dir=tmp_path, default_runtime=True)
    assert decide_shim(settings_of_it, "") is None
    request = decide_shim(settings_of_it, "/shim")
    assert request is not None
    assert (request.default, request.names[0]) == (True, str(tmp_path / "nvidia-container-runtime"))
    legacy = decide_shim(ShimSettings(mode="legacy"), "/shim")
    assert legacy is not None
    assert (request.takes_names, legacy.takes_names) == (True, False)


async def look(runtime: ContainerRuntime, settings: RuntimeSettings) -> Probe:
    found = await probe_runtime(runtime, settings)
    assert isinstance(found, Probe)
    return found


async def test_the_class_needs_its_program() -> None:
    """Without it the reason is told; a problem that is there already is told first."""

    class Bare(FakeRuntime):
        async def read_evidence(self) -> RuntimeEvidence:
            return replace(await super().read_evidence(), wrapper="")

    assert "nvidia-container-runtime is not on this node" in (await look(Bare(), CLASS)).plan.problem
    broken = Bare()
    broken.meddle(b"=")
    assert "no TOML" in (await look(broken, CLASS)).plan.problem
    assert (await look(FakeRuntime(START), CLASS)).wanted.wrapper == WRAPPER


async def test_a_release_too_old_for_cdi_serves_by_the_class_alone() -> None:
    """Asked for, it is no fault that there is no CDI; not asked for, or without its program, it says what to do."""
    old = FakeRuntime(START, version="1.6.20")
    found = await look(old, CLASS)
    assert (found.wanted.cdi, found.plan.problem, bool(found.plan.changes)) == (False, "", True)
    assert "knows no CDI" in (await look(old, RuntimeSettings())).plan.problem

    class Bare(FakeRuntime):
        async def read_evidence(self) -> RuntimeEvidence:
            return replace(await super().read_evidence(), wrapper="")

    assert "nvidia-container-runtime is not on this node" in (await look(Bare(START, "1.6.20"), CLASS)).plan.problem


@pytest.mark.parametrize("cdi", [True, False, None])
async def test_a_file_that_nobody_knows_is_neither_read_nor_written(cdi: bool | None) -> None:
    """The remedy is the setting; whether CDI is on says the daemon itself."""
    runtime = FakeRuntime()
    hidden = RuntimeCandidate(
        kind=RuntimeKind.CONTAINERD, socket="/srv/second.sock", answers=True, version="2.1.4", cdi_in_force=cdi
    )
    runtime.also = (hidden,)
    found = await look(runtime, replace(RuntimeSettings(), socket=Path("/srv/second.sock")))
    assert (found.tree, found.plan.changes, found.restart_needed) == (ConfigTree(files=()), (), "")
    assert found.plan.problem == (
        "the process behind /srv/second.sock cannot be told from others of its name, and so neither can its"
        " configuration file: set `runtime.config_file`"
    )
    assert found.takes_cdi is (cdi is not False)
    assert render_state(found).config_file == ""


async def test_each_kind_has_its_planner() -> None:
    """CRI-O needs nothing for CDI."""
    runtime = FakeRuntime()
    runtime.alive = False
    runtime.also = (CRIO,)
    found = await look(runtime, RuntimeSettings())
    assert (found.runtime.kind, found.plan.changes, found.takes_cdi) == (RuntimeKind.CRIO, (), True)


def test_no_runtime_is_a_state_with_its_reason() -> None:
    state = render_state(NoRuntime(reason="none"))
    assert (state.kind, state.problem, state.cdi_enabled) == (RuntimeKind.UNKNOWN, "none", None)
