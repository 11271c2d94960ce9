"""The register of advisory locks: the first number of each (class, key); rows lock themselves."""

from typing import Final

MIGRATE: Final = 7301
HOUSEKEEPING: Final = 7302
UP: Final = 7303
TEST_TEMPLATE: Final = 7399
