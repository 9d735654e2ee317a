# SPDX-License-Identifier: Apache-2.0
"""A small trace, made here, is read and replayed as the real one is."""

import pytest

from bench import trace_replay as replay

NODES = """sn,cpu_milli,memory_mib,gpu,model
a,32000,131072,4,T4
b,32000,131072,4,T4
c,96000,393216,8,V100
"""
TASKS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time
one,4000,8192,1,460,0,100
two,8000,16384,2,1000,50,250
four,16000,32768,4,1000,60,90
cpu,2000,4096,0,0,70,80
"""


@pytest.fixture
def trace(tmp_path):
    """Give three nodes with 16 GPUs and four tasks."""
    (tmp_path / replay.NODES).write_text(NODES)
    (tmp_path / replay.TASKS).write_text(TASKS)
    return replay.read(tmp_path)


def test_it_is_read(trace):
    """A task that shares a GPU counts as one of a whole one."""
    assert (len(trace.nodes), trace.gpus) == (3, 16)
    kinds = [(kind.cpu, kind.gpus, seconds) for kind, seconds in trace.tasks]
    assert kinds == [(4000, 1, 100.0), (8000, 2, 200.0), (16000, 4, 30.0), (2000, 0, 10.0)]
    assert trace.holds(trace.tasks[2][0], 4)
    assert not trace.holds(trace.tasks[2][0], 5)


@pytest.mark.parametrize("rule", ["random", "muster"])
def test_it_fills_up(trace, rule):
    """No more is given than there is or was asked for, and the same drawing gives the same."""
    points = replay.fill(trace, rule, 1)
    assert points[-1].asked >= replay.MARGIN
    assert all(p.given <= min(p.asked, 1.0) and p.useless <= 1 - p.given for p in points)
    assert points == replay.fill(trace, rule, 1)
    assert replay.refused(points) <= points[-1].given


@pytest.mark.parametrize("rule", ["random", "muster"])
def test_gangs_wait_their_turn(trace, rule):
    """Every gang starts in the end; where more is asked for than there is, some wait."""
    busy, idle = (replay.draw(trace, load, 1, 30) for load in (2.0, 0.01))
    assert {job.size for job in busy} > {2, 4}
    waits, least = ([w for _, w in replay.play(trace, rule, jobs)] for jobs in (busy, idle))
    assert len(waits) == len(busy)
    assert max(waits) > 0
    assert sum(least) < sum(waits)


def test_the_report(trace):
    """One row for each rule, and one line in the picture."""
    fillings = replay.shares_given(trace, 1)
    table = replay.report_fillings(fillings).splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in table[2:]] == list(replay.RULES)
    waits = replay.report_waits(trace, [1.5], 1, 20).splitlines()
    assert len(waits) == len(replay.ORDERED) + 2
    assert replay.picture(fillings).count("<polyline") == len(replay.RULES)
