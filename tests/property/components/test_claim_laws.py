"""Laws of claims, for whatever the API server and the kubelet say: an answer or an error for each, and no GPU twice."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.components.allocations.ledger import Ledger, apply_record
from nodeagent.components.allocations.roles.claims import Prepared, Unprepared, refuse_claim
from nodeagent.components.claims.metadata import describe_claimed, list_requests, render_metadata
from nodeagent.components.claims.opaque import SharingRequest, read_parameters
from nodeagent.components.claims.prepare import NodeView, Powers, answer_claim, check_claim, check_reference, plan_claim
from nodeagent.edge.kube.resource_claims import parse_claim
from nodeagent.model.claims import ClaimReference, ClaimResult, OpaqueConfig, ResourceClaim
from nodeagent.model.errors import ClaimRefused
from nodeagent.model.journal import FractionTable, PreparedClaim
from nodeagent.rules.claims.attributes import DeviceFacts
from tests.support.claims import DRIVER, POD, POOL, VERSION, behind_claims, gpu_config, with_minors
from tests.support.examples import examples
from tests.support.gpus import make_gpu

GPUS = 4
VIEW_GPUS = with_minors(*(make_gpu(index) for index in range(GPUS - 1)), make_gpu(GPUS - 1, mig=["1g.10gb"] * 2))
NAMES = st.one_of(
    st.integers(0, GPUS).map(lambda index: f"gpu-{index}"),
    st.sampled_from([f"gpu-{GPUS - 1}-mig-1g10gb-19-0", "gpu-0-mig-1g10gb-19-0", "../x", "", "gpu-" + "9" * 400]),
    st.text(max_size=20),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=12,
)
SHARING = st.fixed_dictionaries(
    {},
    optional={
        "strategy": st.sampled_from(["MPS", "TimeSlicing", "Both"]) | JSON,
        "timeSlicingConfig": st.fixed_dictionaries({}, optional={"interval": st.sampled_from(["Default", "Long"])})
        | JSON,
        "mpsConfig": st.fixed_dictionaries(
            {},
            optional={
                "defaultActiveThreadPercentage": st.integers(-5, 105) | JSON,
                "defaultPinnedDeviceMemoryLimit": st.sampled_from(["1Gi", "1", "x"]) | JSON,
                "defaultPerDevicePinnedMemoryLimit": st.dictionaries(st.sampled_from(["0", "1", "x"]), JSON, max_size=2)
                | JSON,
            },
        )
        | JSON,
    },
)
PARAMETERS = JSON | SHARING.map(gpu_config) | st.builds(lambda one: gpu_config(one, "MigDeviceConfig"), SHARING)
RESULTS = st.builds(
    ClaimResult,
    request=st.sampled_from(["a", "b", "a/x"]),
    driver=st.sampled_from([DRIVER] * 4 + ["other.example.com"]),
    pool=st.sampled_from([POOL] * 6 + ["elsewhere"]),
    device=NAMES,
    is_admin=st.sampled_from([False] * 5 + [True]),
    share_id=st.sampled_from([""] * 4 + ["s1", "s2", "../s"]),
    consumed=st.dictionaries(
        st.sampled_from(["memory", "cores", "x"]), st.sampled_from(["1Gi", "10", "?"]), max_size=2
    ),
)
CONFIGS = st.builds(
    OpaqueConfig,
    source=st.sampled_from(["FromClass", "FromClaim", "x"]),
    requests=st.lists(st.sampled_from(["a", "b", "a/x"]), max_size=2).map(tuple),
    driver=st.sampled_from([DRIVER] * 4 + ["other.example.com", ""]),
    parameters=PARAMETERS,
)
CLAIMS = st.builds(
    ResourceClaim,
    namespace=st.just("ns"),
    name=st.sampled_from(["c1", "c2"]),
    uid=st.sampled_from([f"uid-{number}" for number in range(6)] + ["../uid"]),
    is_allocated=st.sampled_from([True] * 6 + [False]),
    results=st.lists(RESULTS, max_size=4).map(tuple),
    configs=st.lists(CONFIGS, max_size=2).map(tuple),
    pods=st.sampled_from([(POD,)] * 6 + [()]),
)
POWERS = st.builds(Powers, st.booleans(), st.booleans(), st.booleans(), st.booleans())


@given(st.lists(st.tuples(CLAIMS, POWERS, st.booleans()), max_size=12))
@settings(max_examples=examples(300))
def test_whatever_is_asked_nothing_is_given_twice(calls: list[tuple[ResourceClaim, Powers, bool]]) -> None:
    """Each claim is refused in words of bounded length, or ready with a name for each device, and leaves no trace."""
    ledger = Ledger()
    offering = behind_claims(VIEW_GPUS.gpus)
    for claim, powers, ends in calls:
        if ends:
            ledger = apply_record(ledger, Unprepared(uid=claim.uid, at_seconds=0.0, why="over"), 0)
            continue
        planned = _plan(claim, NodeView(VIEW_GPUS, offering, DRIVER, POOL, powers))
        if isinstance(planned, str):
            assert 0 < len(planned) < 2000
        elif not refuse_claim(planned, ledger.claims, (), FractionTable()):
            ledger = apply_record(ledger, Prepared(claim=planned), 0)
            assert len(answer_claim(planned)) == sum(one.driver == DRIVER for one in claim.results)
        _check(ledger)


def _plan(claim: ResourceClaim, view: NodeView) -> PreparedClaim | str:
    reference = ClaimReference(namespace="ns", name=claim.name, uid=claim.uid)
    try:
        check_reference(reference)
        return plan_claim(check_claim(reference, claim), view, 0.0)
    except ClaimRefused as error:
        return str(error)


def _check(ledger: Ledger) -> None:
    whole: dict[str, set[str]] = {}
    for claim in ledger.claims.values():
        for device in claim.devices:
            if not device.is_admin and not device.share_id:
                whole.setdefault(device.device, set()).add(claim.uid)
            assert device.cdi_names
            assert claim.uid in device.cdi_names[0]
    assert all(len(holders) == 1 for holders in whole.values())


@given(CLAIMS, POWERS)
def test_the_file_of_each_request_names_exactly_its_devices(claim: ResourceClaim, powers: Powers) -> None:
    """Each device of this driver once, under the very request that the scheduler wrote."""
    planned = _plan(claim, NodeView(VIEW_GPUS, behind_claims(VIEW_GPUS.gpus), DRIVER, POOL, powers))
    if isinstance(planned, str):
        return
    told: list[tuple[str, str, str]] = []
    for request, devices in list_requests(planned).items():
        described = [(each, describe_claimed(each, VIEW_GPUS, DeviceFacts())) for each in devices]
        newest, *older = render_metadata(planned, request, described, DRIVER).splitlines()
        assert [json.loads(line)["requests"] for line in older] == [json.loads(newest)["requests"]]
        for entry in json.loads(newest)["requests"]:
            assert entry["name"].partition("/")[0] == request
            assert all(len(device["attributes"]) <= 32 for device in entry["devices"])
            told += [(entry["name"], device["pool"], device["name"]) for device in entry["devices"]]
    asked = [(one.request, one.pool, one.device) for one in claim.results if one.driver == DRIVER]
    assert sorted(told) == sorted(asked)


@given(PARAMETERS)
def test_a_configuration_is_read_or_refused_by_name(parameters: object) -> None:
    """Never anything else, however deep or long it is."""
    read = _read(parameters)
    if isinstance(read, str):
        assert read.startswith(("p", 'unknown field "p'))
        assert len(read) < 1000
    else:
        assert isinstance(parameters, dict)
        assert (parameters["apiVersion"], parameters["kind"]) == (VERSION, read.kind)


def _read(parameters: object) -> SharingRequest | str:
    try:
        return read_parameters(parameters, "p")
    except ClaimRefused as error:
        return str(error)


@given(JSON)
def test_a_document_that_is_no_claim_is_an_error_that_is_caught(document: Any) -> None:
    """The three kinds that whoever reads it expects."""
    whole = {"metadata": {"namespace": "ns", "name": "c", "uid": "u"}, "status": document}
    for each in (document, whole, {**whole, "status": {"allocation": document, "reservedFor": document}}):
        try:
            parse_claim(each)
        except (AttributeError, KeyError, TypeError):
            continue
