"""The errors that are told to the user as they are; any other is a fault of the program."""


def known_errors() -> tuple[type[Exception], ...]:
    """Their classes, imported only when something went wrong."""
    from app.daemons.api_server import PlaceError
    from app.daemons.run_folder import AnotherWorkerError
    from app.daemons.up_wishes import UpError
    from app.db.address import AddressError
    from app.db.administration import Refused
    from app.db.embedded import EmbeddedError
    from app.db.errors import DatabaseError
    from app.db.scripts import MigrationError
    from app.runtime.settings import SettingsError
    from app.worker.certificate import CertificateError
    from app.worker.port import PortError

    return (
        AddressError,
        AnotherWorkerError,
        CertificateError,
        DatabaseError,
        EmbeddedError,
        MigrationError,
        PlaceError,
        PortError,
        Refused,
        SettingsError,
        UpError,
    )
