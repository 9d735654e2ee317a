# SPDX-License-Identifier: Apache-2.0
"""How the operator runs, as `muster.flags` makes it of the arguments."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from muster import frameworks
from muster import gang as gangs
from muster.api import names
from muster.api.jobs import MAX_JOB_BYTES, MAX_JOB_BYTES_PER_NAMESPACE, MAX_REPLICAS
from muster.api.model import SHARED_ABOVE
from muster.frameworks import Framework, Site, base
from muster.frameworks.base import Waiting

PUBLISHED: Final = (
    "scheduler_names",
    "default_queue",
    "priority_class",
    "reservation_after",
    "member_hold",
    "max_member_hold",
    "max_schedule_timeout",
)
"""Settings that decisions depend on, which commands read in a ConfigMap."""


class TemplateError(Exception):
    """The file in place of the init container is none; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of the operator's flags. Times are in seconds."""

    gang: str | None = None
    """Value of --gang-scheduler-name; None if neither it nor one of its like was given."""
    kube_batch_object: str = "auto"
    namespaces: tuple[str, ...] = ()
    """Empty: all."""
    kinds: tuple[str, ...] = ()
    """Kinds of job to handle, in canonical spelling; empty: all."""
    kubeconfig: str = ""
    master: str = ""
    context: str | None = None
    metrics_bind: str = ":8080"
    health_bind: str = ":8081"
    debug_bind: str = "127.0.0.1:8082"
    metrics_secure: bool = False
    dashboard_bind: str = "0"
    dashboard_auth: str = "token"
    leader_elect: bool = False
    leader_election_id: str = "muster"
    lock_namespace: str = ""
    home: str = ""
    """The operator's own namespace, by its environment; empty: it runs in none."""
    lease_duration: float = 12.0
    renew_deadline: float = 8.0
    retry_period: float = 2.0
    scheduler_names: tuple[str, ...] = names.SCHEDULER_NAMES
    scheduler_conf: str = ""
    schedule_period: float = 1.0
    default_queue: str = names.DEFAULT_QUEUE
    priority_class: bool = True
    pending_pods_budget: int = 500
    member_hold: float = 120.0
    max_member_hold: float = 3600.0
    max_schedule_timeout: float = 24 * 3600.0
    node_lost_after: float = 60.0
    node_lost_share: float = 0.55
    on_hold_expired: str = "keep"
    reservation_after: float = 600.0
    hide_other_namespaces: bool = False
    dry_run_pods: bool = True
    placement: str = "create"
    cluster_domain: str = ""
    shared_above: int = SHARED_ABOVE
    max_replicas_per_job: int = MAX_REPLICAS
    max_job_bytes_per_namespace: int = MAX_JOB_BYTES_PER_NAMESPACE
    max_job_bytes: int = MAX_JOB_BYTES
    concurrency: int = 64
    verbosity: int = 0
    pytorch_init_image: str = ""
    pytorch_init_tries: int = 100
    pytorch_init_template: str = "/etc/config/initContainer.yaml"
    mpi_delivery_image: str = "ghcr.io/kubeflow/training-v1/kubectl-delivery:latest"
    alone: bool = False
    """There are no jobs: the scheduler alone, in kube-batch's place."""
    admission_bind: str = "0"
    admission_configuration: str = "muster"
    admission_lifetime: float = 7 * 24 * 3600.0
    admission_cert: str = ""
    admission_key: str = ""
    version: bool = False
    ignored: tuple[str, ...] = ()
    """Flags that were given and have no effect."""

    @property
    def policy_namespace(self) -> str:
        """Namespace of the ConfigMap with the policy; empty: it is not published."""
        return self.home or self.lock_namespace

    @property
    def published(self) -> dict[str, Any]:
        """The values of PUBLISHED."""
        return {name: getattr(self, name) for name in PUBLISHED}

    def completed(self, values: Mapping[str, Any]) -> Settings:
        """Return the settings with published values of the right types in place of defaults."""
        usual = Settings()
        found: dict[str, Any] = {
            name: _converted(values.get(name), getattr(usual, name))
            for name in PUBLISHED
            if getattr(self, name) == getattr(usual, name)
        }
        return replace(self, **found)

    @property
    def backend(self) -> gangs.GangBackend:
        """The gang backend that was chosen."""
        return gangs.choose(
            self.gang,
            kube_batch_object=self.kube_batch_object,
            scheduler_names=self.scheduler_names,
        )

    def waiting(self) -> Waiting:
        """Return how pods wait for others. Raises TemplateError."""
        file = self.pytorch_init_template
        waiting = Waiting(
            self.pytorch_init_image,
            self.pytorch_init_tries,
            delivery_image=self.mpi_delivery_image,
        )
        try:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                waiting = replace(waiting, template=Path(file).read_text(encoding="utf-8"))
            # Filled in once with any names: what is wrong is told here, and not by the first job.
            base.init_containers("init", waiting, "master")
        except (OSError, ValueError) as error:
            raise TemplateError(f"{file}: {error}") from error
        return waiting

    @property
    def site(self) -> Site:
        """How jobs are read."""
        most = self.max_replicas_per_job
        return Site(self.cluster_domain, self.home, self.shared_above, most)

    @property
    def overlay(self) -> str:
        """The folder of manifests/overlays that grants what it needs."""
        return "scheduler" if self.alone else self.backend.name

    @property
    def frameworks(self) -> tuple[Framework, ...]:
        """The kinds of jobs that are handled."""
        kinds = {kind.lower() for kind in self.kinds}
        rows = () if self.alone else frameworks.FRAMEWORKS.values()
        return tuple(row for row in rows if not kinds or row.kind.lower() in kinds)


def _converted(value: object, usual: object) -> object:
    """Return a value that was read from JSON as the type of the usual one, or the usual one."""
    if isinstance(usual, tuple) and isinstance(value, list):
        return tuple(value) if all(isinstance(each, str) for each in value) else usual
    if isinstance(usual, float) and isinstance(value, int):
        value = float(value)
    return value if type(value) is type(usual) else usual
