# SPDX-License-Identifier: Apache-2.0
"""The names of a job's pods, which are computed on access."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

from muster.api.model import Places, PodNames
from support.builders.objects import make_job, make_replica

LAUNCHER = replace(make_replica(type="Launcher"), numbered=False)
WORKERS = make_replica(type="Worker", replicas=12)
JOB = make_job(replicas=(LAUNCHER, WORKERS))
NAMES = ["mnist-launcher", *(f"mnist-worker-{index}" for index in range(12))]


def test_names_are_those_of_all_pods_in_order() -> None:
    """A set of names that are not stored behaves as a set of names that are."""
    names = JOB.pod_names(JOB.replicas)
    assert list(names) == NAMES
    assert names == frozenset(NAMES)
    assert len(names) == 13
    assert frozenset({"mnist-worker-3", "other"}) & names == {"mnist-worker-3"}
    assert names - {"mnist-launcher"} == set(NAMES[1:])
    assert names | {"other"} == {*NAMES, "other"}
    assert not JOB.pod_names(())


@pytest.mark.parametrize("name", NAMES)
def test_name_of_a_pod_is_contained(name: str) -> None:
    """Whether the pods of its role are numbered or not."""
    assert name in JOB.pod_names(JOB.replicas)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "mnist-worker",
        "mnist-worker-",
        "mnist-worker-12",
        "mnist-worker-03",
        "mnist-worker--1",
        "mnist-worker-٣",
        "mnist-worker-1 ",
        f"mnist-worker-{'9' * 5000}",
        "mnist-launcher-0",
        "mnist-ps-0",
        "other-worker-0",
        3,
    ],
)
def test_name_of_no_pod_is_not_contained(name: object) -> None:
    """A name counts only as the controller spells it."""
    assert name not in JOB.pod_names(JOB.replicas)


def test_places_are_the_names_of_a_role_by_index() -> None:
    """A mapping of names that are not stored behaves as a mapping of names that are."""
    places = Places(JOB.name, WORKERS)
    assert dict(places) == dict(enumerate(NAMES[1:]))
    assert (11 in places, 12 in places, -1 in places) == (True, False, False)
    assert places == Places(JOB.name, WORKERS)


def test_names_of_ten_thousand_pods_take_no_memory() -> None:
    """A job of 300 bytes may ask for as many."""
    many = make_job(replicas=(make_replica(type="Worker", replicas=10_000),))
    tracemalloc.start()
    names = many.pod_names(many.replicas), Places(many.name, many.replicas[0])
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(names[0], PodNames)
    assert kept < 10_000
