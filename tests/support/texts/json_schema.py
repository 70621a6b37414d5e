"""As much of JSON Schema as the API's document uses; anything else in a schema is an error of the test."""

from collections.abc import Iterator
from typing import Any

KNOWN = {
    "$ref", "type", "properties", "required", "items", "prefixItems", "anyOf", "enum", "const", "additionalProperties",
    "title", "description", "default", "minItems", "maxItems", "minLength", "minimum", "format", "contentEncoding",
}  # fmt: skip
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def find_breaks(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "$") -> Iterator[str]:
    unknown = set(schema) - KNOWN
    assert not unknown, f"{at}: the check does not know {unknown}"
    if "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        yield from find_breaks(value, target, root, at)
        return
    if "anyOf" in schema:
        if all(list(find_breaks(value, one, root, at)) for one in schema["anyOf"]):
            yield f"{at}: none of the alternatives fits {value!r:.80}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    kind = schema.get("type")
    if kind is not None and not is_type(value, kind):
        yield f"{at}: {value!r:.80} is no {kind}"
        return
    yield from _find_inner(value, schema, root, at)


def is_type(value: Any, kind: str) -> bool:
    """Whether the value is of this type of JSON, where a boolean is no number."""
    return isinstance(value, TYPES[kind]) and not (isinstance(value, bool) and kind != "boolean")


def _find_inner(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (f"{at}: {name} is missing" for name in schema.get("required", ()) if name not in value)
        extra = schema.get("additionalProperties")
        for name, inner in value.items():
            known = schema.get("properties", {}).get(name, extra)
            if isinstance(known, dict):
                yield from find_breaks(inner, known, root, f"{at}.{name}")
            elif "properties" in schema:
                yield f"{at}: {name} is not in the document"
    if isinstance(value, list):
        for number, inner in enumerate(value):
            prefix = schema.get("prefixItems", ())
            known = prefix[number] if number < len(prefix) else schema.get("items")
            if isinstance(known, dict):
                yield from find_breaks(inner, known, root, f"{at}[{number}]")
