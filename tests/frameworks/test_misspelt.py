# SPDX-License-Identifier: Apache-2.0
"""Annotations that have no effect are named, with what was probably meant."""

import difflib
from unittest.mock import patch

import pytest

from muster.api import names
from muster.api.model import Notice
from muster.frameworks import FRAMEWORKS, load
from muster.frameworks.misspelt import MAX_SHOWN
from support.apiserver.memory import tfjob
from support.builders.objects import make_template

RESTART = "muster.kubeflow.org/restart"


def document(of_job=(), of_template=()):
    """Return a job with these annotations."""
    template = make_template(metadata={"annotations": dict(of_template)})
    made = tfjob(Worker={"replicas": 1, "template": template})
    made["metadata"]["annotations"] = dict(of_job)
    return made


def ignored(of_job=(), of_template=()):
    """Return the message about annotations that are ignored, None without one."""
    job = load(FRAMEWORKS["TFJob"], document(of_job, of_template))
    found = [notice for notice in job.notices if notice.reason == "AnnotationIgnored"]
    assert all(notice == Notice("Warning", notice.reason, notice.message) for notice in found)
    return found[0].message if found else None


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("restrat", "restart"),
        ("Restart", "restart"),
        ("estimated-second", "estimated-seconds"),
        ("minAvailable", "min-available"),
        ("topology_required", "topology-required"),
    ],
)
def test_misspelt_annotation_suggests_the_nearest(name, near):
    """On the job."""
    assert ignored({f"muster.kubeflow.org/{name}": "gang"}) == (
        f"annotation muster.kubeflow.org/{name} in metadata.annotations is ignored: "
        f"did you mean muster.kubeflow.org/{near}?"
    )


def test_annotation_without_a_near_one_lists_all():
    """The reader finds the one that was meant; one of a template counts on the job alone."""
    assert ignored(of_template={RESTART: "gang"}) == (
        f"annotation {RESTART} in the template of Worker is ignored: "
        "write it in metadata.annotations of the job"
    )
    told = ignored({"muster.kubeflow.org/qqq": "x"})
    assert told is not None
    assert all(name.removeprefix(names.OWN_PREFIX) in told for name in names.JOB_ANNOTATIONS)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("gang", None),
        ("pod", None),
        ("Gang", f'annotation {RESTART}: value "Gang" is ignored: write gang or pod'),
        ("\x1b" * 99, rf'annotation {RESTART}: value "{chr(92)}u001b'),
    ],
)
def test_misspelt_value_names_the_accepted_ones(value, told):
    """Of annotations with a fixed set of values."""
    found = ignored({RESTART: value})
    assert found == told or (found or "").startswith(f"{told}")
    assert "\x1b" not in (found or "")


def test_known_annotations_are_not_named():
    """Neither on the job nor on its templates, nor annotations of other programs."""
    values = {name: (known or ("1",))[0] for name, known in names.JOB_ANNOTATIONS.items()}
    others = {"local.muster.kubeflow.org/run-seconds": "1", "example.org/restrat": "x"}
    of_template = dict.fromkeys(names.TEMPLATE_ANNOTATIONS, "rack") | others
    assert ignored(values | others, of_template) is None


def test_one_notice_names_few_of_many():
    """A job with thousands of annotations makes one event, for the cost of those that it names."""
    with patch.object(difflib, "get_close_matches", wraps=difflib.get_close_matches) as searched:
        told = ignored({f"muster.kubeflow.org/odd-{i}": "x" for i in range(999)})
    assert told is not None
    assert searched.call_count == told.count("is ignored") == MAX_SHOWN
    assert told.endswith("; and 994 more")


def test_every_annotation_of_muster_is_in_a_table():
    """An annotation that is added to the vocabulary is not named as misspelt."""
    made = {value for value in vars(names).values() if isinstance(value, str)
            and value.startswith(names.OWN_PREFIX) and value != names.OWN_PREFIX}  # fmt: skip
    operators = {names.LEADS, names.GANG_HAD, names.TEMPLATE_HASH}
    operators |= {names.FAILURES_BEFORE, names.REJECTIONS_BEFORE, names.LAST_REJECTION}
    assert made - operators == set(names.JOB_ANNOTATIONS)
