# SPDX-License-Identifier: Apache-2.0
"""`status` of a job: its values, and how they are read, written and declared to the API server.

One set of types does all three. Reading never raises: a status is written by this operator, but
may have been garbled by anybody, so what cannot be read is as if it were absent, field by field.
Writing leaves out zero counts and empty fields. Docstrings and descriptions stand in the CRDs.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import not_
from typing import Annotated, Any, Final, Literal

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema, PydanticUndefined, core_schema

from muster.api import indexes, names
from muster.api.edge import format_time, mapping, parse_time


@dataclass(frozen=True, slots=True)
class _Else:
    """What stands for a value that is absent or cannot be read."""

    default: object = PydanticUndefined
    """Undefined: an item of a list or map that cannot be read is not there."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        instead: Literal["omit", "default"]
        instead = "omit" if self.default is PydanticUndefined else "default"
        made = handler(source)
        return core_schema.with_default_schema(made, default=self.default, on_error=instead)


_DATE: Final = WithJsonSchema({"type": "string", "format": "date-time"})
_STATUSES: Final = WithJsonSchema({"enum": ["True", "False", "Unknown"], "type": "string"})
_STRICT: Final = Field(strict=True)
_INT32: Final = Field(strict=True, json_schema_extra={"format": "int32"})
_INT64: Final = Field(strict=True, json_schema_extra={"format": "int64"})
_UNLESS_EMPTY: Final = Field(exclude_if=not_)
_UNLESS_NONE: Final = Field(exclude_if=lambda value: value is None)

Line = Annotated[str, _STRICT, _Else("")]
"""A text that is written also where it is empty."""
Number = Annotated[int, _INT32, _Else(0)]
"""A count that is written also where it is 0."""
Text = Annotated[Line, _UNLESS_EMPTY]
Count = Annotated[Number, _UNLESS_EMPTY]
Place = Annotated[int | None, _INT32, _Else(None), _UNLESS_NONE]
Generation = Annotated[int | None, _INT64, _Else(None), _UNLESS_NONE]
Item = Annotated[str, _STRICT, _Else()]
Texts = Annotated[tuple[Item, ...], _Else(()), _UNLESS_EMPTY]
_SECONDS: Final = PlainValidator(lambda value: parse_time(value) or 0.0)
Stamp = Annotated[float, _SECONDS, PlainSerializer(format_time), _DATE, _Else(0.0)]
Moment = Annotated[
    float | None,
    PlainValidator(parse_time),
    PlainSerializer(format_time, when_used="unless-none"),
    _DATE,
    _Else(None),
    _UNLESS_NONE,
]
Name = Annotated[str, Field(strict=True, min_length=1), WithJsonSchema({"type": "string"})]
Indexes = Annotated[
    frozenset[int],
    PlainValidator(indexes.parse),
    PlainSerializer(indexes.dump),
    WithJsonSchema({"type": "string"}),
    _Else(frozenset()),
    _UNLESS_EMPTY,
]


