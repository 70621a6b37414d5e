"""What is planned where a file of containerd says what none should."""

import pytest

from nodeagent.components.runtime.toml_edit import ConfigUnparsable
from tests.unit.components.runtime.test_plan_containerd import CLASS, DROP_IN, WRAPPER, make_tree, plan, read_runtimes


@pytest.mark.parametrize("line", ["options = 5", "options = []", "runtime_type = []"])
def test_a_base_with_values_of_the_wrong_kind_is_no_base(line: str) -> None:
    """Somebody may be in the middle of writing it."""
    text = f'version = 3\n[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]\n{line}\n'
    entry = read_runtimes(plan("2.1.4", make_tree(text), CLASS), DROP_IN, "io.containerd.cri.v1.runtime")["nvidia"]
    assert entry == {"runtime_type": "io.containerd.runc.v2", "options": {"BinaryName": WRAPPER}}


def test_a_number_beyond_belief_is_told() -> None:
    """The parser has no word of its own for it."""
    with pytest.raises(ConfigUnparsable, match="a value that nobody can read"):
        plan("1.7.22", make_tree(f"version = {'9' * 5000}\n"))
