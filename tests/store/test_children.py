# SPDX-License-Identifier: Apache-2.0
"""What is known of the objects of jobs that are no pods."""

from muster.api import model
from muster.store.children import Children
from support.builders.objects import OWNER, make_job

NAME = "mnist-launcher"


def make_batch(**fields):
    """Return the batch Job of `make_job`'s job."""
    values = {"namespace": "team", "name": NAME, "uid": "batch-uid", "owner": OWNER}
    return model.BatchView(**({"kind": "Job", "deleting": False} | values | fields))


def test_batch_job_is_found_until_it_is_removed():
    """No index keeps anything of it then."""
    children, job = Children(), make_batch(end="Complete")
    children.changed(None, job)
    assert children.of(make_job(), "Job", [NAME]) == (job,)
    children.changed(job, None)
    assert children.of(make_job(), "Job", [NAME]) == ()
    assert not any(vars(children)[index] for index in ("_of", "_all", "_makers", "_owner"))
