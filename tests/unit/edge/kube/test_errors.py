"""What an answer that is no success is told as."""

import json

import pytest

from nodeagent.edge.kube.errors import ApiBusy, ApiConflict, ApiInvalid, ApiNotFound, ApiRefused, translate_answer

UID = {"details": {"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]}}
BUDGET = {"details": {"causes": [{"reason": "DisruptionBudget"}]}}
OBJECT = {"reason": "NotFound", "details": {"name": "n", "kind": "nodes"}}
ODD = (b"", b"[]", b"null", b'{"details": null}', b'{"details": {"causes": null}}', b'{"details": {"causes": [7]}}')


def translate(status: int, content: bytes, reason: str | None = "Reason") -> ApiRefused:
    return translate_answer("write", status, content, reason=reason, retry_after_seconds=None)


def test_another_uid_is_a_conflict() -> None:
    """The status stays that of the answer; another field that is invalid is no conflict."""
    conflict = translate(422, json.dumps(UID | {"message": "immutable"}).encode())
    assert (type(conflict), conflict.status, conflict.message) == (ApiConflict, 422, "immutable")
    other = {"details": {"causes": [{"reason": "FieldValueInvalid", "field": "spec.taints"}]}}
    assert type(translate(422, json.dumps(other).encode())) is ApiInvalid


def test_budgets_and_objects_are_told_by_what_the_answer_names() -> None:
    busy, missing = translate(429, json.dumps(BUDGET).encode()), translate(404, json.dumps(OBJECT).encode())
    assert isinstance(busy, ApiBusy)
    assert isinstance(missing, ApiNotFound)
    assert (busy.is_budget, missing.is_object) == (True, True)


@pytest.mark.parametrize("content", ODD)
def test_an_odd_answer_is_what_its_status_says(content: bytes) -> None:
    """Without words of its own it has those of its head."""
    busy, missing, invalid = (translate(status, content) for status in (429, 404, 422))
    assert isinstance(busy, ApiBusy)
    assert isinstance(missing, ApiNotFound)
    assert (busy.is_budget, missing.is_object, type(invalid)) == (False, False, ApiInvalid)


def test_an_answer_without_any_words_is_told_as_such() -> None:
    """Neither in its body nor in its head."""
    assert translate(500, b"").message == "Reason"
    assert translate(500, b"", reason=None).message == "no reason given"
