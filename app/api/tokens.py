"""Tokens: list, make, revoke; owners their own, operators everybody's."""

import secrets

from litestar import Response, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath
from msgspec import structs

from app.api.answering import answered, page, replay_header
from app.api.asking import Asked, Query, body_of, caller_facts, id_of
from app.api.schema import doc
from app.api.services import Services
from app.db.accounts import Caller, token_sha256
from app.db.errors import translated
from app.db.statements import statement
from app.db.tokens import CreateCall, RevokeCall, TokenFilter, list_tokens
from app.runtime.logs import logger
from app.wire.jobs import Nothing
from app.wire.pages import Page
from app.wire.tokens import Token, TokenAsk, TokenRole, TokenState

PATH = "/v1/tokens"
FILTERS = ("user", "role", "state", "cursor", "limit")


@get(
    PATH,
    opt=doc("List tokens, without what proves them", gives=Page[Token], query=FILTERS),
)
async def show_tokens(
    request: Asked, caller: NamedDependency[Caller], services: NamedDependency[Services]
) -> Response[bytes]:
    query = Query(request, *FILTERS)
    limit = query.limit()
    wanted = TokenFilter(
        user=query.text("user"),
        roles=query.choices("role", TokenRole),
        states=query.choices("state", TokenState),
    )
    with translated():
        async with services.pool.connection() as conn:
            tokens = await list_tokens(
                conn, wanted, sees_only=caller.sees_only, after=query.cursor(), limit=limit + 1
            )
    return page(tokens, limit, lambda token: str(token.id))


@post(
    PATH,
    opt=doc(
        "Make a token; this answer alone tells it",
        gives=Token,
        status=201,
        body=TokenAsk,
        told="An owner makes owner tokens for itself. A repeat with the same Idempotency-Key gives "
        "the row without the token, which nobody knows any more: revoke it and make another.",
    ),
)
async def create_token(
    request: Asked, caller: NamedDependency[Caller], services: NamedDependency[Services]
) -> Response[bytes]:
    Query(request)
    ask, sha256 = await body_of(request, TokenAsk)
    made = secrets.token_urlsafe(32)
    facts = caller_facts(request, caller, PATH, sha256)
    call = CreateCall(sha256=token_sha256(made).hex(), **structs.asdict(ask), **facts)
    answer = await services.commit(statement("create_token"), call)
    with translated():
        async with services.pool.connection() as conn:
            # Whoever may make it may see it.
            (token,) = await list_tokens(conn, TokenFilter(id=answer.id), sees_only=None)
    if not answer.replay:
        token = structs.replace(token, token=made)
        logger().info("token_created", id=token.id, user=token.user, by=caller.name)
    headers = {"Cache-Control": "no-store"} | replay_header(answer)
    return answered(token, status=answer.status, headers=headers)


@delete(
    f"{PATH}/{{token_id:str}}",
    opt=doc("Revoke a token, at once and for good", gives=None, status=204),
)
async def revoke_token(
    request: Asked,
    token_id: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[None]:
    Query(request)
    number = id_of(token_id, "token")
    _, sha256 = await body_of(request, Nothing)
    facts = caller_facts(request, caller, f"{PATH}/{number}", sha256)
    answer = await services.commit(
        statement("revoke_token"), RevokeCall(revoked_id=number, **facts)
    )
    logger().info("token_revoked", id=number, by=caller.name)
    return Response(None, status_code=answer.status)


@get("/v1/caller", opt=doc("Show the token that calls: who you are", gives=Token))
async def show_caller(
    request: Asked, caller: NamedDependency[Caller], services: NamedDependency[Services]
) -> Response[bytes]:
    Query(request)
    with translated():
        async with services.pool.connection() as conn:
            (token,) = await list_tokens(conn, TokenFilter(id=caller.token_id), sees_only=None)
    return answered(token)


HANDLERS = [show_tokens, create_token, revoke_token, show_caller]
