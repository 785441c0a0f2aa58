"""jobq.api.description: the document tells of kinds and of who needs a token."""

import copy

import pytest
from pydantic import BaseModel, Field

from jobq import Store
from jobq.api import create_app
from jobq.api.description import completed
from jobq.handlers import Registry
from jobq.kinds import builtin

TOKEN = "a-token-of-operators"  # noqa: S105 - it guards nothing


# Kinds.


class _Crew(BaseModel):
    captain: str


class _Voyage(BaseModel):
    """A payload with a part of its own."""

    crew: _Crew
    days: int = Field(1, ge=1)


def test_the_document_tells_of_every_kind(store: Store) -> None:
    """Each kind is named, with the rules of its payload."""
    request = create_app(store).openapi()["components"]["schemas"]["JobRequest"]
    assert request["properties"]["kind"]["enum"] == [*builtin.kinds()]
    branches = {branch["title"]: branch for branch in request["anyOf"]}
    assert list(branches) == [*builtin.kinds()]
    assert "payload" not in branches["noop"]["properties"]
    assert branches["nap"]["required"] == ["payload"]
    assert branches["nap"]["properties"]["payload"]["properties"]["seconds"]["maximum"] == 86_400


def test_a_kind_of_the_users_own_is_described_with_all_its_parts(store: Store) -> None:
    """What the model of a payload refers to is in the document, so that no reference dangles."""
    registry = Registry()
    registry.register("voyage", lambda _payload, _context: None, payload=_Voyage)
    document = completed(create_app(store).openapi(), registry, needs_token=False)
    schemas = document["components"]["schemas"]
    (branch,) = schemas["JobRequest"]["anyOf"]
    crew = branch["properties"]["payload"]["properties"]["crew"]["$ref"]
    assert schemas[crew.removeprefix("#/components/schemas/")]["required"] == ["captain"]


# Who needs a token.


@pytest.mark.parametrize(("token", "needed"), [(None, False), (TOKEN, True)])
def test_the_document_tells_whether_a_token_is_needed(
    store: Store, token: str | None, needed: bool
) -> None:
    """Without one, operators of the same machine need none; who asks for work never does."""
    paths = create_app(store, token=token).openapi()["paths"]
    bearer: list[dict[str, list[str]]] = [{"HTTPBearer": []}]
    assert paths["/jobs"]["get"]["security"] == bearer + [{}] * (not needed)
    assert "security" not in paths["/jobs"]["post"]


def test_the_document_is_the_same_each_time(store: Store) -> None:
    """Completing it again changes nothing."""
    app = create_app(store)
    first = copy.deepcopy(app.openapi())
    assert app.openapi() == first
