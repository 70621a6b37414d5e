"""Which marker files should exist, with which content."""

import subprocess

import pytest

from nodeagent.components.driver.plan_markers import (
    DRIVER_READY,
    DriverPlace,
    MarkerPlan,
    plan_markers,
    render_driver_marker,
)

HOST = DriverPlace()
CONTAINER = DriverPlace(driver_root="/run/nvidia/driver", dev_root="/run/nvidia/driver", is_host_driver=False)
CONTAINER_WITH_HOST_NODES = DriverPlace(driver_root="/run/nvidia/driver", dev_root="/", is_host_driver=False)


@pytest.mark.parametrize(
    ("place", "values"),
    [
        (HOST, ["true", "/", "/host", "/", "/host"]),
        (CONTAINER, ["false", "/run/nvidia/driver", "/driver-root", "/run/nvidia/driver", "/driver-root"]),
        (CONTAINER_WITH_HOST_NODES, ["false", "/run/nvidia/driver", "/driver-root", "/", "/host"]),
    ],
)
def test_driver_marker_has_the_five_lines_in_order(place: DriverPlace, values: list[str]) -> None:
    """Names, order and values are those that the other operands source."""
    names = ["IS_HOST_DRIVER", "NVIDIA_DRIVER_ROOT", "DRIVER_ROOT_CTR_PATH", "NVIDIA_DEV_ROOT", "DEV_ROOT_CTR_PATH"]
    expected = "".join(f"{name}={value}\n" for name, value in zip(names, values, strict=True))
    assert render_driver_marker(place) == expected


def test_strange_root_stays_a_value_in_the_shell() -> None:
    """A root with blanks and commands in it is read back as it is, and runs nothing."""
    root = "/odd root/$(echo no);`id`'\""
    script = render_driver_marker(DriverPlace(driver_root=root)) + 'printf %s "$NVIDIA_DRIVER_ROOT"'
    assert subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout == root


CONTENT = render_driver_marker(HOST)


@pytest.mark.parametrize(
    ("ready", "found", "plan"),
    [
        (True, {}, MarkerPlan(write=((DRIVER_READY, CONTENT),))),
        (True, {DRIVER_READY: CONTENT}, MarkerPlan()),
        (True, {DRIVER_READY: "old"}, MarkerPlan(write=((DRIVER_READY, CONTENT),))),
        (False, {DRIVER_READY: CONTENT}, MarkerPlan(remove=(DRIVER_READY,))),
        (False, {}, MarkerPlan()),
        (False, {"toolkit-ready": ""}, MarkerPlan()),
    ],
)
def test_only_what_differs_is_touched(ready: bool, found: dict[str, str], plan: MarkerPlan) -> None:
    """The marker is there exactly while it is true; other parts' markers are theirs."""
    assert plan_markers(ready=ready, place=HOST, found=found) == plan


@pytest.mark.parametrize(
    ("ready", "validated", "found", "plan"),
    [
        (True, True, {DRIVER_READY: CONTENT}, MarkerPlan(write=(("cuda-ready", ""), ("plugin-ready", "")))),
        (True, False, {DRIVER_READY: CONTENT, "cuda-ready": ""}, MarkerPlan(remove=("cuda-ready",))),
        (True, True, {DRIVER_READY: CONTENT, "cuda-ready": "", "plugin-ready": ""}, MarkerPlan()),
        (
            False,
            True,
            {DRIVER_READY: CONTENT, "cuda-ready": "", "plugin-ready": ""},
            MarkerPlan(remove=("plugin-ready", "cuda-ready", DRIVER_READY)),
        ),
    ],
)
def test_markers_of_workloads_follow_the_pod_and_the_driver(
    ready: bool, validated: bool, found: dict[str, str], plan: MarkerPlan
) -> None:
    """Dependants come last and go first."""
    assert plan_markers(ready=ready, place=HOST, found=found, validates=True, validated=validated) == plan
