"""The permanent addresses of conditions."""

from msgspec.structs import replace

from nodeagent.components.web.page.condition import DEFINITIONS
from nodeagent.components.web.page.details import is_page, render_path
from nodeagent.components.web.page.markup import condition_path
from nodeagent.components.web.page.overview import render_document
from nodeagent.model.conditions import CATALOGUE
from tests.support.nodes import make_view
from tests.support.texts.html import Page


def test_every_condition_has_a_page_whether_it_is_so_or_not() -> None:
    """An alert may link to any code for good; the page is whole and says what to do."""
    view = replace(make_view(), state=replace(make_view().state, conditions=()))
    for definition in CATALOGUE:
        path = condition_path(definition.code)
        assert is_page(path)
        page = render_path(path, view)
        assert page is not None
        document = Page(render_document(page, "1"))
        assert document.find_faults() == []
        assert definition.title in document.text
        assert "it is not so now" in document.text


def test_an_active_condition_is_shown_with_its_details() -> None:
    """What is so now stands above what the code means in general, with its own detail and age."""
    state = make_view().state
    active = replace(state.conditions[0], code="gpu-lost")
    view = replace(make_view(), state=replace(state, conditions=(active,)))
    page = render_path(condition_path(active.code), view)
    assert page is not None
    text = Page(render_document(page, "1")).text
    assert active.detail in text
    assert "it is not so now" not in text


def test_a_condition_names_what_hides_it() -> None:
    """Where one follows from another, the page leads there."""
    code = next(code for code, one in DEFINITIONS.items() if one.depends_on)
    page = render_path(condition_path(code), make_view())
    assert page is not None
    links = {one["href"] for one in Page(render_document(page, "1")).all("a")}
    assert {condition_path(parent) for parent in DEFINITIONS[code].depends_on} <= links


def test_a_code_that_there_is_not_has_no_page() -> None:
    """A typing error is a problem document, not an empty page."""
    assert not is_page("/conditions/no-such")
    assert render_path("/conditions/no-such", make_view()) is None
