# SPDX-License-Identifier: Apache-2.0
"""Which rank failed first, and for how long the status says so."""

import pytest

from muster.api.edge import format_time
from muster.api.status import FirstFailure
from muster.controller.failures import LONGEST
from muster.controller.policies import LONG_RUN
from support.apiserver.memory import START, World, tfjob
from support.builders.mpijobs import world as mpi_world

FIRST, SECOND = "mnist-worker-0", "mnist-worker-1"
AGAIN = {"restartPolicy": "OnFailure"}
DYNAMIC = {"enableDynamicWorker": True}


def ended(code, after, **more):
    """Return the end of a container, so many seconds after the job was made."""
    return {"exitCode": code, "finishedAt": format_time(START + after), **more}


def container(state=None, last=None, name="tensorflow"):
    """Return the status of a container: its state, and how it ended the last time."""
    return {"name": name, "state": state or {"running": {}}, "lastState": last or {}}


def fail(world, pod, code=1, *, after=10, **more):
    """Let a pod fail with its container."""
    state = {"terminated": ended(code, after, **more)}
    world.pod(pod)["status"] = {"phase": "Failed", "containerStatuses": [container(state)]}


def crash(world, pod, code=1, *, after=10, reason="CrashLoopBackOff"):
    """Let a container fail in its pod, which pauses before it starts it anew."""
    waiting = {"waiting": {"reason": reason, "message": f"back-off {after}s"}}
    status = container(waiting, {"terminated": ended(code, after)})
    world.pod(pod)["status"] = {"phase": "Running", "containerStatuses": [status]}


def running(workers=2, **roles):
    """Return a job whose pods run on nodes named after them."""
    world = World(tfjob(**{"Worker": {"replicas": workers, **AGAIN}, **roles})).settle()
    for pod in world.of("Pod"):
        pod["spec"]["nodeName"] = f"on-{pod['metadata']['name']}"
    return world.start().settle()


def told(world):
    """Return pod and exit code of the first failure that the status tells, None if none is."""
    found = world.status.get("firstFailure")
    return (found["pod"], found.get("exitCode")) if found else None


def test_the_earliest_end_is_the_first_whoever_is_seen_first():
    """With role, index, node, time and what the container left, and in a sentence."""
    world = running()
    fail(world, SECOND, 137, after=12)
    world.step()
    assert told(world) == (SECOND, 137)
    fail(world, FIRST, 3, after=11, reason="Error", message="no such file\n")
    world.step()
    assert world.status["firstFailure"] == {
        "pod": FIRST,
        "replicaType": "Worker",
        "index": 0,
        "failureTime": format_time(START + 11),
        "node": f"on-{FIRST}",
        "container": "tensorflow",
        "exitCode": 3,
        "reason": "Error",
        "message": "no such file",
    }
    assert world.status["reason"] == (
        f"The first to fail was pod {FIRST} on node on-{FIRST}: "
        "container tensorflow ended with exit code 3."
    )


def test_in_one_second_the_first_role_and_index_count():
    """Roles in the order of the kind, whichever stands first in the job."""
    world = running(PS={"replicas": 1, **AGAIN})
    for pod in (SECOND, FIRST, "mnist-ps-0"):
        fail(world, pod)
        world.step()
    assert told(world) == ("mnist-ps-0", 1)


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (1, "Error", "exit code 1."),
        (137, "OOMKilled", "exit code 137 (SIGKILL, OOMKilled)."),
        (143, "Error", "exit code 143 (SIGTERM)."),
        (255, "Error", "exit code 255."),
        (128, "StartError", "exit code 128 (StartError)."),
    ],
)
def test_the_sentence_says_how_it_ended(code, reason, words):
    """A signal by its name, and what Kubernetes calls it if that says more."""
    failure = FirstFailure(FIRST, "Worker", 0, START, container="c", exit_code=code, reason=reason)
    assert str(failure).endswith(f"{FIRST}: container c ended with {words}")


def test_a_pod_that_was_thrown_out_failed_as_a_whole():
    """When it is not known, so that it counts from when it was seen, and later looks agree."""
    world = running()
    status = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
    world.pod(FIRST)["status"] = status
    world.step()
    first = world.status["firstFailure"]
    assert (first["reason"], first["message"]) == ("Evicted", "low on memory")
    assert world.status["reason"].endswith(f"pod {FIRST} on node on-{FIRST}: Evicted.")
    world.wait(5).step()
    assert world.status["firstFailure"] == first


def test_first_failure_stays_until_the_gang_ran_whole_for_ten_minutes():
    """A crash loop does not clear it, and the reason is cleared once all pods run."""
    world = running()
    fail(world, SECOND)
    world.settle()
    assert told(world) == (SECOND, 1)
    world.start(FIRST).settle()
    assert told(world) == (SECOND, 1)
    world.start()
    world.pod(SECOND)["status"]["startTime"] = format_time(world.now)
    world.settle()
    assert (told(world), world.status.get("reason")) == ((SECOND, 1), None)
    assert world.requeue == world.now + LONG_RUN
    world.wait(LONG_RUN).settle()
    assert told(world) is None
    fail(world, FIRST, 2, after=50)
    world.settle()
    assert told(world) == (FIRST, 2)


