"""The fixtures of the API's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.db.logins import controller_login_name
from tests.api.world import Client, World, running_world
from tests.support.cluster import Cluster, Database


@pytest.fixture
def world(database: Database, tmp_path: Path) -> Iterator[World]:
    with running_world(database, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def still_world(
    cluster: Cluster, template: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """One world for all tests of a module; none of them may leave anything in it."""
    made = cluster.create(template=template.name)
    with running_world(made, tmp_path_factory.mktemp("still")) as world:
        yield world
    cluster.drop(made)
    cluster.drop_roles({controller_login_name(made.name)})


@pytest.fixture
def reader(still_world: World) -> Client:
    """A caller in the world where nothing happens."""
    return still_world.user("reader")


@pytest.fixture
def alice(world: World) -> Client:
    return world.user("alice")


@pytest.fixture
def bob(world: World) -> Client:
    return world.user("bob")


@pytest.fixture
def operator(world: World) -> Client:
    return world.user("root", is_operator=True)


@pytest.fixture
def job_id(world: World, alice: Client) -> int:
    """A running job of alice's: three tasks of one to four, on h1 (two cpus) and h2 (four)."""
    world.hosts("h1", cpus=2)
    world.hosts("h2", cpus=4)
    body = {"command": ["true"], "tasks": 3, "min_tasks": 1, "max_tasks": 4}
    made = alice.post("/v1/jobs", body)
    assert made.status == 201, made.body
    world.start(made.body["id"])
    return int(made.body["id"])
