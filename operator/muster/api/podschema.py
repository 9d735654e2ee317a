# SPDX-License-Identifier: Apache-2.0
"""The structural schema of a pod template, made from the models of the `kubernetes` package.

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
_OPEN: Final[dict[str, Json]] = {
    "managedFields": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "ownerReferences": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
"""Items of metadata lists that no pod inherits: accepted whatever they hold."""


def template() -> Json:
    """Return the schema of a PodTemplateSpec: every field, required ones as upstream."""
    return _model("V1PodTemplateSpec")


def _model(name: str) -> Json:
    model: Any = getattr(models, name)
    names: dict[str, str] = model.attribute_map
    fields = {names[key]: _field(names[key], type_) for key, type_ in model.openapi_types.items()}
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
    return _SCALARS.get(type_) or _model(type_)
