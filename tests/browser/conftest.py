"""What the tests of the page begin with."""

from collections.abc import Iterator

import pytest

from tests.support.programs.browser import Browser, running_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as one:
        yield one
