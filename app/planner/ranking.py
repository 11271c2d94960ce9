"""The one line in which starts and grows of all jobs stand."""

from app.model import RequestView
from app.planner.draft import Draft


def ranked_requests(draft: Draft) -> list[RequestView]:
    """Priority first, then the order of acceptance, which is the request's id and not a clock."""
    return sorted(
        draft.requests.values(),
        key=lambda request: (-draft.jobs[request.job_id].view.priority, request.id),
    )
