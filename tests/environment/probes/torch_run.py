# SPDX-License-Identifier: Apache-2.0
"""What torchrun makes of its environment, and what init_process_group would."""

from __future__ import annotations

import os

import hollow
import pod


def agent() -> dict[str, object]:
    """Return what torchrun would start its workers with."""
    from torch.distributed import run
    from torch.distributed.elastic.rendezvous import utils

    config = run.config_from_args(run.parse_args(["train.py"]))[0]
    understood = {
        "nodes": [config.min_nodes, config.max_nodes],
        "processes": config.nproc_per_node,
        "id": config.run_id,
        "backend": config.rdzv_backend,
        "endpoint": utils.parse_rendezvous_endpoint(config.rdzv_endpoint, default_port=29400),
        "settings": config.rdzv_configs,
        "restarts": config.max_restarts,
    }
    # A c10d rendezvous has its store on the one node whose name the endpoint has.
    host = utils.parse_rendezvous_endpoint(config.rdzv_endpoint, default_port=29400)[0]
    return {**understood, "hosts the store": utils._matches_machine_hostname(host)}


def process() -> dict[str, object] | None:
    """Return what `init_process_group("env://")` reads; None if there is no rank to read."""
    from torch.distributed import rendezvous

    if "RANK" not in os.environ:
        return None
    seen: dict[str, object] = {}

    class Store:
        def __init__(self, host: str, port: int, size: int, leads: object, *_: object) -> None:
            seen.update(address=[host, port], leads=leads)

    rendezvous.TCPStore = lambda host_name=None, port=None, world_size=None, is_master=None, **_: (
        Store(host_name, port, world_size, is_master)
    )
    _store, rank, size = next(rendezvous._env_rendezvous_handler("env://"))
    return {**seen, "rank": rank, "size": size}


pod.play()
hollow.use("torch")
pod.say(agent=agent(), process=process())