def _like(**also: Mapping[str, object]) -> ConfigDict:
    """Return the manners of every type here; `also` is declared, too, though it is not read."""

    def declare(schema: dict[str, Any]) -> None:
        schema["properties"] |= also

    return ConfigDict(alias_generator=to_camel, json_schema_extra=declare)


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is or is not so about the job, since when and why."""

    __pydantic_config__ = _like()

    type: Name
    status: Annotated[str, _STRICT, Field(pattern="^(True|False|Unknown)$"), _STATUSES]
    reason: Line
    message: Line
    updated: Annotated[Stamp, Field(alias="lastUpdateTime")]
    transitioned: Annotated[Stamp, Field(alias="lastTransitionTime")]


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """Pods of one role, counted."""

    __pydantic_config__ = _like(
        labelSelector={
            "type": "object",
            "description": "Read selector instead.",
            "x-kubernetes-preserve-unknown-fields": True,
        }
    )

    active: Count = 0
    succeeded: Count = 0
    failed: Count = 0
    restarts: Annotated[Count, Field(description="Pods replaced so far.")] = 0
    selector: Text = ""
    restarted: Annotated[
        Texts, Field(description="uids of pods that restarts counts and that are not gone yet.")
    ] = ()
    """Only these may be deleted, so that a crash between the two writes loses no restart."""
    completed: Annotated[
        Indexes,
        Field(
            alias="completedIndexes",
            description="Indexes that have succeeded in this run, as in a batch/v1 Job: 0-3,7. "
            "They are not created again before the next run.",
        ),
    ] = frozenset()


SIGNALLED: Final = 128
"""Exit code of a program that a signal has ended, less the signal's number."""


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """The first pod to fail since the job ran whole for 10 min."""

    __pydantic_config__ = _like()

    pod: Name
    replica_type: Line
    index: Number
    failure_time: Stamp
    node: Text = ""
    container: Annotated[Text, Field(description="Empty: the pod failed as a whole.")] = ""
    exit_code: Place = None
    reason: Text = ""
    message: Annotated[
        Text, Field(description="The end of the container's termination message, or the pod's.")
    ] = ""

    def __str__(self) -> str:
        """Return which it was and how it ended, in a sentence without words of its own."""
        where = f" on node {self.node}" if self.node else ""
        return f"The first to fail was pod {self.pod}{where}: {self._how}."

    @property
    def _how(self) -> str:
        if self.exit_code is None:
            return self.reason
        ended_by = ""
        with contextlib.suppress(ValueError):
            ended_by = signal.Signals(self.exit_code - SIGNALLED).name
        known = (ended_by, "" if self.reason == "Error" else self.reason)
        why = ", ".join(filter(None, known))
        code = f"{self.exit_code} ({why})" if why else f"{self.exit_code}"
        return f"container {self.container} ended with exit code {code}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where the gang stands in its queue, and what it waits for."""

    __pydantic_config__ = _like()

    scheduler: Text
    state: Text
    """A `GangPhase`."""
    pod_group: Text = ""
    min_member: Number = 0
    placed: Number = 0
    ready: Number = 0
    reason: Text = ""
    """A `Reason`, or what another scheduler gives for one."""
    message: Text = ""
    summary: Annotated[Text, Field(description="What the column GANG shows.")] = ""
    since: Annotated[Moment, Field(description="When this reason was first given.")] = None
    """The runtime keeps it from verdict to verdict."""
    admission_time: Annotated[
        Moment,
        Field(
            description="When the gang first had a node; kept through restarts, until the job is "
            "suspended or ends. activeDeadlineSeconds counts from here."
        ),
    ] = None
    """The controller keeps it from verdict to verdict."""
    position: Annotated[Place, Field(description="Place in its queue, from 1.")] = None
    eta: Annotated[Moment, Field(description="Time of its reservation.")] = None
    shortage: Annotated[
        Mapping[str, Item],
        Field(description="What the whole gang lacks."),
        _Else({}),
        _UNLESS_EMPTY,
    ] = field(default_factory=dict)
    blocked_by: Texts = ()
    ever_possible: Annotated[
        bool,
        Field(
            strict=True,
            exclude_if=bool,
            description="False: no change of load can help, the job or the cluster must change.",
        ),
        _Else(default=True),
    ] = True


