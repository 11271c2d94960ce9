"""Settings, for operators: list, change."""

from litestar import Response, get, put
from litestar.di import NamedDependency
from litestar.params import FromPath

from app.api.answering import answered, page
from app.api.asking import Asked, Query, body_of, caller_facts
from app.api.auth import check_operator
from app.api.problems import not_found
from app.api.schema import doc
from app.api.services import Services
from app.db.accounts import Caller
from app.db.errors import translated
from app.db.settings import SettingCall, list_settings
from app.db.statements import statement
from app.runtime.logs import logger
from app.wire.pages import Page
from app.wire.settings import Setting, SettingPut

PATH = "/v1/settings"


@get(PATH, opt=doc("List the settings by name", gives=Page[Setting]))
async def show_settings(
    request: Asked, caller: NamedDependency[Caller], services: NamedDependency[Services]
) -> Response[bytes]:
    check_operator(caller)
    Query(request)
    settings = await _settings(services)
    return page(settings, len(settings), lambda setting: setting.name)


@put(
    f"{PATH}/{{name:str}}",
    opt=doc(
        "Change a setting",
        gives=Setting,
        body=SettingPut,
        told="What makes no sense together with the others is refused as `invalid`.",
    ),
)
async def put_setting(
    request: Asked,
    name: FromPath[str],
    caller: NamedDependency[Caller],
    services: NamedDependency[Services],
) -> Response[bytes]:
    check_operator(caller)
    Query(request)
    ask, sha256 = await body_of(request, SettingPut)
    if "\x00" in name:
        raise not_found("setting")
    facts = caller_facts(request, caller, f"{PATH}/{name}", sha256)
    await services.commit(
        statement("change_setting"), SettingCall(name=name, value=ask.value, **facts)
    )
    logger().info("setting_changed", name=name, value=ask.value, by=caller.name)
    (setting,) = [setting for setting in await _settings(services) if setting.name == name]
    return answered(setting)


async def _settings(services: Services) -> list[Setting]:
    with translated():
        async with services.pool.connection() as conn:
            return await list_settings(conn)


HANDLERS = [show_settings, put_setting]
