# SPDX-License-Identifier: Apache-2.0
"""What is known of the objects of jobs that are no pods."""

from muster.api import model
from muster.api.status import Condition, JobStatus
from muster.store.children import Children
from support.builders.objects import OWNER, make_job, make_owner

NAME = "mnist-launcher"


def make_batch(**fields):
    """Return the batch Job of `make_job`'s job."""
    values = {"namespace": "team", "name": NAME, "uid": "batch-uid", "owner": OWNER}
    return model.BatchView(**({"kind": "Job", "deleting": False} | values | fields))


def found(children, **fields):
    """Return the batch Jobs that count as there."""
    return children.of(make_job(**fields), "Job", [NAME])


def test_what_became_of_a_batch_job_outlives_it():
    """Until its job has taken it in; another one of that name takes its place."""
    children = Children(lambda _: True)
    done = make_batch(end="Complete")
    children.changed(None, done)
    children.changed(done, None)
    assert found(children) == (done,)
    over = JobStatus(conditions=(Condition("Succeeded", "True", "", "", 0.0, 0.0),))
    assert found(children, status=over) == ()
    assert found(children, uid="another") == ()
    new = make_batch(uid="new")
    children.changed(None, new)
    assert found(children) == (new,)


def test_a_batch_job_that_is_taken_away_is_gone():
    """It has not come to its end."""
    children = Children(lambda _: True)
    children.changed(None, make_batch())
    children.changed(make_batch(), None)
    assert found(children) == ()


def test_nothing_is_kept_of_jobs_that_are_gone():
    """Whether a batch Job ends before its job goes, or after."""
    living = {OWNER}
    children = Children(living.__contains__)
    done = make_batch(end="Failed")
    children.changed(None, done)
    children.changed(done, None)
    assert found(children) == (done,)
    children.job_ended(OWNER)
    assert found(children) == ()
    later = make_batch(end="Failed", owner=make_owner(uid="gone"))
    children.changed(None, later)
    children.changed(later, None)
    assert not any(vars(children)[index] for index in ("_past", "_of", "_makers", "_owner"))
