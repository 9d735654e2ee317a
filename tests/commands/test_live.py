# SPDX-License-Identifier: Apache-2.0
"""How commands find what they are about, and what they say where that cannot be done."""

import pytest

from muster import cli
from muster.commands import live
from muster.commands.arguments import reference
from muster.kube.client import ApiError
from support.apiserver.memory import tfjob
from support.rehearsal.commands import said

FORBIDDEN = 'tfjobs.kubeflow.org is forbidden: User "eve" cannot {} {}'


def found(what, *documents, namespace="team"):
    """Return the key of the job that is found."""

    async def command(kube, where):
        yield (await live.find(kube, where, reference(what.split()))).key

    return said(command, *documents, namespace=namespace)


def job(name, kind="TFJob", namespace="team"):
    """Return a job."""
    return {**tfjob(name=name), "kind": kind, "metadata": {"name": name, "namespace": namespace}}


@pytest.mark.parametrize(
    "what",
    [
        "mnist",
        "tfjob/mnist",
        "TFJobs/mnist",
        "tfjobs.kubeflow.org/mnist",
        "tfj mnist",
        "tfjob/team/mnist",
    ],
)
def test_a_job_by_its_name(what):
    """With or without its kind, as kubectl spells it, in any case."""
    jobs = job("mnist"), job("other"), job("mnist", namespace="elsewhere")
    assert found(what, *jobs) == "TFJob/team/mnist"


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("twice", "twice matches several jobs: pytorchjob/twice, tfjob/twice"),
        ("pytorchjob/away", "no job pytorchjob/away in namespace team, nor in any"),
        ("away", "no job away in namespace team; there is one in a, b: -n a"),
        ("deployment/web", "deployment is no kind of job; the kinds are tfjob, "),
    ],
)
def test_what_is_no_job(what, told):
    """Which ones may be meant, and where there is one."""
    jobs = job("twice"), job("twice", "PyTorchJob"), job("away", namespace="b")
    with pytest.raises(live.RefusedError) as raised:
        found(what, *jobs, job("away", namespace="a"))
    assert told in str(raised.value)


def test_who_may_not_is_told_what_is_missing():
    """In the server's words, then which role has it."""
    for asked, role in ("list", "view"), ("patch", "edit"):
        where = 'resource "tfjobs" in API group "kubeflow.org" in the namespace "a"'
        told = live.explained(ApiError(403, "Forbidden", FORBIDDEN.format(asked, where), None))
        assert f"a RoleBinding to the ClusterRole {role} in namespace a" in told


@pytest.mark.parametrize("resource", ["nodes", "pods", "queues"])
def test_what_is_read_of_the_whole_cluster_is_an_administrators(resource):
    """No role of a namespace has it, and no flag asks for less."""
    where = f'resource "{resource}" in API group "" at the cluster scope'
    text = FORBIDDEN.format("list", where)
    told = live.explained(ApiError(403, "Forbidden", text, None))
    assert told.endswith("; an administrator's ClusterRoleBinding to list them would allow it")
    assert live.explained(ApiError(404, "NotFound", "gone", None)) == "gone"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            ApiError(401, "Unauthorized", "Unauthorized", None),
            (
                "the API server does not accept your credentials: Unauthorized; "
                "log in again, or give --context or --kubeconfig"
            ),
        ),
        (FileNotFoundError(2, "No such file", "/absent"), "/absent: No such file"),
        (TimeoutError(), "no answer came: TimeoutError"),
    ],
)
def test_failed_requests_and_files_are_errors_that_name_the_object(error, told):
    """The error message names the object and what to do, also where the error has no text."""
    assert live.explained(error) == told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("explain x --cluster {file}", "muster: {file}: not JSON"),
        ("simulate --replay {file}", "muster: {file}: not JSON"),
        ("dashboard --cluster {file}", "muster: {file}: not JSON"),
        ("simulate --replay {file}.none", "muster: {file}.none: No such file or directory"),
        ("render -f {file}.none", "muster: {file}.none: No such file or directory"),
        ("snapshot --from bogus", "muster: bogus/debug/snapshot is not a URL"),
        ("top --kubeconfig {file}", "muster: no connection to a cluster: kubeconfig {file} c"),
        ("top --kubeconfig {file}.empty", "muster: no connection to a cluster"),
        ("explain --kubeconfig {file}", "muster: no connection to a cluster: kubeconfig {file}"),
    ],
)
def test_unusable_file_is_an_error_that_names_it(tmp_path, capsys, words, told):
    """Every command reports an unusable file by its name and ends with code 2."""
    file = tmp_path / "file"
    file.write_text("[")
    (tmp_path / "file.empty").write_text("apiVersion: v1\nkind: Config\n")
    assert cli.main(words.format(file=file).split()) == 2
    assert capsys.readouterr().err.startswith(told.format(file=file))


@pytest.mark.parametrize("words", ["dashboard --port 65536", "logs x --tail -5"])
def test_number_out_of_range_is_an_error_that_names_the_flag(capsys, words):
    """A number that cannot be meant is refused before a cluster is contacted."""
    with pytest.raises(SystemExit):
        cli.main(words.split())
    flag, value = words.split()[-2:]
    assert f"argument {flag}: {value}: write an integer" in capsys.readouterr().err
