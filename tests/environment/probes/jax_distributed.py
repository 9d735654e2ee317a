# SPDX-License-Identifier: Apache-2.0
"""What JAX hands to its runtime when a program passes it the variables of a JAXJob."""

from __future__ import annotations

import os

import hollow
import pod

pod.play()
hollow.use("jax")
# Where the client is installed, JAX takes a pod for one of a Job or a JobSet.
hollow.use("kubernetes")


def initialize() -> dict[str, object]:
    """Return the arguments of JAX's service and client, and what JAX then says of itself."""
    from jax._src import clusters, distributed

    seen: dict[str, object] = {}

    class Runtime:
        """Stands for the compiled runtime, which would connect."""

        def get_distributed_runtime_service(self, address: str, size: int, **_: object) -> object:
            seen["serves"] = [address, size]
            return self

        def get_distributed_runtime_client(self, address: str, rank: int, **_: object) -> object:
            seen["connects"] = [address, rank]
            return self

        def create_preemption_sync_manager(self) -> object:
            return self

        def connect(self) -> None:
            """Succeed."""

        def initialize(self, _client: object) -> None:
            """Succeed."""

    distributed._jax = Runtime()
    detected = [env.__name__ for env in clusters.ClusterEnv._cluster_types if present(env)]
    distributed.global_state.initialize(
        coordinator_address=f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
        num_processes=int(os.environ["NUM_PROCESSES"]),
        process_id=int(os.environ["PROCESS_ID"]),
    )
    state = distributed.global_state
    return {
        **seen,
        "detected": detected,
        "process": [state.process_id, state.num_processes],
        "coordinator": state.coordinator_address,
    }


def present(env: object) -> bool:
    """Say whether JAX would take this for its cluster without being told."""
    return not env.opt_in_only_method and bool(env.is_env_present())


pod.say(**initialize())
