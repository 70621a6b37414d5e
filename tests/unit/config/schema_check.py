"""As much of JSON Schema as our own schema uses: enough to hold a document against it.

A keyword that is not known here is a fault, so that the check cannot quietly ignore a part of the schema.
"""

import re
from typing import Any, Final

from tests.support.texts.json_schema import is_type

ANNOTATIONS: Final = {"$schema", "title", "description", "default", "format"}


def satisfies(schema: Any, value: Any) -> bool:
    """Whether the document fits the schema."""
    return all(_CHECKS[keyword](wanted, value, schema) for keyword, wanted in schema.items() if keyword in _CHECKS)


def find_schema_faults(schema: Any, path: str = "") -> list[str]:
    """Keywords that nobody knows, patterns that do not compile, required keys without a description."""
    faults = [f"{path}: {keyword}" for keyword in schema if keyword not in _CHECKS and keyword not in ANNOTATIONS]
    if "pattern" in schema:
        re.compile(schema["pattern"])
    properties = schema.get("properties", {})
    faults += [f"{path}: required {key}" for key in schema.get("required", []) if key not in properties]
    inner = [*properties.items(), *((f"anyOf{index}", one) for index, one in enumerate(schema.get("anyOf", [])))]
    inner += [(key, schema[key]) for key in ("items", "propertyNames", "additionalProperties") if schema.get(key)]
    return faults + [fault for key, one in inner for fault in find_schema_faults(one, f"{path}.{key}")]


def _has_type(wanted: str | list[str], value: Any, _: Any) -> bool:
    names = [wanted] if isinstance(wanted, str) else wanted
    return any(is_type(value, name) for name in names)


def _is_same(wanted: Any, value: Any) -> bool:
    return bool(wanted == value) and isinstance(wanted, bool) == isinstance(value, bool)


def _members(allowed: Any, value: Any, schema: Any) -> bool:
    others = [item for key, item in value.items() if key not in schema.get("properties", {})] if _is_map(value) else []
    return not others if allowed is False else all(satisfies(allowed, item) for item in others)


def _is_map(value: Any) -> bool:
    return isinstance(value, dict)


_CHECKS: Final[dict[str, Any]] = {
    "type": _has_type,
    "enum": lambda words, value, _: any(_is_same(word, value) for word in words),
    "const": lambda word, value, _: _is_same(word, value),
    "pattern": lambda pattern, value, _: not isinstance(value, str) or bool(re.search(pattern, value)),
    "maxLength": lambda limit, value, _: not isinstance(value, str) or len(value) <= limit,
    "minimum": lambda limit, value, _: not is_type(value, "number") or value >= limit,
    "maximum": lambda limit, value, _: not is_type(value, "number") or value <= limit,
    "minItems": lambda limit, value, _: not isinstance(value, list) or len(value) >= limit,
    "uniqueItems": lambda on, value, _: not (on and isinstance(value, list)) or len(set(map(str, value))) == len(value),
    "items": lambda inner, value, _: not isinstance(value, list) or all(satisfies(inner, item) for item in value),
    "anyOf": lambda options, value, _: any(satisfies(option, value) for option in options),
    "required": lambda keys, value, _: not _is_map(value) or all(key in value for key in keys),
    "properties": lambda inner, value, _: (
        not _is_map(value) or all(satisfies(inner[key], item) for key, item in value.items() if key in inner)
    ),
    "propertyNames": lambda inner, value, _: not _is_map(value) or all(satisfies(inner, key) for key in value),
    "additionalProperties": _members,
}
