# SPDX-License-Identifier: Apache-2.0
"""What a RuntimeClass adds to pods, as its admission has it."""

from muster.cluster import gangs
from muster.cluster.pods import Toleration
from muster.cluster.quota import QuotaBook
from muster.cluster.runtimeclass import parse
from support.builders.objects import make_job, make_replica, make_template


def runtime(*, overhead=None, selector=None, tolerations=(), name="kata"):
    """Return a RuntimeClass."""
    scheduling = {"nodeSelector": selector or {}, "tolerations": list(tolerations)}
    fixed = {"overhead": {"podFixed": overhead}} if overhead else {}
    return parse({"metadata": {"name": name}, "handler": "h", "scheduling": scheduling, **fixed})


def admission(*views):
    """Return what counts where there are these."""
    book = QuotaBook()
    for view in views:
        book.runtime_changed(None, view)
    return book.admission("team")


def template(**spec):
    """Return a template that names the class."""
    return make_template(requests={"cpu": "1"}, runtimeClassName="kata", **spec)


def shape(written, *views):
    """Return what a worker of that template asks of its node."""
    job = make_job(replicas=[make_replica(template=written)])
    return gangs.shapes_of(job, admitted(job, *views))["Worker"]


def admitted(job, *views):
    """Return the templates of a job as its pods will be stored where there are these."""
    return {t: admission(*views).admitted(w) for t, w in gangs.templates(job).items()}


def test_overhead_is_part_of_what_a_pod_takes():
    """Beside what its containers ask for."""
    view = runtime(overhead={"cpu": "250m", "memory": "120Mi"})
    found = dict(shape(template(), view).requests)
    assert found == {"cpu": 1250, "memory": 120 * 2**20}
    assert dict(shape(template(), view).use("team", "p", "n").requests) == found
    charged = admission(view).admitted(template())["spec"]["overhead"]
    assert charged == {"cpu": "250m", "memory": "120Mi"}


def test_no_pod_takes_less_for_its_runtime():
    """An overhead below nothing is none."""
    view = runtime(overhead={"cpu": "-3"})
    assert dict(shape(template(), view).requests) == {"cpu": 1000}


def test_where_its_pods_can_run():
    """Its labels and tolerations come to those of the pods."""
    gpu = {"key": "sandbox", "operator": "Exists", "effect": "NoSchedule"}
    view = runtime(selector={"runtime": "kata"}, tolerations=[gpu])
    own = {"key": "spot", "operator": "Equal", "value": "yes"}
    found = shape(template(nodeSelector={"zone": "a"}, tolerations=[own]), view)
    assert found.selector == (("runtime", "kata"), ("zone", "a"))
    assert found.tolerations == (
        Toleration("spot", False, "yes", ""),
        Toleration("sandbox", True, "", "NoSchedule"),
    )


def test_pods_that_have_its_labels_already_are_as_the_others():
    """Of a gang of which some are there the rest is placed with them."""
    job = make_job(replicas=[make_replica(template=template())])
    templates = admitted(job, runtime(selector={"runtime": "kata"}))
    rules = gangs.GangRules(frozenset({"muster"}), "default")
    (tasks,) = gangs.task_sets(job, rules, templates, {})
    assert tasks.selector == {"runtime": "kata"}


def test_a_class_that_changes_is_looked_at_again():
    """As is one that comes or goes."""
    book, seen = QuotaBook(), []
    before, after = runtime(), runtime(overhead={"cpu": "1"})
    for old, new in ((None, before), (before, before), (before, after), (after, None)):
        book.runtime_changed(old, new)
        seen.append((book.version, len(book.runtimes)))
    assert seen == [(1, 1), (1, 1), (2, 1), (3, 0)]
