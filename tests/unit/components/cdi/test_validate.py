"""The rules by which runtimes refuse a specification."""

from typing import Any

import pytest

from nodeagent.components.cdi.spec import find_spec_problems

EDITS = {"deviceNodes": [{"path": "/dev/x"}]}


def make_document(**changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "cdiVersion": "0.5.0",
        "kind": "vendor.com/device",
        "devices": [{"name": "0", "containerEdits": EDITS}],
    }
    return {name: value for name, value in (document | changes).items() if value is not None}


def make_edited(edits: Any, version: str = "1.1.0") -> dict[str, Any]:
    return make_document(cdiVersion=version, containerEdits=edits)


FULL_EDITS = {
    "env": ["A=b", "B="],
    "deviceNodes": [
        {
            "path": "/dev/x",
            "hostPath": "/dev/y",
            "type": "c",
            "major": 195,
            "minor": 0,
            "fileMode": 438,
            "permissions": "rw",
            "uid": 0,
            "gid": 44,
        }
    ],
    "netDevices": [{"hostInterfaceName": "eth1", "name": "eth0"}],
    "hooks": [{"hookName": "createContainer", "path": "/bin/x", "args": ["x"], "env": ["A=b"], "timeout": 5}],
    "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"], "type": "bind"}],
    "intelRdt": {"closID": "a", "schemata": ["x"], "enableMonitoring": True},
    "additionalGids": [44],
}


def test_a_document_with_every_field_is_valid() -> None:
    """Everything that the format knows is accepted in its newest version."""
    document = make_document(
        cdiVersion="v1.1.0",
        annotations={"a": "b"},
        containerEdits=FULL_EDITS,
        devices=[{"name": "gpu0:1", "annotations": {"c": "d"}, "containerEdits": FULL_EDITS}],
    )
    assert find_spec_problems(document) == ()


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "the document is no object"),
        (make_document(cdiVersion=None), "cdiVersion: None is no version"),
        (make_document(cdiVersion="0.9.0"), "is no version"),
        (make_document(cdiVersion="five"), "is no version"),
        (make_document(cdiVersion=5), "is no version"),
        (make_document(kind=None), "kind: is missing"),
        (make_document(kind="nvidia"), "is no vendor/class"),
        (make_document(kind="1vendor/gpu"), "is no vendor/class"),
        (make_document(kind=["a"]), "is no vendor/class"),
        (make_document(kind="vendor.com/a.b"), "a class with a dot needs"),
        (make_document(devices=None), "devices: is missing"),
        (make_document(devices=[]), "at least one"),
        (make_document(devices={}), "devices: is no list"),
        (make_document(devices=["gpu"]), "devices[0]: is no object"),
        (make_document(devices=[{"name": "-", "containerEdits": EDITS}]), "is no device name"),
        (make_document(devices=[{"name": 5, "containerEdits": EDITS}]), "is no device name"),
        (make_document(devices=[{"name": "a"}]), "containerEdits: is missing"),
        (make_document(devices=[{"name": "a", "containerEdits": {}}]), "must change something"),
        (make_document(devices=[{"name": "a", "containerEdits": EDITS}] * 2), "defined twice"),
        (make_document(cdiVersion="0.4.0"), "begins with a digit"),
        (make_document(surprise=1), "surprise: no such field"),
        (make_document(annotations={"a": "b"}), "annotations: needs cdiVersion 0.6.0"),
        (make_document(cdiVersion="0.6.0", annotations={"a": 1}), "no map of strings"),
        (make_edited({"mounts": [{"hostPath": "/a"}]}), "containerPath: is missing"),
        (make_edited({"mounts": [{"hostPath": "", "containerPath": "/b"}]}), "is no text"),
        (make_edited({"mounts": [{"hostPath": "/a", "containerPath": "/b", "options": "ro"}]}), "no list of strings"),
        (make_edited({"env": ["novalue"]}), "NAME=value"),
        (make_edited({"env": ["=x"]}), "NAME=value"),
        (make_edited({"hooks": [{"hookName": "never", "path": "/x"}]}), "is no stage"),
        (make_edited({"hooks": [{"hookName": "prestart", "path": "x"}]}), "no absolute path"),
        (make_edited({"additionalGids": [True]}), "no list of whole numbers"),
        (make_edited({"additionalGids": [1]}, "0.6.0"), "needs cdiVersion 0.7.0"),
        (make_edited({"deviceNodes": [{"path": "/dev/x", "type": "q"}]}), "no type of device node"),
        (make_edited({"deviceNodes": [{"path": "/dev/x", "major": True}]}), "no whole number"),
        (make_edited({"deviceNodes": [{"path": "/dev/x", "permissions": "rwx"}]}), "no set of permissions"),
        (make_edited({"deviceNodes": [{"path": "/dev/x", "hostPath": "/y"}]}, "0.3.0"), "hostPath: needs"),
        (make_edited({"intelRdt": []}), "is no object"),
        (make_edited([]), "containerEdits: is no object"),
    ],
)
def test_each_fault_is_named_with_its_place(document: object, problem: str) -> None:
    """What makes a runtime refuse a file is said in words, with the field."""
    assert any(problem in each for each in find_spec_problems(document)), find_spec_problems(document)


def test_a_hopeless_document_gives_a_short_list() -> None:
    """A thousand faults are told by the first twenty."""
    assert len(find_spec_problems(make_document(**{f"field{number}": 1 for number in range(1000)}))) == 20
