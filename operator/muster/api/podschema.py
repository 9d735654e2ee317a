# SPDX-License-Identifier: Apache-2.0
"""The structural schemas of Kubernetes' own types, made from the models of `kubernetes`.

Apart from `podtemplate`, because those models are heavy and only the making of CRDs needs them.
"""

from __future__ import annotations

import re
from typing import Any, Final

from kubernetes.client import models

from muster.api import quantity
from muster.api.model import Json

QUANTITY: Final[Json] = {"pattern": quantity.PATTERN, "x-kubernetes-int-or-string": True}
_INT_OR_STRING: Final[Json] = {"x-kubernetes-int-or-string": True}
_SCALARS: Final[dict[str, Json]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "bool": {"type": "boolean"},
    "float": {"type": "number"},
    "object": _INT_OR_STRING,  # in a pod template only probe ports are declared so
    "datetime": {"type": "string", "format": "date-time"},
}
_QUANTITIES: Final = frozenset({"divisor", "limits", "overhead", "requests", "sizeLimit"})
"""Fields that the models call str and whose Go type is Quantity."""
_QUANTITIES_OF: Final = {"V2MetricTarget": frozenset({"averageValue", "value"})}
"""The same for fields whose names tell it in one model only."""
_OPEN: Final[dict[str, Json]] = {
    "managedFields": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "ownerReferences": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
"""Items of metadata lists that no pod inherits: accepted whatever they hold."""


def template() -> Json:
    """Return the schema of a PodTemplateSpec: every field, required ones as upstream."""
    return of_model("V1PodTemplateSpec")


def of_model(name: str) -> Json:
    """Return the schema of a type by the name of its model, e.g. `V2MetricSpec`."""
    model: Any = getattr(models, name)
    names: dict[str, str] = model.attribute_map
    quantities = _QUANTITIES_OF.get(name, frozenset())
    fields = {
        names[key]: QUANTITY if names[key] in quantities else _field(names[key], type_)
        for key, type_ in model.openapi_types.items()
    }
    required = {
        field.serialization_alias or key
        for key, field in model.model_fields.items()
        if field.is_required()
    }
    schema: Json = {"type": "object", "properties": dict(sorted(fields.items()))}
    return {**schema, "required": sorted(required)} if required else schema


def _field(name: str, type_: str) -> Json:
    """Return the schema of one field from its type as the models spell it."""
    if item := re.fullmatch(r"List\[(.+)\]", type_):
        return {"type": "array", "items": _OPEN.get(name) or _field(name, item[1])}
    if value := re.fullmatch(r"Dict\[str, (.+)\]", type_):
        return {"type": "object", "additionalProperties": _field(name, value[1])}
    if name in _QUANTITIES and type_ == "str":
        return QUANTITY
    return _SCALARS.get(type_) or of_model(type_)
