"""`python -m statemachines [--check]`: writes the generated files, or says which are stale."""

import sys
from pathlib import Path

from statemachines import LIFECYCLES
from statemachines.render import lifecycles_as_markdown, lifecycles_as_sql

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> int:
    """Exit code 0 when the files are fresh or were written, 1 when `--check` found a stale one."""
    wanted = {
        ROOT / "sql/generated/lifecycles.sql": lifecycles_as_sql(LIFECYCLES),
        ROOT / "docs/lifecycles.md": lifecycles_as_markdown(LIFECYCLES),
    }
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: run `make generate`", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
