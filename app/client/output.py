"""What a task has written, read as it comes."""

from app.client.errors import ApiError
from app.client.link import LOST, Streamed

PART_BYTES = 64 * 1024


class BrokenOff(ApiError):
    """The connection broke before the end; ask again from where it was."""


class Output:
    """An open answer: bytes of a task's output, the first of which is at `start` of the file.

    `size` was the file's when the answer began, `attempt` says of which run of the task it is.
    """

    def __init__(self, streamed: Streamed) -> None:
        headers = streamed.answer.headers
        self.attempt = int(headers["XCE-Output-Attempt"])
        self.start = int(headers["XCE-Output-Offset"])
        self.size = int(headers["XCE-Output-Size"])
        self._streamed = streamed
        length = headers["Content-Length"]
        self._left = None if length is None else int(length)

    def read(self) -> bytes:
        """The next part, as soon as there is one; none at the end. Raises BrokenOff."""
        try:
            part = self._streamed.answer.read1(PART_BYTES)
        except LOST as error:
            raise BrokenOff("unavailable", f"the connection broke: {error}") from error
        if self._left is not None:
            self._left -= len(part)
            if not part and self._left > 0:
                raise BrokenOff("unavailable", "the connection broke")
        return part

    def close(self) -> None:
        self._streamed.conn.close()
        self._streamed.answer.close()
