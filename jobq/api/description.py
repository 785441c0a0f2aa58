"""The OpenAPI document: what FastAPI makes of the endpoints, and what it cannot know of them."""

from collections.abc import Mapping
from typing import Any

from jobq.api.problems import PROBLEM_JSON
from jobq.handlers import Kind, Registry

NEITHER_NOR_BOTH = {"required": ["run_after", "delay_seconds"]}

Document = dict[str, Any]


def completed(document: Document, registry: Registry, *, needs_token: bool) -> Document:
    """Return the document with the kinds, problems under their media type, and who needs a token.

    It may be one that has been completed before.
    """
    for operations in document["paths"].values():
        for operation in operations.values():
            for response in operation["responses"].values():
                _under_media_type(response.get("content", {}))
            if "security" in operation and not needs_token:
                operation["security"] = [*filter(None, operation["security"]), {}]
    schemas = document["components"]["schemas"]
    request = schemas["JobRequest"]
    request["properties"]["kind"]["enum"] = [*registry.kinds()]
    request["not"] = NEITHER_NOR_BOTH
    request["anyOf"] = [
        _branch(kind, schemas) for name in registry.kinds() if (kind := registry.get(name))
    ]
    return document


def _under_media_type(content: Document) -> None:
    """Put the schema of a problem where it belongs: FastAPI has it under the endpoint's type."""
    if PROBLEM_JSON in content:
        for other in content.keys() - {PROBLEM_JSON}:
            content[PROBLEM_JSON] |= content.pop(other)


def _branch(kind: Kind, schemas: Document) -> Mapping[str, Any]:
    """Return the schema of a request for that kind; what its payload refers to is added."""
    of_kind: Document = {"title": kind.name, "properties": {"kind": {"const": kind.name}}}
    if kind.payload is None:
        return of_kind
    payload = kind.payload.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= payload.pop("$defs", {})
    of_kind["properties"]["payload"] = payload | {"title": f"payload of {kind.name}"}
    return of_kind | ({"required": ["payload"]} if payload.get("required") else {})
