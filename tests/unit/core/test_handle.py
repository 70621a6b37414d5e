"""Laws of a handle: it leads to the object of now, and refuses as its maker says while there is none."""

import pytest

from nodeagent.core.life.handle import Handle


class Absent(Exception):
    """The error of this handle's maker."""


def test_a_handle_leads_to_the_object_of_now() -> None:
    """An object that was built anew is found by whoever has kept the handle."""
    handle: Handle[str] = Handle(Absent)
    for built in ("first", "second"):
        with handle.filled(built):
            assert (handle.value, handle.get()) == (built, built)


def test_a_handle_without_an_object_refuses_as_its_maker_says() -> None:
    """Before the object was built, and after it has crashed."""
    handle: Handle[str] = Handle(lambda: Absent("not yet"))
    with pytest.raises(Absent, match="not yet"):
        handle.get()
    with pytest.raises(ZeroDivisionError), handle.filled("object"):
        raise ZeroDivisionError
    assert handle.value is None
    with pytest.raises(Absent):
        handle.get()
