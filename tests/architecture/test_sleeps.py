"""No test sleeps for a real while and hopes that something has happened by then: it waits until it has.

Allowed are a loop that looks again after a pause, tests whose clock jumps (`virtual_time`), and what is named below.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JUMPS = "its tests run on a clock that jumps"
PLAYS = "stands for somebody who takes his time"
PASSES = "what is tested is what the passing of real time does, and more of it changes nothing"
STAYS = "what is tested is that nothing happens, which on a slow machine is only seen less well"
REASONS: dict[str, dict[str, str]] = {
    "tests/browser/pictures.py": {"running_scene": "a picture shows what some seconds of samples have drawn"},
    "tests/chaos/repair_story.py": {"*": PLAYS},
    "tests/chaos/repaired_machine.py": {"is_repaired": PLAYS},
    "tests/chaos/room_story.py": {"*": PLAYS},
    "tests/chaos/story.py": {"*": PLAYS},
    "tests/chaos/workshop.py": {"_reset": PLAYS},
    "tests/component/allocations/harness.py": {"held_by_an_earlier_run": JUMPS},
    "tests/component/app/test_crowded_agent.py": {"hold": "an attack has begun when its pauses have passed"},
    "tests/component/claims/harness.py": {"find_claim": JUMPS},
    "tests/component/cluster/harness.py": {"settle": JUMPS},
    "tests/component/deviceplugin/harness.py": {"*": JUMPS},
    "tests/component/devices/harness.py": {"settle": JUMPS},
    "tests/component/edge/kubelet/test_foreign_plugin.py": {"*": STAYS},
    "tests/component/edge/kubelet/test_plugin_session.py": {"test_one_registration_is_enough": STAYS},
    "tests/component/edge/kubelet/test_server_connections.py": {"test_stopping_is_bounded": STAYS},
    "tests/component/edge/test_host_scan.py": {"test_a_fingerprint_changes_with_what_comes_and_goes": PASSES},
    "tests/component/edge_kube/test_trouble.py": {"test_who_was_turned_away_delays_nobody_afterwards": PASSES},
    "tests/component/edge_nvml/laws.py": {"every_sample_is_plausible": PASSES},
    "tests/component/edge_nvml/test_fake.py": {"test_profiling_needs_two_samples_of_one_thing": PASSES},
    "tests/component/edge_nvml/test_readers.py": {"test_all_gpus_ask_for_metrics_in_one_buffer": PASSES},
    "tests/component/edge_nvml/test_same_as_simulated.py": {"test_a_sample_is_the_simulated_one": PASSES},
    "tests/component/exporter/harness.py": {"publish": JUMPS},
    "tests/component/extender/test_watches.py": {"list": JUMPS},
    "tests/component/fractions/harness.py": {"*": JUMPS},
    "tests/component/http/test_connections.py": {"*": PASSES},
    "tests/component/http/test_server_limits.py": {"test_a_body_that_arrives_in_pieces_is_whole": PLAYS},
    "tests/component/labeler/harness.py": {"settle": JUMPS},
    "tests/component/mig/harness.py": {"running": JUMPS},
    "tests/component/slices/harness.py": {"settle": JUMPS},
    "tests/component/vgpu/compute/test_launches.py": {"test_what_is_paid_far_ahead_is_waited_for": STAYS},
    "tests/fakes/apiserver.py": {"intercept": PLAYS},
    "tests/fakes/journal_store.py": {"append": PLAYS},
    "tests/fakes/mps/control.py": {"run_daemon": PLAYS},
    "tests/integration/cluster/proxy.py": {"act": PLAYS},
    "tests/integration/test_api_server_contract.py": {"opened": "aiohttp closes connections with TLS and tells nobody"},
    "tests/integration/test_slices.py": {"test_slices_appear_stay_as_they_are_and_are_put_back": STAYS},
    "tests/property/core/test_bus_laws.py": {"scenario": JUMPS},
    "tests/property/core/test_supervisor_laws.py": {"scenario": JUMPS},
    "tests/support/components.py": {"run": JUMPS},
    "tests/support/programs/child.py": {"be_late": PLAYS},
    "tests/unit/components/mps/test_modes.py": {"begin": JUMPS},
}
"""Who may, by file and function (`*`: all of the file), and why."""
OUTSIDE = ("tests/bench", "tests/gpu")
"""Measurements, in which time is the point."""


def find_sleeps(text: str) -> Iterator[tuple[str, int]]:
    """Function and line of each sleep that is for a real while and not in a loop."""
    tree = ast.parse(text)
    if any(isinstance(node, ast.Assign) and "virtual_time" in ast.unparse(node) for node in tree.body):
        return
    yield from _find(tree, "", is_looping=False)


def _find(node: ast.AST, function: str, *, is_looping: bool) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if not any("virtual_time" in ast.unparse(each) for each in child.decorator_list):
                yield from _find(child, child.name, is_looping=False)
            continue
        if isinstance(child, ast.Call) and _is_sleep(child) and not is_looping:
            yield function, child.lineno
        yield from _find(
            child, function, is_looping=is_looping or isinstance(child, ast.While | ast.For | ast.AsyncFor)
        )


def _is_sleep(call: ast.Call) -> bool:
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="anyio" | "asyncio" | "time"), attr="sleep"), args=[seconds]
        ):
            value = seconds.value if isinstance(seconds, ast.Constant) else None
            return not (isinstance(value, int) and (value == 0 or value >= 3600))
        case _:
            return False


def list_files() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if not name.startswith(OUTSIDE) and ".sleep(" in (text := path.read_text(encoding="utf-8")):
            yield name, text


def test_nobody_hopes_that_something_has_happened_by_then() -> None:
    """Wait for the event, `tests.support.waiting.wait_until`, or mark the test `virtual_time`."""
    found = [
        f"{name}:{line} {function}"
        for name, text in list_files()
        for function, line in find_sleeps(text)
        if not REASONS.get(name, {}).keys() & {function, "*"}
    ]
    assert found == []


def test_every_reason_is_still_needed() -> None:
    """One for a sleep that has gone would allow the next one."""
    sleeping = {name: {function for function, _ in find_sleeps(text)} for name, text in list_files()}
    idle = [
        f"{name} {function}"
        for name, reasons in REASONS.items()
        for function in reasons
        if not (sleeping.get(name) if function == "*" else function in sleeping.get(name, ()))
    ]
    assert idle == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("async def test():\n await anyio.sleep(0.05)\n", [2]),
        ("def test():\n time.sleep(1)\n", [2]),
        ("def test():\n for _ in range(3):\n  pass\n time.sleep(SECONDS)\n", [4]),
        ("def test():\n while True:\n  def hang():\n   time.sleep(0.3)\n", [4]),
        ("async def test():\n while not is_so():\n  await asyncio.sleep(0.01)\n", []),
        ("async def test():\n await anyio.sleep(0)\n kept.append(asyncio.sleep(3600))\n", []),
        ("@pytest.mark.virtual_time\nasync def test():\n await anyio.sleep(5)\n", []),
        ("pytestmark = pytest.mark.virtual_time\nasync def test():\n await anyio.sleep(5)\n", []),
    ],
)
def test_sleeps_are_told_from_pauses(text: str, lines: list[int]) -> None:
    assert [line for _, line in find_sleeps(text)] == lines
