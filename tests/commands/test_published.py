# SPDX-License-Identifier: Apache-2.0
"""The policy and the settings that the operator publishes, as commands read them."""

import asyncio
import time

import pytest

from muster.commands import published
from muster.kube.client import ApiError
from muster.scheduler import policy
from muster.settings import Settings
from support.apiserver.read_only import OBJECTS, Served, lease
from support.apiserver.read_only import published as config_map

PREEMPTS = {"actions": "allocate, preempt"}
NOW = time.time()
"""The time of the leases of the parameters, which are made at the import."""
FORBIDDEN = ApiError(403, "Forbidden", "no configmaps for you", None)


def read(*documents, settings=None, **more):
    """Return what commands read of a cluster with these objects."""
    return asyncio.run(published.read(Served(*documents, **more), settings or Settings()))


def test_published_policy_and_settings_are_used_in_place_of_built_in_ones():
    """Commands compute with what the operator uses."""
    found = config_map(PREEMPTS, reservation_after=5.0, scheduler_names=("volcano",))
    chosen, settings, unknown = read(found)
    assert (chosen, unknown) == (policy.parse(PREEMPTS), "")
    assert settings == Settings(reservation_after=5.0, scheduler_names=("volcano",))


def test_flags_and_policy_file_of_the_command_line_win(tmp_path):
    """A user may compute with another policy than the operator's."""
    file = tmp_path / "policy.yaml"
    file.write_text("actions: allocate, reclaim")
    own = Settings(scheduler_conf=str(file), reservation_after=7.0)
    chosen, settings, unknown = read(config_map(PREEMPTS, reservation_after=5.0), settings=own)
    assert (chosen.actions, settings, unknown) == (("allocate", "reclaim"), own, "")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "must be a mapping"),
        ({"policy.json": "{"}, "muster-policy"),
        ({"policy.json": '{"actions": 1}', "settings.json": "{}"}, "actions"),
        ({"policy.json": ["x"], "settings.json": None}, "must be a mapping"),
        (None, "must be a mapping"),
        ("text", "must be a mapping"),
    ],
)
def test_unreadable_config_map_is_reported_and_the_built_in_policy_used(data, words):
    """Whatever the ConfigMap holds, commands compute."""
    chosen, settings, unknown = read({"kind": "ConfigMap", "data": data})
    assert (chosen, settings) == (policy.DEFAULT, Settings())
    assert words in unknown
    assert unknown.endswith("; the built-in policy is used")


def test_values_of_other_types_and_unknown_settings_are_ignored():
    """Only known settings of their own type count."""
    texts = {"reservation_after": "5", "scheduler_names": [1], "gang": "volcano", "more": {}}
    assert Settings().completed(texts) == Settings()


def test_missing_or_forbidden_config_map_is_reported():
    """The message of the API server says why the policy is unknown."""
    missing = read(failing={OBJECTS["ConfigMap"]: None})[2]
    assert "muster-policy not found; the built-in policy is used" in missing
    found = read(failing={OBJECTS["ConfigMap"]: FORBIDDEN})[2]
    assert found.startswith("ConfigMap muster-system/muster-policy: no configmaps for you; ")


@pytest.mark.parametrize(
    ("served", "words"),
    [
        (lease(34.0), ""),
        (lease(-3600.0), ""),
        (lease(40.0), "the operator does not run: the lease muster in muster-system was last"),
        (lease(holder=""), "the operator does not run: "),
        (ApiError(404, "NotFound", "no such lease", None), "it is unknown whether the operator"),
        (FORBIDDEN, "it is unknown whether the operator runs: no configmaps for you"),
        ({}, "the operator does not run: "),
    ],
)
def test_operator_is_down_after_three_lease_durations_without_a_renewal(served, words):
    """Without the right to read the Lease it is unknown whether the operator runs."""
    server = Served(failing={OBJECTS["Lease"]: served or {"spec": 1}})
    server.clock = lambda: asyncio.sleep(0, NOW)
    told = asyncio.run(published.operator_problem(server, Settings()))
    assert told.startswith(words)
    assert bool(told) is bool(words)
