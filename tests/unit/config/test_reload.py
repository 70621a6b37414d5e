"""What a SIGHUP changes."""

from pathlib import Path

import pytest

from nodeagent.config.reload import decide_reload
from nodeagent.config.rules import decide_breaches
from nodeagent.config.schema import Settings
from nodeagent.config.sections.fractions import FractionsSettings
from nodeagent.config.sections.sharing import Mps, SharedResource, SharingSettings
from tests.unit.config.helpers import load_text

SHARED = Settings(sharing=SharingSettings(mps=Mps(resources=(SharedResource(name="gpu", replicas=2),))))
HELD = Settings(fractions=FractionsSettings(enforcement="mps"))


@pytest.mark.parametrize(("wanted", "path"), [(SHARED, "sharing.mps"), (HELD, "fractions.enforcement")])
def test_what_calls_for_daemons_for_the_first_time_waits_for_a_restart(wanted: Settings, path: str) -> None:
    """The part that looks after them is built at the start alone; another way is taken at once."""
    without = Settings(fractions=FractionsSettings(enforcement="library"))
    plan = decide_reload(without, wanted)
    assert [change.path for change in plan.changed_needs_restart] == [path]
    assert decide_reload(wanted, without).settings == without


def test_reloadable_changes_apply_and_others_wait(tmp_path: Path) -> None:
    """What may change is taken over, what may not keeps its value and is named."""
    new = load_text(tmp_path, "log: {level: debug, format: json}\nhttp: {listen: 'h:1'}\n").settings
    plan = decide_reload(Settings(), new)
    assert [str(change) for change in plan.changed_reloadable] == ["log.level: info → debug"]
    assert [str(change) for change in plan.changed_needs_restart] == [
        "log.format: auto → json",
        "http.listen: 127.0.0.1:9400 → h:1",
    ]
    assert (plan.settings.log.level, plan.settings.log.format) == ("debug", "auto")
    assert plan.settings.http == Settings().http


def test_equal_settings_change_nothing() -> None:
    """A reload without a difference is an empty plan that keeps what is in force."""
    plan = decide_reload(Settings(), Settings())
    assert plan.is_empty
    assert plan.settings == Settings()


def test_sharing_changes_as_a_whole(tmp_path: Path) -> None:
    """Sharing is one decision; it is shown as it could be written."""
    text = "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}"
    new = load_text(tmp_path, text).settings
    plan = decide_reload(Settings(), new)
    (change,) = plan.changed_reloadable
    assert change.path == "sharing.timeSlicing"
    assert change.before == "null"
    assert '"replicas": 2' in change.after
    assert plan.settings == new


def share(name: str) -> str:
    return f"sharing: {{timeSlicing: {{resources: [{{name: {name}, replicas: 4}}]}}}}\n"


@pytest.mark.parametrize(
    ("before", "after", "waits"),
    [
        (
            "mps: {claims: true}\n",
            "driver: {cuda_smoke_test: true}\n",
            {"mps.claims", "driver.cuda_smoke_test"},
        ),
        (
            share("nvidia.com/gpu"),
            "device_plugin: {resource_prefix: acme.com}\n" + share("acme.com/gpu"),
            {"device_plugin.resource_prefix", "sharing.timeSlicing"},
        ),
    ],
)
def test_what_is_only_valid_after_a_restart_waits_for_it(
    tmp_path: Path, before: str, after: str, waits: set[str]
) -> None:
    """What is in force is never what loading would have refused; what has nothing to do with it is taken."""
    old = load_text(tmp_path, before).settings
    plan = decide_reload(old, load_text(tmp_path, f"{after}log: {{level: debug}}\n").settings)
    assert not list(decide_breaches(plan.settings, ()))
    assert {change.path for change in plan.changed_needs_restart} == waits
    assert [change.path for change in plan.changed_reloadable] == ["log.level"]
