"""Answers of the API for tests that need no API."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from app.wire.hosts import Host
from app.wire.jobs import Job
from app.wire.resizes import Next, Resize
from tui.state import Answers

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def host(key: int, **members: Any) -> Host:
    plain = {
        **{"name": f"h{key}", "state": "up", "reason": None, "drain_wanted": False, "labels": {}},
        **dict.fromkeys(("cpus_used", "cpus_held", "mem_mib_used", "mem_mib_held"), 0),
        **{"cpus": 4, "mem_mib": 1000, "gpus": 0, "gpus_used": 0, "gpus_held": 0},
        "last_seen_at": ago(3),
    }
    return Host(id=key, **{**plain, **members})


def job(key: int, **members: Any) -> Job:
    plain = {
        **dict.fromkeys(("name", "reason", "exit_code", "started_at", "ended_at", "begin_at")),
        **{"state": "running", "owner": "alice", "project": "default", "queue": "default"},
        **dict.fromkeys(("tasks", "running_tasks", "submitted_tasks", "min_tasks"), 1),
        **{"max_tasks": 4, "generation": 1, "attempt": 1, "hosts": [], "submitted_at": ago(60)},
        **{"cpus": 1, "mem_mib": 0, "gpus": 0, "span": "any", "existing_hosts": "any"},
        **{"constraints": {}, "exclude_hosts": [], "priority": 0, "held": False},
        **{"run_limit_s": None, "ends_when": "all", "on_task_failure": "ignore"},
        **{"on_host_loss": "requeue", "fence": "stop", "grace_s": Decimal(10)},
        **{"start_s": Decimal(60), "loss_grace_s": Decimal(300)},
    }
    return Job(id=key, **{**plain, **members})


def request(key: int, **members: Any) -> Resize:
    plain = {
        **dict.fromkeys(("parent_id", "superseded_by", "deadline_at", "reason")),
        **dict.fromkeys(("tasks_granted", "committed_at", "finished_at", "generation")),
        **{"job_id": 1, "attempt": 1, "kind": "grow", "state": "pending", "origin": "owner"},
        **{"next": Next(("place", "cancel"), "controller", "accepted, waits")},
        **{"tasks_asked": 2, "tasks_min": 2, "tasks_max": 2, "requested_by": "alice"},
        **{"hosts": [], "task_indices": [], "created_at": ago(30)},
    }
    return Resize(id=key, **{**plain, **members})


def answers(**lists: Any) -> Answers:
    empty: dict[str, Any] = {"hosts": [], "jobs": [], "ended": [], "requests": []}
    return Answers(at=NOW, **{**empty, **lists})
