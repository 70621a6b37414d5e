"""Where cuGetProcAddress leads: by the vGPU library's table, by the fake's, and in NVIDIA's drivers of 535 and 550."""

import shutil
from typing import Any

import pytest

from tests.component.vgpu.build import LIBRARY, build_library
from tests.component.vgpu.front.test_cuda_headers import list_hooks
from tests.component.vgpu.place import Place
from tests.contract.cuda.entries import choose, list_fake_entries, list_hook_entries
from tests.contract.libraries import Library

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="the fake is C"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

Answers = dict[tuple[str, int, int], list[Any]]
"""By question: code, status and place of the second form of the call, code and place of the first."""


def look_up(library: Library, **environ: str) -> Answers:
    return {(base, version, flags): rest for base, version, flags, *rest in library.ask("lookup", **environ)}


def name_symbol(answer: list[Any]) -> str | None:
    place = answer[2]
    return None if place is None else str(place[1])


@pytest.mark.slow
def test_the_table_of_hooks_is_the_driver_s(library: Library) -> None:
    """Each base name that has hooks, at each version in which something begins, with each flag."""
    entries, exports = list_hook_entries(), frozenset(library.ask("exports"))
    bases = {base for base, *_ in entries}
    found = {question: name_symbol(answer) for question, answer in look_up(library).items() if question[0] in bases}
    wanted = {question: choose(entries, exports, *question) for question in found}
    assert {each: (found[each], wanted[each]) for each in found if found[each] != wanted[each]} == {}
    assert len(found) > 400


@pytest.mark.slow
def test_the_fake_leads_where_the_driver_does(original: Library) -> None:
    """To the same symbol; or the fake has no such symbol, and no test asks for it."""
    entries, exports = list_fake_entries(), frozenset(original.ask("exports"))
    known = {symbol for _, symbol, _, _ in entries}
    for question, answer in look_up(original).items():
        symbol = name_symbol(answer)
        if symbol is None or symbol in known:
            assert choose(entries, exports, *question) == symbol, question


def test_both_forms_and_the_status_agree(library: Library) -> None:
    """The first form has no status: where there is no place, that is an error."""
    for question, (code, status, place, first_code, first_place) in look_up(library).items():
        assert code == 0, question
        assert (status == 0) == (place is not None), question
        assert status in (0, 1, 2), question
        assert (first_code, first_place) == ((0, place) if place else (500, None)), question


@pytest.mark.long
def test_the_vgpu_library_stands_before_the_driver_s_own_choice(library: Library, place: Place) -> None:
    """The hook of the same symbol where there is one, else the driver's place; codes and statuses are the driver's."""
    preload = {"LD_PRELOAD": str(build_library()), "NODEAGENT_VGPU_DIR": str(place.path)}
    hooks = list_hooks()

    def stand_before(found: list[str] | None) -> list[str] | None:
        return [LIBRARY, found[1]] if found is not None and found[1] in hooks else found

    without, with_library = look_up(library), look_up(library, **preload)
    wanted = {
        question: [code, status, stand_before(where), first_code, stand_before(first_where)]
        for question, (code, status, where, first_code, first_where) in without.items()
    }
    assert {each: (with_library[each], wanted[each]) for each in wanted if with_library[each] != wanted[each]} == {}
    assert sum(answer[2] is not None and answer[2][0] == LIBRARY for answer in with_library.values()) > 250
