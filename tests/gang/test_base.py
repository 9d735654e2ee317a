# SPDX-License-Identifier: Apache-2.0
"""How a group follows its job: real differences of owned fields, and nothing else."""

import pytest

from muster import gang
from support.builders.objects import make_group, make_job

FACTS = gang.GangFacts(operator_name="op", priorities={"high": 1})
TWO_WORKERS = {"minTaskMember": {"Worker": 2}}
BACKENDS = [backend for backend in gang.BACKENDS.values() if backend.apis]


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_no_difference_to_what_was_written(backend):
    """A group needs no update (M3), also if others add fields that are not Muster's."""
    wanted = backend.group(make_job(), FACTS)
    for more in ({}, {"networkTopology": {"mode": "hard"}}):
        group = make_group(document={**wanted, "spec": {**wanted["spec"], **more}})
        assert backend.difference(group, wanted) is None


def test_a_field_that_the_job_gave_up_is_removed():
    """An owned field without a value is patched away."""
    before = make_job(scheduling={"priority_class": "high"})
    group = make_group(document=gang.EMBEDDED.group(before, FACTS))
    wanted = gang.EMBEDDED.group(make_job(), FACTS)
    assert gang.EMBEDDED.difference(group, wanted) == {"spec": {"priorityClassName": None}}


@pytest.mark.parametrize("backend", [gang.EMBEDDED, gang.VOLCANO, gang.SCHEDULER_PLUGINS])
@pytest.mark.parametrize(
    ("there", "asked", "found"),
    [
        ({"cpu": "4", "nvidia.com/gpu": "8"}, {"cpu": "4"}, {"nvidia.com/gpu": None}),
        ({"cpu": "4"}, {"cpu": "2", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1000m", "memory": "1024Mi"}, None),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1000m"}, {"cpu": "1000m", "memory": None}),
    ],
)
def test_resources_that_a_group_asks_for(backend, there, asked, found):
    """What the job gave up is taken out; a scheduler's own spelling of amounts stays."""
    before = make_job(scheduling={"min_resources": there})
    group = make_group(document=backend.group(before, FACTS))
    wanted = backend.group(make_job(scheduling={"min_resources": asked}), FACTS)
    patch = {"spec": {"minResources": found}} if found else None
    assert backend.difference(group, wanted) == patch


@pytest.mark.parametrize(
    ("there", "asked", "found"),
    [
        ({"queue": "theirs"}, {}, None),
        ({"queue": ""}, {}, {"queue": "default"}),
        ({"minTaskMember": {"Worker": 1}}, {}, None),
        ({"minTaskMember": {"Worker": 1}}, TWO_WORKERS, TWO_WORKERS),
    ],
)
def test_what_others_wrote_on_a_volcano_group_stays(there, asked, found):
    """A queue on the group wins, and role minimums where the job asks for none."""
    wanted = gang.VOLCANO.group(make_job(annotations={"added": "later"}), FACTS)
    spec = {key: value for key, value in {**wanted["spec"], **there}.items() if value}
    metadata = gang.VOLCANO.group(make_job(), FACTS)["metadata"]
    group = make_group(document={**wanted, "metadata": metadata, "spec": spec})
    wanted["spec"] |= asked
    assert gang.VOLCANO.difference(group, wanted) == (found and {"spec": found})


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_what_the_server_drops_is_no_difference(backend):
    """It would be written, or the group made anew, for ever."""
    wanted = backend.group(make_job(), FACTS)
    for key in wanted["spec"]:
        rest = {name: value for name, value in wanted["spec"].items() if name != key}
        group = make_group(document={**wanted, "spec": rest})
        assert backend.difference(group, wanted) == {"spec": {key: wanted["spec"][key]}}
        assert backend.difference(group, wanted, {key}) is None
