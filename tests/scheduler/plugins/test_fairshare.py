# SPDX-License-Identifier: Apache-2.0
"""The order of queues by what they have used."""

import pytest

from muster.scheduler import policy
from muster.scheduler.plugins import fairshare
from muster.scheduler.policy import PolicyError
from support.builders.scheduler import make_queue, make_session


def rules(**arguments):
    """Return a policy with the plugin."""
    given = {f"fairshare.{name}": value for name, value in arguments.items()}
    return policy.parse({"tiers": [{"plugins": [{"name": "fairshare", "arguments": given}]}]})


def test_order():
    """Usage for the weight; that of a queue includes the usage of its parts."""
    queues = [
        make_queue(name="a", weight=2),
        make_queue(name="b", parent="a", usage=6.0),
        make_queue(name="c", parent="a", weight=4, usage=2.0),
        make_queue(name="d", usage=5.0),
    ]
    session = make_session(with_policy=rules(), queues=queues)
    order = fairshare.answer(session, {}).usage_order
    used = {name: [order(q) for q in queue.lineage] for name, queue in session.queues.items()}
    assert used == {"a": [0.0, 4.0], "b": [6.0, 4.0], "c": [0.5, 4.0], "d": [5.0]}


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5400), ("12h", 43200), ("7d", 604800)])
def test_half_life(text, seconds):
    """In minutes, hours or days; a week if nothing is said."""
    assert rules(halfLife=text).half_life == seconds
    assert rules().half_life == 604800
    assert policy.DEFAULT.half_life is None


@pytest.mark.parametrize("text", ["0d", "7", "d", "1.5h", "-1d", "1000000d"])
def test_no_half_life(text):
    """What is none is told, with an example."""
    with pytest.raises(PolicyError, match="write one like 90m, 12h or 7d"):
        rules(halfLife=text)
