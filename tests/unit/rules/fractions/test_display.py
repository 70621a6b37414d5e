"""Use in the words of gpu-manager."""

from msgspec import json

from nodeagent.components.usage.measure import measure
from nodeagent.model.usage import FractionUsage
from nodeagent.rules.fractions.display import describe_use
from tests.support.samples import make_inventory
from tests.unit.components.usage.builders import bind, place, run, sample, tabulate


def test_a_pod_is_told_by_container_and_device() -> None:
    """With the fields, the units and the text numbers that its clients know."""
    table = tabulate(bind(1, "a", cores=30, gib=8))
    usage = measure(table, make_inventory(), sample(run(10, 12, 3), run(11, 5)), {10: place("a"), 11: place("a")}, {})
    (pod,) = describe_use(usage, make_inventory())
    assert pod.key == "u-a"
    assert json.decode(json.encode(pod.stat)) == {
        "stat": {
            "main": {
                "dev": [
                    {
                        "id": "00000000:10:00.0",
                        "card_idx": "0",
                        "gpu": 17.0,
                        "mem": 4096.0,
                        "pids": [10, 11],
                        "device_mem": 81559.0,
                    }
                ]
            }
        },
        "project": "ml",
        "user": "",
        "cluster": "",
        "spec": {"main": {"gpu": 0.3, "mem": 8192.0}},
    }


def test_what_is_not_known_is_left_out() -> None:
    """A device, and a pod of which nothing is left; what it asked for is told with what is known of its others."""
    table = tabulate(bind(1, "a", gpus=(0, 1)), bind(2, "b", gpus=(1,)), bind(3, "c", gpus=(9,)))
    (pod,) = describe_use(measure(table, make_inventory(), sample(run(10)), {10: place("a")}, {}), make_inventory())
    assert [one.card_idx for one in pod.stat.stat["main"].dev] == ["0"]
    assert pod.stat.spec["main"].gpu == 0.6
    one = tabulate(bind(1, "a"))
    for process in (run(10, None), run(10, 1, None)):
        usage = measure(one, make_inventory(), sample(process), {10: place("a")}, {})
        assert describe_use(usage, make_inventory()) == ()
    gone = measure(tabulate(bind(1, "a", gpus=(9,))), make_inventory(), sample(run(10), index=9), {10: place("a")}, {})
    assert describe_use(gone, make_inventory()) == ()
    assert describe_use(FractionUsage(), make_inventory()) == ()


def test_what_cannot_be_divided_has_no_name() -> None:
    """The pod's sum is right, and no container is charged with its neighbour's."""
    table = tabulate(bind(1, "a", "left"), bind(2, "a", "right"))
    usage = measure(table, make_inventory(), sample(run(10)), {10: place("a", "l")}, {})
    (pod,) = describe_use(usage, make_inventory())
    assert {name: devices.dev[0].pids for name, devices in pod.stat.stat.items()} == {"": (10,)}
    assert set(pod.stat.spec) == {"left", "right"}


def test_a_pod_without_uid_is_told_by_its_name() -> None:
    usage = measure(tabulate(bind(1, "a", uid="")), make_inventory(), sample(run(10)), {}, {})
    assert [pod.key for pod in describe_use(usage, make_inventory())] == ["ml/a"]