_OF_THE_PAST: Final = {"lastReconcileTime": {"type": "string", "format": "date-time"}}
"""What old operators wrote: read by nobody, and not written again."""
_OF_ONE_KIND: Final = {"mpiVersion": {"type": "string"}}


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What Muster has seen and decided."""

    __pydantic_config__ = _like(**_OF_THE_PAST, **_OF_ONE_KIND)

    state: Annotated[Text, Field(description=f"One word: {', '.join(names.JobState)}.")] = ""
    reason: Annotated[Text, Field(description="What is wrong with the job.")] = ""
    """In a sentence."""
    observed_generation: Generation = None
    conditions: Annotated[tuple[Annotated[Condition, _Else()], ...], _Else(()), _UNLESS_EMPTY] = ()
    """Those that the API server would take again."""
    replicas: Annotated[
        Mapping[str, Annotated[ReplicaStatus, _Else(ReplicaStatus())]],
        Field(alias="replicaStatuses"),
        _Else({}),
        _UNLESS_EMPTY,
    ] = field(default_factory=dict)
    """By replica type, e.g. `Worker`."""
    restarts: Annotated[
        Count, Field(description="Replaced pods, and restarts of containers in other pods.")
    ] = 0
    restarts_in_a_row: Annotated[
        Count,
        Field(description="Restarts of the whole gang since it last ran for 10 minutes."),
    ] = 0
    start_time: Annotated[
        Moment,
        Field(description="When Muster first handled the job, or handled it after suspension."),
    ] = None
    completion_time: Moment = None
    taken_over_time: Annotated[
        Moment,
        Field(
            description="When Muster found the job finished by another operator; "
            "ttlSecondsAfterFinished counts from here."
        ),
    ] = None
    gang: Annotated[Verdict | None, _Else(None), _UNLESS_NONE] = None
    first_failure: Annotated[FirstFailure | None, _Else(None), _UNLESS_NONE] = None
    extra: Annotated[Mapping[str, Any], SkipJsonSchema(), Field(exclude=True)] = field(
        default_factory=dict
    )
    """Fields of one kind only (e.g. `mpiVersion`), carried over untouched."""

    def condition(self, type_: str) -> Condition | None:
        """Return the condition of that type, or None."""
        # No generator: a cycle asks this of each job.
        for condition in self.conditions:
            if condition.type == type_:
                return condition
        return None

    def is_true(self, type_: str) -> bool:
        """Say whether the condition is there and True."""
        condition = self.condition(type_)
        return condition is not None and condition.status == "True"

    @property
    def newest(self) -> Condition | None:
        """The newest condition that is True."""
        # A condition that is written moves to the end of the list.
        return next((each for each in reversed(self.conditions) if each.status == "True"), None)

    @property
    def shown_state(self) -> str:
        """The state, or where another controller wrote the status its newest condition."""
        newest = self.newest
        return self.state or (newest.type if newest else "")

    @property
    def inherited(self) -> bool:
        """Say whether another operator wrote it last: it knows no state and no generation."""
        return bool(self.conditions) and not self.state and self.observed_generation is None

    @property
    def finished(self) -> bool:
        """Say whether the job has ended, well or badly; nothing changes that any more."""
        return self.is_true("Succeeded") or self.is_true("Failed")


class _Bare(GenerateJsonSchema):
    """No defaults: the API server would store them in every object."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


_CODEC: Final = TypeAdapter(JobStatus)


def declared() -> dict[str, Any]:
    """Return the JSON schema of a status."""
    return _CODEC.json_schema(schema_generator=_Bare)


_READ: Final = frozenset(declared()["properties"]).difference(_OF_ONE_KIND) | {"tfReplicaStatuses"}
"""Fields that are no extra; old counts are read by nobody, and not written again either."""
_EMPTY: Final[tuple[object, ...]] = (None, "", [], {})


def read(document: object) -> JobStatus:
    """Return the status that a document holds."""
    raw = mapping(document)
    extra = {name: value for name, value in raw.items() if name not in _READ}
    return _CODEC.validate_python({**raw, "extra": extra})


def write(status: JobStatus) -> dict[str, Any]:
    """Return the document of a status; zero counts and empty fields are left out."""
    extra = {name: value for name, value in status.extra.items() if value not in _EMPTY}
    made: dict[str, Any] = _CODEC.dump_python(status, mode="json", by_alias=True)
    return extra | made