def test_a_job_that_failed_keeps_it_and_one_that_succeeded_has_none():
    """Also where it ended though one of its ranks failed."""
    failed, dynamic = World(tfjob(Worker=2)), World(tfjob(Worker=2, spec=DYNAMIC))
    for world in (failed, dynamic):
        world.settle()
        fail(world, SECOND)
        world.settle()
        assert told(world) == (SECOND, 1)
        assert SECOND in world.status["reason"]
    assert failed.conditions[-1] == "Failed T"
    assert failed.last[1] == "TFJob team/mnist has failed because 1 Worker replica(s) failed."
    dynamic.end(FIRST).settle()
    assert dynamic.conditions[-1] == "Succeeded T"
    assert (told(dynamic), dynamic.status.get("reason")) == (None, None)


def test_a_suspended_job_keeps_it_and_a_resumed_one_starts_anew():
    """Who suspends a job to look at it still reads why."""
    world = running()
    fail(world, SECOND)
    world.settle().edit(runPolicy={"suspend": True}).settle().reap()
    world.settle()
    assert told(world) == (SECOND, 1)
    world.edit(runPolicy={"suspend": False}).settle()
    assert told(world) is None


def test_container_that_crashes_in_its_pod_stays_the_first_failure():
    """Each later crash has the same cause, also after short runs between them."""
    world = running()
    crash(world, SECOND)
    world.settle()
    assert told(world) == (SECOND, 1)
    for after in (20, 40):
        world.pod(SECOND)["status"]["containerStatuses"] = [
            container(state={"running": {"startedAt": format_time(START + after - 5)}})
        ]
        world.settle()
        assert told(world) == (SECOND, 1)
        crash(world, SECOND, 5, after=after)
        world.settle()
        assert told(world) == (SECOND, 1)


@pytest.mark.parametrize(
    ("before", "first"), [(5, FIRST), (LONG_RUN, FIRST), (LONG_RUN + 1, SECOND)]
)
def test_one_that_was_started_anew_at_once_counts_if_another_failed_soon_after(before, first):
    """The other failed because of it, most likely; on its own it is no failure of the job."""
    world, at = running(), 2 * LONG_RUN
    last = {"terminated": ended(1, at - before)}
    world.pod(FIRST)["status"] |= {"containerStatuses": [container(last=last)]}
    world.settle()
    assert told(world) is None
    crash(world, SECOND, after=at)
    world.settle()
    assert told(world) == (first, 1)


def test_container_that_runs_again_is_the_first_failure_once_its_restarts_fail_the_job():
    """The restart that reaches backoffLimit ends before it is observed; older ones are no part."""
    world = running(3)
    for pod, after in (("mnist-worker-2", 10 - LONG_RUN), (SECOND, 20), (FIRST, 30)):
        last = {"terminated": ended(3, after)}
        again = {**container(last=last), "restartCount": 1}
        world.pod(pod)["status"]["containerStatuses"] = [again]
    assert told(world.settle()) is None
    world.edit(runPolicy={"backoffLimit": 3}).settle()
    assert world.status["state"] == "Failed"
    assert told(world) == (SECOND, 3)


def test_init_containers_count_and_those_that_stay_beside_the_others_do_not():
    """These are ended when the others have."""
    world = running()
    first = world.pod(FIRST)
    stays = {"name": "proxy", "restartPolicy": "Always"}
    first["spec"]["initContainers"] = [stays, {"name": "fetch"}]
    proxy = container({"terminated": ended(143, 8)}, name="proxy")
    first["status"]["initContainerStatuses"] = [proxy]
    world.settle()
    assert told(world) is None
    fetch = container({"terminated": ended(6, 9)}, name="fetch")
    first["status"] = {"phase": "Failed", "initContainerStatuses": [proxy, fetch]}
    world.step()
    assert world.status["firstFailure"]["container"] == "fetch"


@pytest.mark.parametrize("reason", ["", "OutOfcpu", "deleted"])
def test_what_others_take_away_has_not_failed(reason):
    """A pod that is deleted ends with SIGTERM, one that its node refused never ran."""
    world = running()
    fail(world, SECOND, 143)
    if reason == "deleted":
        world.terminate(SECOND)
    else:
        world.pod(SECOND)["status"]["reason"] = reason
    world.step()
    assert told(world) == (None if reason else (SECOND, 143))


def test_a_launchers_tries_are_one_rank():
    """The pod of the failed attempt is reported, also while the next attempt runs."""
    made = mpi_world("v2beta1")
    made.start()
    pod = made.launch()
    fail(made, pod, 255, after=5)
    made.settle()
    assert told(made) == (pod, 255)
    made.now += 10
    made.launch(suffix="again")
    made.settle()
    assert told(made) == (pod, 255)
    crash(made, SECOND, after=20)
    made.settle()
    assert told(made) == (pod, 255)


def test_of_what_a_container_said_the_end_is_kept():
    """It may be the last lines of its log."""
    world = running()
    fail(world, FIRST, message="x" * LONGEST + "\nValueError: no data\n")
    world.step()
    said = world.status["firstFailure"]["message"]
    assert len(said) == LONGEST
    assert said.endswith("\nValueError: no data")


@pytest.mark.parametrize("garbled", [{"pod": 3}, "x", {"pod": "", "index": "y", "failureTime": 4}])
def test_what_was_garbled_is_as_if_it_were_absent(garbled):
    """And written anew by what is seen."""
    world = running()
    world.status["firstFailure"] = garbled
    fail(world, SECOND, 2)
    world.step()
    assert told(world) == (SECOND, 2)
