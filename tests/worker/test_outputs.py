"""Output files are opened without trusting whoever owns the folder, and kept small."""

import os
import threading
from pathlib import Path

import pytest

from app.worker.launch import output_name
from app.worker.outputs import BLOCK, OutputFile, OutputGoneError, Trimmer, open_output
from app.worker.reconcile import Desired, Key
from app.worker.written import Written

KIB = 1024


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """Run folders of jobs 7 and 8; beside them something that is nobody's business."""
    made = tmp_path / "jobs"
    for job in ("7", "8"):
        (made / job / "logs").mkdir(parents=True)
        (made / job / "logs" / "out").write_text(f"of {job}")
    (tmp_path / "secret").write_text("secret")
    return made


def read(jobs: Path, name: str = "7/logs/out") -> str:
    file = open_output(jobs, name)
    try:
        return os.read(file, 100).decode()
    finally:
        os.close(file)


def test_a_regular_file_of_the_job_is_read(jobs: Path) -> None:
    assert read(jobs) == "of 7"


@pytest.mark.parametrize("aim", ["../../../secret", "/etc/passwd", "../../8/logs/out", "self"])
def test_a_link_in_place_of_the_file_is_not_followed(jobs: Path, aim: str) -> None:
    out = jobs / "7/logs/out"
    if aim == "self":
        out.rename(jobs / "7/logs/self")
    else:
        out.unlink()
    out.symlink_to(aim)
    with pytest.raises(OutputGoneError):
        read(jobs)


def test_a_link_in_place_of_a_folder_is_not_followed(jobs: Path) -> None:
    (jobs / "7/logs").rename(jobs / "7/mine")
    (jobs / "7/logs").symlink_to(jobs / "8/logs")
    with pytest.raises(OutputGoneError):
        read(jobs)
    (jobs / "7").rename(jobs / "9")
    (jobs / "7").symlink_to("8")
    with pytest.raises(OutputGoneError):
        read(jobs)


def test_a_second_name_of_a_file_is_refused(jobs: Path) -> None:
    (jobs / "7/logs/out").unlink()
    (jobs / "7/logs/out").hardlink_to(jobs.parent / "secret")
    with pytest.raises(OutputGoneError):
        read(jobs)


def test_a_pipe_holds_nobody_up(jobs: Path) -> None:
    (jobs / "7/logs/out").unlink()
    os.mkfifo(jobs / "7/logs/out")
    with pytest.raises(OutputGoneError):
        read(jobs)
    assert not Trimmer(jobs).trim("7/logs/out", keep_bytes=1)


def test_a_folder_in_place_of_the_file_is_refused(jobs: Path) -> None:
    (jobs / "7/logs/out").unlink()
    (jobs / "7/logs/out").mkdir()
    with pytest.raises(OutputGoneError):
        read(jobs)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused(jobs: Path) -> None:
    os.chown(jobs / "7/logs/out", 4321, 4321)
    with pytest.raises(OutputGoneError):
        read(jobs)
    os.chown(jobs / "7", 4321, 4321)
    assert read(jobs) == "of 7"


def test_folders_swapped_all_the_time_never_show_what_is_outside(jobs: Path) -> None:
    """`logs` is now the job's folder, now a link to another one, while it is read."""
    (jobs / "7/link").symlink_to(jobs / "8/logs")
    (jobs / "7/logs").rename(jobs / "7/real")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for name in ("real", "link"):
                (jobs / "7" / name).rename(jobs / "7/logs")
                (jobs / "7/logs").rename(jobs / "7" / name)

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen = set()
    reads = 0
    try:
        while reads < 3000 or len(seen) < 2:
            reads += 1
            try:
                seen.add(read(jobs))
            except OutputGoneError:
                seen.add("refused")
    finally:
        stop.set()
        swapping.join()
    assert seen == {"of 7", "refused"}


@pytest.mark.parametrize("pattern", ["../8/logs/out", "/etc/passwd", "..", ".", "a/../../x"])
def test_no_pattern_leads_out_of_the_run_folder(pattern: str) -> None:
    with pytest.raises(ValueError, match="leads out"):
        output_name("stdout", pattern, key=Key(7, 1, 0), host="h1")


def grow(path: Path, kib: int) -> None:
    with path.open("ab") as file:
        for number in range(kib):
            file.write(b"%08d" % number * 128)


def test_the_oldest_part_goes_and_offsets_stay_true(jobs: Path) -> None:
    out = jobs / "7/logs/out"
    out.unlink()
    grow(out, 1024)
    before = out.read_bytes()
    trimmer = Trimmer(jobs)
    assert trimmer.trim("7/logs/out", keep_bytes=256 * KIB)
    found = out.stat()
    assert found.st_size == 1024 * KIB
    assert found.st_blocks * 512 <= (256 + 64) * KIB + BLOCK
    assert not trimmer.trim("7/logs/out", keep_bytes=256 * KIB)
    file = OutputFile(jobs, "7/logs/out", 5)
    assert 700 * KIB < file.at <= 768 * KIB
    assert file.size == 1024 * KIB
    assert file.read(KIB) == before[file.at - KIB : file.at]
    file.close()
    last = OutputFile(jobs, "7/logs/out", -10)
    assert last.read(100) == before[-10:]
    last.close()


def test_a_reader_is_never_given_the_zeros_of_a_hole(jobs: Path) -> None:
    out = jobs / "7/logs/out"
    out.unlink()
    grow(out, 512)
    file = OutputFile(jobs, "7/logs/out", 0)
    assert len(file.read(KIB)) == KIB
    Trimmer(jobs).trim("7/logs/out", keep_bytes=64 * KIB)
    with pytest.raises(OutputGoneError, match="oldest"):
        file.read(KIB)
    os.truncate(out, 10)
    with pytest.raises(OutputGoneError, match="cut"):
        file.read(KIB)
    file.close()
    assert file.read(KIB) == b""


def test_small_files_are_left_alone(jobs: Path) -> None:
    grow(jobs / "7/logs/out", 32)
    before = (jobs / "7/logs/out").read_bytes()
    assert not Trimmer(jobs).trim("7/logs/out", keep_bytes=KIB)
    assert (jobs / "7/logs/out").read_bytes() == before
    assert not Trimmer(jobs).trim("7/none", keep_bytes=KIB)


def test_an_offset_beyond_the_end_is_the_end(jobs: Path) -> None:
    for offset, at in ((4, 4), (99, 4), (-99, 0), (-1, 3)):
        file = OutputFile(jobs, "7/logs/out", offset)
        assert file.at == at
        file.close()


def test_files_of_ended_tasks_are_told_once_and_only_when_nobody_writes_them() -> None:
    written = Written()
    rows = [
        Desired(7, 1, 0, "running"),
        Desired(7, 1, 1, "running", stdout="both"),
        Desired(7, 1, 2, "running", stdout="both", stderr="../out"),
    ]
    written.learn(rows, host="h1")
    assert written.open == {"7/7.1.0.out", "7/7.1.0.err", "7/both", "7/7.1.1.err"}
    assert not written.news.is_set()
    written.learn([], host="h1")
    assert written.news.is_set()
    assert written.take_ended() == {"7/7.1.0.out", "7/7.1.0.err", "7/both", "7/7.1.1.err"}
    assert written.take_ended() == frozenset()
