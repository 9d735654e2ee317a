# SPDX-License-Identifier: Apache-2.0
"""What this account may do: what is asked, and what is said of the answers."""

import asyncio

import pytest

from muster.gang import Permission
from muster.kube import access
from muster.kube.access import Access, Account
from muster.kube.client import ApiError


class Server:
    """It grants what it is told to."""

    def __init__(self, *granted):
        """Remember what to grant, a set for each round of questions."""
        self.granted, self.asked, self.reviews = granted, [], []

    async def get(self, _path, **params):
        """List the namespaces of that name."""
        return {"items": [{}] if params["fieldSelector"] == "metadata.name=team" else []}

    async def create(self, _path, review, _urgency):
        """Answer one question."""
        attributes = review["spec"]["resourceAttributes"]
        self.reviews.append(review)
        self.asked.append((attributes["resource"], attributes["verb"]))
        allowed = any(self.asked[-1] in some for some in self.granted)
        return {"status": {"allowed": allowed}}


def test_a_permission_comes_to_single_questions():
    """One for each verb, in each namespace where it is not wanted everywhere."""
    pods = Permission("", "pods/binding", ("create", "get"))
    assert access.accesses([pods], ("one", "two")) == [
        Access("pods/binding", namespace, verb)
        for namespace in ("one", "two")
        for verb in ("create", "get")
    ]
    assert access.accesses([pods], ()) == [
        Access("pods/binding", "", "create"),
        Access("pods/binding", "", "get"),
    ]


def test_what_is_not_granted_is_missing():
    """In the order in which it was asked for."""
    asked = [Access(f"r{i}", "", "list") for i in range(20)]
    server = Server({("r3", "list"), ("r7", "list")})
    left = asyncio.run(access.missing(server, asked))
    assert [a.resource for a in left] == [f"r{i}" for i in range(20) if i not in (3, 7)]


def test_access_in_a_removed_namespace_is_not_missing():
    """The roles were deleted with the namespace, and the operator handles the others."""
    server = Server()
    asked = [Access("pods", namespace, "list") for namespace in ("team", "gone")]
    assert asyncio.run(access.missing(server, asked)) == (asked[0],)


def test_an_administrator_asks_about_another_account():
    """By the name and the groups that the API server knows it by."""
    server, asked = Server(), [Access("pods", "", "list")]
    asyncio.run(access.missing(server, asked, Account("muster-system", "muster")))
    asyncio.run(access.missing(server, asked))
    review, own = server.reviews
    assert review["kind"] == "SubjectAccessReview"
    assert review["spec"]["user"] == "system:serviceaccount:muster-system:muster"
    assert "system:serviceaccounts:muster-system" in review["spec"]["groups"]
    assert own["kind"] == "SelfSubjectAccessReview"


def test_waiting_reports_each_change_and_the_end(monkeypatch):
    """Only what is still missing is asked again."""
    server, reports = Server(set()), []
    monkeypatch.setattr(access, "RETRY_SECONDS", 0.0)

    def report(problem):
        reports.append(problem)
        server.granted = ({("pods", "list")}, {("nodes", "list")})[: len(reports)]

    asked = [Access("nodes", "", "list"), Access("pods", "", "list")]
    asyncio.run(access.wait(server, asked, "none", report))
    may_not = "this account may not list"
    roles = "the roles of manifests/overlays/none grant what is needed"
    assert reports == [f"{may_not} nodes; list pods; {roles}", f"{may_not} nodes; {roles}", ""]
    assert server.asked[-1] == ("nodes", "list")


def test_a_server_in_trouble_is_waited_for_and_one_that_is_not_to_be_asked_is_not(monkeypatch):
    """The former has answered nothing yet; of the latter nothing more is to be learned."""
    monkeypatch.setattr(access, "RETRY_SECONDS", 0.0)
    answers = [ApiError(503, "", "starting", None), ApiError(403, "Forbidden", "no", None)]

    class Troubled:
        async def create(self, *_asked):
            raise answers.pop(0)

    reports = []
    asyncio.run(access.wait(Troubled(), [Access("pods", "", "list")], "none", reports.append))
    assert reports == ["no answer from the API server: starting", ""]


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_refused_reviews_of_a_starting_server_are_repeated(monkeypatch, seconds):
    """The server has not read its roles yet; later, a refusal ends the wait."""
    monkeypatch.setattr(access, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(access, "WARMING", seconds)
    message = 'selfsubjectaccessreviews is forbidden: User "muster" cannot create resource'
    answers = [ApiError(403, "Forbidden", message, None)] * 2

    class Starting(Server):
        async def create(self, *asked):
            if answers:
                raise answers.pop()
            return await super().create(*asked)

    server = Starting({("pods", "list")})
    asyncio.run(access.wait(server, [Access("pods", "", "list")], "none", print))
    assert server.asked == ([("pods", "list")] if seconds else [])


@pytest.mark.parametrize(
    ("access", "attributes"),
    [
        (Access("pods", "", "list"), {"resource": "pods", "verb": "list"}),
        (
            Access("pods/binding", "team", "create"),
            {"resource": "pods", "subresource": "binding", "namespace": "team", "verb": "create"},
        ),
        (
            Access("tfjobs.kubeflow.org/status", "", "patch"),
            {
                "group": "kubeflow.org",
                "resource": "tfjobs",
                "subresource": "status",
                "verb": "patch",
            },
        ),
    ],
)
def test_review_asks_for_exactly_that(access, attributes):
    """Group, subresource and namespace stand only where there are any."""
    assert access.attributes == {"resourceAttributes": attributes}


def test_what_is_missing_is_one_line():
    """Each resource with its verbs, each namespace, and where the roles are."""
    missing = (
        Access("nodes", "", "list"),
        Access("nodes", "", "watch"),
        Access("podgroups.scheduling.incubator.k8s.io", "team", "create"),
    )
    assert access.lacking(missing, "overlays/embedded") == (
        "this account may not list, watch nodes; create "
        "podgroups.scheduling.incubator.k8s.io in namespace team; the roles of "
        "manifests/overlays/embedded grant what is needed"
    )
    assert access.lacking((), "overlays/embedded") == ""
