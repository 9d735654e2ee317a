# SPDX-License-Identifier: Apache-2.0
"""MPIJobs as users write them: the fields of v1 and of v2beta1 in one model.

Both versions are served under one name and stored as v1, which keeps every field and adds no
default: so nothing is lost on the way from one to the other. That v2beta1 alone gives
`mpiImplementation` a default tells which of the two a stored job means.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from muster.api.jobs import CleanPodPolicy, Count, JobSpec, ReplicaSpec


class MPIJobSpec(JobSpec):
    """An MPI job: a launcher that reaches its workers by kubectl (v1) or by SSH (v2beta1)."""

    mpi_replica_specs: dict[str, ReplicaSpec] = Field(
        max_length=16, description="Launcher, Worker."
    )
    slots_per_worker: Count | None = Field(
        None, description="Processes that a worker may run; default: 1."
    )
    clean_pod_policy: CleanPodPolicy | None = Field(
        None, description="v1: write runPolicy.cleanPodPolicy instead."
    )
    main_container: str | None = Field(
        None, description="v1: container of the workers in which kubectl starts the processes."
    )
    run_launcher_as_worker: bool | None = Field(
        None, description="v2beta1: the launcher's pod runs processes of its own; default: false."
    )
    ssh_auth_mount_path: str | None = Field(
        None, min_length=1, description="v2beta1: where the SSH keys are; default: /root/.ssh."
    )
    launcher_creation_policy: Literal["AtStartup", "WaitForWorkersReady"] | None = Field(
        None, description="v2beta1: when the launcher is created; default: AtStartup."
    )
    mpi_implementation: Literal["OpenMPI", "Intel", "MPICH"] | None = Field(
        None, description="v2beta1: what the pods run; default: OpenMPI."
    )
