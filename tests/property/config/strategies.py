"""Valid settings and wrong values, made from the declarations themselves: a new kind needs a line here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from nodeagent.config.compound import ListOf, MapOf, Nested
from nodeagent.config.kinds import (
    AbsolutePath,
    Address,
    Flag,
    ListenAddress,
    Maybe,
    Number,
    OneOf,
    Regex,
    Text,
    Whole,
)
from nodeagent.config.knobs import Kind, knobs_of
from nodeagent.config.schema import Settings
from nodeagent.config.sections.containers import ExtraDeviceKind
from nodeagent.config.sections.devices import ClassKind, DeviceClass, DeviceHealth
from nodeagent.config.sections.sharing import DeviceSelection, ResourceName

KEYS = [(section, key) for section in knobs_of(Settings) for key in knobs_of(type(getattr(Settings(), section)))]
NAMES = st.from_regex(r"\A[a-z]{1,12}\Z")
ADDRESSES = st.builds(Address, st.sampled_from(["", "::1", "127.0.0.1", "node.example"]), st.integers(0, 65535))


def texts_of(kind: Text) -> st.SearchStrategy[str]:
    """Texts that fit the pattern; a free pattern gets anything that can be printed."""
    printable = st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"])
    free = st.text(printable, min_size=1, max_size=20)
    fitting = free if kind.pattern in {".*", ".+"} else st.from_regex(kind.pattern, fullmatch=True)
    return fitting.filter(lambda text: text.isprintable() and len(text) <= kind.longest)


def lists_of(kind: ListOf[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values_of(kind.kind), min_size=kind.shortest, max_size=4, unique_by=repr).map(tuple)


def classes_of(kind: ClassKind) -> st.SearchStrategy[DeviceClass]:
    """Classes that say what they are for and which nodes they mean; the rest as it comes."""
    health = {name: values_of(declared.kind) for name, declared in knobs_of(DeviceHealth).items()}
    own = {
        "use": st.none(),
        "resource": NAMES.map("example.com/{}".format),
        "nodes": st.lists(NAMES.map("/dev/{}".format), min_size=1, max_size=3, unique=True).map(tuple),
        "health": st.builds(DeviceHealth, **health | {"sysfs": st.just(())}),
    }
    rest = {name: values_of(declared.kind) for name, declared in knobs_of(kind.section).items() if name not in own}
    return st.builds(kind.section, **rest, **own)


def records_of(kind: Nested[Any]) -> st.SearchStrategy[Any]:
    values = {name: values_of(declared.kind) for name, declared in knobs_of(kind.section).items()}
    return st.builds(kind.section, **values)


STRATEGIES: dict[type, Callable[[Any], st.SearchStrategy[Any]]] = {
    Flag: lambda _: st.booleans(),
    Whole: lambda kind: st.integers(kind.low, kind.high),
    Number: lambda kind: st.floats(kind.low, kind.high, allow_subnormal=False),
    OneOf: lambda kind: st.sampled_from(kind.words),
    Text: texts_of,
    Regex: lambda _: NAMES,
    AbsolutePath: lambda _: NAMES.map(lambda name: Path("/", name)),
    ListenAddress: lambda _: ADDRESSES,
    Maybe: lambda kind: st.none() | values_of(kind.kind),
    ResourceName: lambda _: NAMES | NAMES.map("nvidia.com/{}".format),
    DeviceSelection: lambda _: st.just("all") | st.integers(1, 9) | st.just(("0", "1:0")),
    ListOf: lists_of,
    MapOf: lambda kind: st.dictionaries(values_of(kind.keys), values_of(kind.values), max_size=3),
    ClassKind: classes_of,
    ExtraDeviceKind: records_of,
    Nested: records_of,
}


def values_of(kind: Kind[Any]) -> st.SearchStrategy[Any]:
    return STRATEGIES[type(kind)](kind)


@st.composite
def settings_with_changes(draw: st.DrawFn) -> Settings:
    """Settings in which a few keys have other values, each fine alone."""
    settings = Settings()
    for section, key in draw(st.lists(st.sampled_from(KEYS), max_size=8, unique=True)):
        before = getattr(settings, section)
        value = draw(values_of(knobs_of(type(before))[key].kind))
        settings = msgspec.structs.replace(settings, **{section: msgspec.structs.replace(before, **{key: value})})
    return settings


def wrong_for(kind: Kind[Any]) -> object:
    """A value that no reading of a kind can take."""
    match kind:
        case Maybe(kind=inner):
            return wrong_for(inner)
        case ListOf():
            return {"k": "v"}
        case MapOf():
            return ["x"]
        case Nested():
            return "text"
        case _:
            return {"k": ["v"]}
