# SPDX-License-Identifier: Apache-2.0
"""The stages for kwok are filled in."""

from __future__ import annotations

import re

import yaml

from muster.local import stages


def rendered(run_seconds: str) -> list[dict]:
    """Documents as kwok reads them."""
    return list(yaml.safe_load_all(stages.render(run_seconds)))


def test_no_word_is_left_to_be_filled_in() -> None:
    """A forgotten word would be a jq or template error in kwok's log only."""
    assert not re.findall(r"@[A-Z_]+@", stages.render("5"))


def test_every_document_is_a_stage_but_the_first() -> None:
    """The first one configures kwok itself."""
    kinds = [document["kind"] for document in rendered("5")]
    assert kinds[0] == "KwokConfiguration"
    assert set(kinds[1:]) == {"Stage"}


def test_the_default_run_time_is_in_the_end_of_pods_only() -> None:
    """Both ends, counted and not, wait for the same time."""
    by_name = {one.get("metadata", {}).get("name"): one for one in rendered("7.25")}
    having = {name for name, one in by_name.items() if "7.25" in str(one)}
    assert having == {"pod-end", "pod-end-counted"}


def test_a_pod_that_is_being_deleted_only_goes() -> None:
    """Each other stage of pods leaves it alone, so that kwok never has to choose."""
    for one in rendered("5")[1:]:
        name, spec = one["metadata"]["name"], one["spec"]
        if spec["resourceRef"]["kind"] != "Pod":
            continue
        deletion = [
            rule["operator"]
            for rule in spec["selector"]["matchExpressions"]
            if rule["key"] == ".metadata.deletionTimestamp"
        ]
        assert deletion == ["Exists" if name == "pod-delete" else "DoesNotExist"], name


def test_attempts_of_a_cluster_that_was_there_are_counted_apart() -> None:
    """Somebody else's simulated pods in it may be counted as well."""
    text = stages.render("5", "guest-1a2b3c")
    assert text.count("muster-local-guest-1a2b3c") == stages.render("5").count("muster-local")
    assert text.count("muster-local") == text.count("muster-local-guest-1a2b3c")
