"""How a layout compares with the GPUs of a node."""

from nodeagent.components.mig.judge import judge
from nodeagent.rules.mig.layouts import LayoutRule
from nodeagent.rules.mig.wanted import UNSAID
from tests.support.gpus import make_gpu
from tests.support.mig import make_mig_gpu


def test_what_a_layout_says_nothing_of_is_left_as_it_is_and_told() -> None:
    """A GPU that could not be cut anyway needs no word."""
    gpus = [make_mig_gpu(0, "a100-sxm4-40gb"), make_mig_gpu(1, "a100-sxm4-40gb"), make_gpu(2)]
    found = judge((LayoutRule(enabled=False, indexes=(0,)),), gpus)
    assert (found.left, found.problems, found.differing) == ((f"GPU 1 is left as it is: {UNSAID}",), (), ())
