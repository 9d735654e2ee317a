# SPDX-License-Identifier: Apache-2.0
"""What is said again, and what is not."""

from __future__ import annotations

from muster.kube.events import BACKLOG, PLENTY, EventRecorder

JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "TFJob",
    "metadata": {"name": "mnist", "namespace": "team", "uid": "u"},
}
OTHER = {**JOB, "metadata": {**JOB["metadata"], "uid": "v"}}


def make_recorder():
    """Return one that writes nothing, as nobody runs it."""
    return EventRecorder(None)


def test_what_is_to_be_recorded_once_is_recorded_once_of_each_object():
    """In the same words; other words, another reason and another job are news."""
    recorder = make_recorder()
    said = [
        recorder.emit(about, "Warning", reason, message, once=True)
        for about, reason, message in (
            (JOB, "Error", "a"),
            (JOB, "Error", "a"),
            (JOB, "Error", "b"),
            (JOB, "Failed", "a"),
            (OTHER, "Error", "a"),
        )
    ]
    assert said == [True, False, True, True, True]


def test_once_of_a_pod_is_once_whatever_the_words():
    """Until the reason is another one."""
    recorder = make_recorder()
    said = [
        recorder.emit(JOB, "Warning", reason, message, once=True, of=of)
        for reason, message, of in (
            ("BackOff", "10s", "pod"),
            ("BackOff", "20s", "pod"),
            ("BackOff", "20s", "twin"),
            ("ErrImagePull", "no such image", "pod"),
        )
    ]
    assert said == [True, False, True, True]


def test_all_else_is_said_each_time():
    """A restart is a restart."""
    recorder = make_recorder()
    assert [recorder.emit(JOB, "Warning", "Restarting", "again") for _ in range(2)] == [True] * 2


def test_more_than_the_backlog_is_dropped_and_counted():
    """Nothing waits for an event."""
    recorder = make_recorder()
    for index in range(BACKLOG + 3):
        recorder.emit(JOB, "Normal", "Reason", str(index))
    assert recorder.dropped == 3


def test_what_others_tell_too_is_left_out_under_load():
    """A thousand jobs that wait come before their groups."""
    recorder = make_recorder()
    assert recorder.emit(JOB, "Warning", "Unschedulable", "first", spare=True)
    for number in range(PLENTY):
        assert recorder.emit(JOB, "Warning", "Unschedulable", str(number))
    assert not recorder.emit(JOB, "Warning", "Unschedulable", "more", spare=True)
    assert recorder.emit(JOB, "Warning", "Unschedulable", "more")
    assert recorder.dropped == 1
