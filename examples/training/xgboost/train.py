# SPDX-License-Identifier: Apache-2.0
"""Train a tree on rows that are spread over the ranks; the master runs the tracker as well."""

import os
import socket
import time

import numpy as np
import xgboost as xgb
from xgboost import collective
from xgboost.tracker import RabitTracker

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
HOST, PORT = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def address() -> str:
    """Wait until the master's name is known."""
    while True:
        try:
            return socket.gethostbyname(HOST)
        except OSError as error:
            print(f"rank {RANK}: {error}")
            time.sleep(0.5)


print(f"rank {RANK} of {SIZE}, the tracker is {HOST}:{PORT}")
if RANK == 0:
    tracker = RabitTracker(n_workers=SIZE, host_ip="0.0.0.0", port=PORT, sortby="task")
    tracker.start()
known = {
    "dmlc_communicator": "rabit",
    "dmlc_tracker_uri": address(),
    "dmlc_tracker_port": PORT,
    "dmlc_task_id": f"{RANK:03}",
    "dmlc_retry": 60,
}
with collective.CommunicatorContext(**known):
    total = collective.allreduce(np.array([RANK]), collective.Op.SUM)[0]
    assert collective.get_world_size() == SIZE
    assert total == sum(range(SIZE)), total
    print(f"rank {collective.get_rank()}: the sum of all ranks is {total}")
    rows = np.random.default_rng(RANK).normal(size=(500, 2))
    data = xgb.DMatrix(rows, label=2 * rows[:, 0] - 3 * rows[:, 1])
    history: dict[str, dict[str, list[float]]] = {}
    watched = {"evals": [(data, "train")], "evals_result": history, "verbose_eval": False}
    model = xgb.train({"tree_method": "hist", "nthread": 1}, data, 30, **watched)
    losses = history["train"]["rmse"]
    assert losses[-1] < losses[0] / 5, losses
    text = bytes(model.save_raw("json"))
    texts = collective.broadcast(text if RANK == 0 else None, 0)
    assert texts == text, "the ranks have different models"
    print(f"rank {RANK}: rmse {losses[0]:.4f} -> {losses[-1]:.4f}, all have the same model")
if RANK == 0:
    tracker.wait_for()
