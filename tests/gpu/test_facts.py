"""What only a GPU can say of memory, for the table of `python -m tests.gpu`: numbers that this project cannot know."""

from collections.abc import Callable

import pytest

from tests.component.vgpu.cuda_talk import Caller, call_driver
from tests.gpu.facts import FACTS

pytestmark = [pytest.mark.gpu, pytest.mark.may_block("nothing here runs on an event loop")]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_fact(fact: Callable[[Caller], int], record_property: Callable[[str, object], None]) -> None:
    with call_driver(None, {"CUDA_VISIBLE_DEVICES": "0"}) as one:
        one.start()
        record_property("value", fact(one))
