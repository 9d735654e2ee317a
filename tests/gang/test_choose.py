# SPDX-License-Identifier: Apache-2.0
"""Which backend a value of --gang-scheduler-name means."""

import pytest

from muster import gang


@pytest.mark.parametrize(
    ("value", "name", "scheduler"),
    [
        (None, "embedded", "muster"),
        ("embedded", "embedded", "muster"),
        ("", "none", ""),
        ("none", "none", ""),
        ("None", "none", ""),
        ("volcano", "volcano", "volcano"),
        ("VOLCANO", "volcano", "volcano"),
        ("scheduler-plugins", "scheduler-plugins", ""),
        ("kube-batch", "kube-batch", "kube-batch"),
        ("kubernetes", "kubernetes", ""),
        ("default-scheduler", "scheduler-plugins", "default-scheduler"),
        ("scheduler-plugins-scheduler", "scheduler-plugins", "scheduler-plugins-scheduler"),
        ("My-Scheduler", "scheduler-plugins", "My-Scheduler"),
    ],
)
def test_choose(value, name, scheduler):
    """The six words in any case; every other string is a scheduler-plugins instance."""
    backend = gang.choose(value)
    assert (backend.name, backend.scheduler_name) == (name, scheduler)
    assert backend.embedded is (name == "embedded")


def test_embedded_pods_name_the_first_of_its_schedulers():
    """With other --scheduler-name values pods name one that is answered to."""
    backend = gang.choose(None, scheduler_names=("batch", "muster"))
    assert (backend.scheduler_name, backend.scheduler_names) == ("batch", ("batch", "muster"))


def test_kube_batch_object():
    """--kube-batch-object says which objects may hold kube-batch's group; others are refused."""
    groups, budget = ["PodGroup", "PodGroup"], ["PodDisruptionBudget"]
    for object_, kinds in {"auto": [*groups, *budget], "podgroup": groups, "pdb": budget}.items():
        backend = gang.choose("kube-batch", kube_batch_object=object_)
        assert [api.kind for api in backend.apis] == kinds
    with pytest.raises(ValueError, match='"pod" is none of auto, podgroup, pdb'):
        gang.choose("volcano", kube_batch_object="pod")


INCUBATOR = ("scheduling.incubator.k8s.io/v1alpha1", "PodGroup")
SIGS = ("scheduling.sigs.dev/v1alpha2", "PodGroup")
BUDGET = ("policy/v1", "PodDisruptionBudget")


@pytest.mark.parametrize(
    ("served", "api_version"),
    [({INCUBATOR, SIGS, BUDGET}, INCUBATOR[0]), ({SIGS, BUDGET}, SIGS[0]), ({BUDGET}, BUDGET[0])],
)
def test_first_api_that_is_served(served, api_version):
    """kube-batch takes the first of its dialects that the cluster has, and Volcano none."""
    assert gang.KUBE_BATCH.served(served).api_version == api_version
    assert gang.VOLCANO.served(served) is None


@pytest.mark.parametrize("api", ["scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha2"])
def test_native_gangs_need_both_kinds(api):
    """PodGroup alone is not enough for kubernetes: the Workload must be served beside it."""
    assert gang.KUBERNETES.served({(api, "PodGroup")}) is None
    assert gang.KUBERNETES.served({(api, "PodGroup"), (api, "Workload")}).api_version == api


@pytest.mark.parametrize("backend", gang.BACKENDS.values(), ids=lambda backend: backend.name)
def test_backends_with_an_api_tell_the_cure_and_the_permissions(backend):
    """Whoever needs an API says how to get it, and what rights it takes, without wildcards."""
    assert bool(backend.apis) == bool(backend.cure) == bool(backend.permissions)
    assert all(word in backend.cure for api in backend.apis[:1] for word in (api.kind, api.group))
    for permission in backend.permissions:
        assert "*" not in (permission.group, permission.resource, *permission.verbs)
    groups = {(api.group, api.plural) for api in backend.apis}
    assert groups <= {(p.group, p.resource) for p in backend.permissions if "watch" in p.verbs}
