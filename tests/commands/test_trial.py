# SPDX-License-Identifier: Apache-2.0
"""A job that is pasted into the page, as the program that tries it takes it."""

from __future__ import annotations

import io
import json
import pickle
from dataclasses import replace

import pytest
import yaml

from muster.commands import trial
from support.apiserver.memory import tfjob
from support.builders import sample_clusters


def asked(text):
    """Return what the program says of a text, on the small hall."""
    saw, _ = sample_clusters.small()
    seen = None, replace(saw, pods=()), saw.pods[:9], saw.pods[9:], ()
    told = io.BytesIO()
    given = io.BytesIO(json.dumps(text).encode() + b"\n" + b"".join(map(pickle.dumps, seen)))
    trial.main(given, told)
    return [json.loads(line) for line in told.getvalue().splitlines()]


def test_it_says_first_what_would_be_created():
    """Each kind in each namespace once; what does not count is not asked for."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "vision"}}
    pod["spec"] = {"schedulerName": "muster", "containers": [{"name": "a", "image": "i"}]}
    documents = [
        tfjob(name="one"), tfjob(name="two"), pod,
        {"apiVersion": "batch/v1", "kind": "Job"},
        {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "kube-system"}},
    ]  # fmt: skip
    created, answer = asked(yaml.safe_dump_all(documents))
    assert created == {
        "creates": [
            ["", "pods", "vision"],
            ["batch", "jobs", "default"],
            ["kubeflow.org", "tfjobs", "team"],
            ["scheduling.volcano.sh", "podgroups", "default"],
        ]
    }
    assert "TFJob/team/two: fits now" in answer["text"]


@pytest.mark.parametrize("text", ["a: [", "[1]", "kind: TFJob", "kind: Other", ""])
def test_what_is_no_job_is_a_sentence(text):
    """Whether that shows before the cluster is seen, or after."""
    *_, last = asked(text)
    assert last.keys() == {"wrong"}


def test_what_is_too_large_is_a_sentence(monkeypatch):
    """A process that may take no more memory says so."""

    def tried(*_):
        raise MemoryError

    monkeypatch.setattr(trial, "tried", tried)
    _, last = asked(yaml.safe_dump(tfjob()))
    assert last == {"wrong": "that is too large to be tried here"}
