"""Commands whose streams are full, closed, or of another encoding, and whose folder is gone."""

import fcntl
import json
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import termios
import threading
import tomllib
import tty
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from blackboard.cli.streams import write_all
from tests.cli.command_line import ROOT, CommandLine, blackboard
from tests.support.ports import free_port
from tests.support.processes import PATIENCE, eventually

__all__ = ["blackboard"]

COMMAND = f"{shlex.quote(sys.executable)} -m blackboard"
CLOSED = "blackboard: the output cannot be written: it is closed (what was asked for may be done)"
FULL = "blackboard: the output cannot be written: No space left on device"

JOBS = """
from blackboard import handler

@handler("hello", every="8h")
async def hello(item, ctx):
    return 1
"""

pytestmark = pytest.mark.of_sqlite("streams of a process")


@pytest.fixture(name="town")
def _town(blackboard: CommandLine) -> CommandLine:
    blackboard("add", "davis", "--type", "hello", "--every", "8h")
    return blackboard


def answers(port: int) -> bool:
    """Whether the pages are served there."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False


def shell(folder: Path, line: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("args", ["show", "show --json", "export", "status", "--help", "--version"])
def test_output_that_a_full_disk_does_not_take_is_said(town: CommandLine, args: str) -> None:
    done = shell(town.folder, f"{COMMAND} {args} > /dev/full")
    assert (done.returncode, done.stderr.startswith(FULL)) == (2, True)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_of_which_a_disk_takes_a_part_is_said(tmp_path: Path, unbuffered: str) -> None:
    """Where Python is to write at once, as in a container, too: it drops the rest of a write."""
    line = f"ulimit -f 1; {COMMAND} worker --help > help"
    done = shell(tmp_path, line, PYTHONUNBUFFERED=unbuffered, PYTHONDONTWRITEBYTECODE="1")
    assert (tmp_path / "help").stat().st_size > 0
    assert done.returncode == 2
    assert done.stderr.startswith("blackboard: the output cannot be written: File too large")


def test_a_compiled_module_that_a_full_disk_cut_off_is_said(tmp_path: Path) -> None:
    compiled = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    assert shell(tmp_path, f"{COMMAND} show --help", **compiled).returncode == 0
    (module,) = tmp_path.rglob("cli/show.*.pyc")
    os.truncate(module, 100)
    done = shell(tmp_path, f"{COMMAND} show --help", **compiled)
    assert done.returncode == 2
    assert "blackboard: a compiled module is cut off" in done.stderr


LINES = 3_000
CRONTAB = "".join(f"# town-{number}\n{number % 60} 3 * * * true\n" for number in range(LINES))


def left_in(pipe: int) -> int:
    """The bytes of a pipe that were not read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_pipe_that_another_program_made_non_blocking_gets_all_output(
    town: CommandLine, unbuffered: str
) -> None:
    """As ssh does with the streams that it shares with its caller."""
    town.write(CRONTAB, "crontab")
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    command = [sys.executable, "-m", "blackboard", "import-crontab", "crontab"]
    with subprocess.Popen(
        command,
        cwd=town.folder,
        stdout=writes,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    ) as process:
        os.close(writes)
        most = fcntl.fcntl(reads, fcntl.F_GETPIPE_SZ)
        full = "the pipe is full"
        eventually(lambda: left_in(reads) == most or process.poll() is not None, full)
        with os.fdopen(reads, "rb") as stream:
            assert len(tomllib.load(stream)["items"]) == LINES
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0


PRINTS = f"""
from blackboard import cli

def called():
    try:
        for number in range({LINES}):
            print(f"town-{{number:05}}")
    except KeyboardInterrupt:
        return 130
    return 0

cli.called = called
cli.main()
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("blocking", [True, False])
def test_ctrl_c_while_output_is_written_lets_no_line_come_twice(
    tmp_path: Path, unbuffered: str, *, blocking: bool
) -> None:
    """Where a part of the buffer was taken before."""
    (tmp_path / "prints.py").write_text(PRINTS)
    reads, writes = os.pipe()
    most = fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4_096)
    os.set_blocking(writes, blocking)
    with subprocess.Popen(
        [sys.executable, "prints.py"],
        cwd=tmp_path,
        stdout=writes,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered, "PYTHONPATH": str(ROOT)},
    ) as process:
        os.close(writes)
        full = "the pipe is full"
        eventually(lambda: left_in(reads) > most // 2 or process.poll() is not None, full)
        process.send_signal(signal.SIGINT)
        with os.fdopen(reads, "rb") as stream:
            lines = stream.read().decode().splitlines()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 130
    assert lines[:200] == [f"town-{number:05}" for number in range(200)]
    assert len(lines) == len(set(lines))


def test_output_that_a_disk_took_in_part_is_not_written_again(tmp_path: Path) -> None:
    """Where the disk has room again as the command ends."""
    code = """
import os, resource, signal, sys
from blackboard.cli.streams import flushed, open_streams
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, resource.RLIM_INFINITY))
streams = open_streams()
try:
    sys.stdout.write("".join(f"{number:05}\\n" for number in range(1_000)))
    sys.stdout.flush()
except OSError:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    sys.exit(flushed(3, streams))
"""
    (tmp_path / "code.py").write_text(code)
    done = shell(tmp_path, f"{shlex.quote(sys.executable)} code.py > out", PYTHONUNBUFFERED="")
    assert (done.returncode, done.stderr) == (3, "")
    lines = (tmp_path / "out").read_text().splitlines()
    assert lines == [f"{number:05}" for number in range(1_000)]


REPLACED = {
    "a writer of a codec": "sys.stdout = codecs.getwriter('utf-8')(sys.stdout.buffer)",
    "an object that passes on": "sys.stdout, sys.stderr = Passes(sys.stdout), Passes(sys.stderr)",
    "a file": "sys.stdout = open('out', 'w')",
    "in memory": "sys.stdout = io.StringIO()",
    "wrapped anew": "sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8')",
    "without a descriptor": "sys.stdout = io.TextIOWrapper(io.BytesIO())",
    "closed": "sys.stdout.close(); sys.stdout = open('out', 'w')",
}


@pytest.mark.parametrize("replaced", REPLACED)
def test_a_program_that_has_replaced_its_streams_may_call_a_command(
    town: CommandLine, replaced: str
) -> None:
    code = f"""
import codecs, io, sys
from pathlib import Path
from blackboard.cli import main

class Passes:
    def __init__(self, stream):
        self._stream = stream
    def __getattr__(self, name):
        return getattr(self._stream, name)

{REPLACED[replaced]}
print("before")
own = sys.stdout
sys.argv[1:] = ["show"]
try:
    main()
finally:
    assert sys.stdout is own
    if isinstance(own, io.StringIO):
        Path("out").write_text(own.getvalue())
    elif isinstance(getattr(own, "buffer", None), io.BytesIO):
        Path("out").write_bytes(own.buffer.getvalue())
"""
    town.write(code, "program.py")
    line = f"{shlex.quote(sys.executable)} program.py > direct; status=$?"
    done = shell(
        town.folder,
        f"{line}; cat direct out 2>/dev/null; exit $status",
        BLACKBOARD_STORE=town.store,
        PYTHONPATH=str(ROOT),
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, *rest = done.stdout.splitlines()
    assert first == "before"
    assert any(line.startswith("davis") for line in rest)


def test_what_a_program_has_printed_comes_before_what_its_command_prints(tmp_path: Path) -> None:
    code = """
import sys
from blackboard.cli import main

print("before")
sys.argv[1:] = ["--version"]
main()
"""
    (tmp_path / "program.py").write_text(code)
    line = f"{shlex.quote(sys.executable)} program.py"
    done = shell(tmp_path, line, PYTHONPATH=str(ROOT), PYTHONUNBUFFERED="")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("before\nblackboard")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_jobs_find_the_attributes_of_the_streams_of_python(
    town: CommandLine, unbuffered: str
) -> None:
    names = [
        "mode",
        "name",
        "encoding",
        "errors",
        "newlines",
        "line_buffering",
        "write_through",
        "closed",
    ]
    asked = f"""
import json, sys
from pathlib import Path

facts = [
    [getattr(stream, name) for name in {names}]
    + [stream.fileno(), stream.isatty(), stream.writable(), stream.readable()]
    + [getattr(stream.buffer, name) for name in ("mode", "name", "closed")]
    for stream in (sys.stdout, sys.stderr)
]
"""
    town.write(f"{asked}Path('plain').write_text(json.dumps(facts))\n", "plain.py")
    town.write(f"{asked}Path('found').write_text(json.dumps(facts))\n{JOBS}", "jobs.py")
    line = f"{COMMAND} run davis --here --jobs jobs.py"
    for each in (f"{shlex.quote(sys.executable)} plain.py", line):
        done = shell(town.folder, each, PYTHONUNBUFFERED=unbuffered)
        assert (done.returncode, done.stderr) == (0, "")
    plain, found = (json.loads((town.folder / name).read_text()) for name in ("plain", "found"))
    assert found == plain


def test_a_pipe_that_another_program_made_non_blocking_is_read_to_its_end(
    town: CommandLine,
) -> None:
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    command = [sys.executable, "-m", "blackboard", "import-crontab", "-", "--json"]
    first, second = CRONTAB[:1_000], CRONTAB[1_000:]
    with subprocess.Popen(
        command, cwd=town.folder, stdin=reads, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        with os.fdopen(writes, "wb", buffering=0) as stream:
            stream.write(first.encode())
            eventually(lambda: not left_in(reads) or process.poll() is not None, "it is read")
            os.close(reads)
            stream.write(second.encode())
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, b"")
    assert len(json.loads(out)) == LINES


class PollOfMacOS:
    """Says at once of each device that it is none to wait for."""

    def register(self, descriptor: int, _events: int) -> None:
        self._descriptor = descriptor

    def poll(self) -> list[tuple[int, int]]:
        return [(self._descriptor, select.POLLNVAL)]


def test_a_terminal_that_is_non_blocking_is_waited_for_where_poll_knows_no_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(select, "poll", PollOfMacOS)
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    os.set_blocking(theirs, False)
    tries, written = 0, os.write

    def write(descriptor: int, data: bytes) -> int:
        nonlocal tries
        tries += 1
        return written(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    data = bytes(100_000)
    thread = threading.Thread(target=write_all, args=(theirs, data), daemon=True)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    assert tries < 100
    left = len(data)
    while left:
        left -= len(os.read(ours, left))
    thread.join(PATIENCE)
    assert not thread.is_alive()
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("args", ["show --json", "pause --json davis", "--help"])
def test_a_pipe_that_nothing_reads_ends_a_command_silently(town: CommandLine, args: str) -> None:
    """As SIGPIPE ends other programs: what was asked for is done."""
    reads, writes = os.pipe()
    os.close(reads)
    try:
        command = [sys.executable, "-m", "blackboard", *args.split()]
        done = subprocess.run(
            command, cwd=town.folder, stdout=writes, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writes)
    assert (done.returncode, done.stderr) == (141, b"")
    assert town.item("davis").is_paused is args.startswith("pause")


@pytest.mark.parametrize(
    "args", ["show", "show --json", "check", "export", "status", "--help", "pause davis"]
)
def test_a_command_that_cannot_answer_as_its_output_is_closed_says_so(
    town: CommandLine, args: str
) -> None:
    """As where the disk is full: who asked was not told."""
    done = shell(town.folder, f"{COMMAND} {args} >&-")
    assert done.returncode == 2
    assert (
        done.stderr == "blackboard: the output cannot be written: it is closed "
        "(what was asked for may be done)\n"
    )
    assert town.item("davis").is_paused is args.startswith("pause")


@pytest.mark.parametrize("args", ["show", "show --json", "check", "add other --type hello"])
def test_errors_are_discarded_where_their_stream_is_closed(town: CommandLine, args: str) -> None:
    done = shell(town.folder, f"{COMMAND} {args} 2>&-")
    assert done.returncode == (1 if args == "check" else 0)
    assert done.stdout


@pytest.mark.parametrize(
    ("args", "code"),
    [("add other --type hell", 0), ("export davis", 0), ("cancel davis", 1), ("report davis", 1)],
)
def test_notes_that_a_full_disk_does_not_take_keep_a_command_from_nothing(
    town: CommandLine, args: str, code: int
) -> None:
    town("pause", "davis")
    assert shell(town.folder, f"{COMMAND} {args} 2> /dev/full").returncode == code
    assert town.ids() == (["davis", "other"] if args.startswith("add") else ["davis"])


@pytest.mark.parametrize("kind", ["async def", "def"])
def test_a_run_here_goes_on_where_nothing_takes_what_it_logs(town: CommandLine, kind: str) -> None:
    jobs = JOBS.replace("async def", kind).replace("return 1", 'ctx.log.info("hello")\n    1 / 0')
    town.write(jobs, "jobs.py")
    done = shell(town.folder, f"{COMMAND} run davis --here --jobs jobs.py 2> /dev/full")
    assert (done.returncode, done.stdout[:12]) == (1, "davis failed")
    assert "ZeroDivisionError" in (town.item("davis").error or "")


@pytest.mark.parametrize(
    ("kind", "closed"),
    [
        ("async def", ">&-"),
        ("async def", "<&- >&- 2>&-"),
        ("def", ">&-"),
        ("def", ">/dev/full 2>/dev/full"),
    ],
)
def test_a_worker_goes_on_where_nothing_takes_its_output(
    town: CommandLine, kind: str, closed: str
) -> None:
    """Nor what a handler prints, which is kept with the run."""
    jobs = JOBS.replace("async def", kind).replace("return 1", 'print("hello")\n    return 1')
    town.write(jobs, "jobs.py")
    done = shell(town.folder, f"{COMMAND} worker --until-idle --jobs jobs.py {closed}")
    assert done.returncode == 0
    said = town("log", "davis", "--full").out
    assert (" ok " in said, "hello" in said.partition("  output")[2]) == (True, True)


TAKEN = {
    "absent": "sys.stdout = sys.stderr = None",
    "closed": "sys.stdout.close(), sys.stderr.close()",
    "another, and closed": "sys.stdout = sys.stderr = io.StringIO(); sys.stdout.close()",
    "closed below": "sys.__stdout__.close(), sys.__stderr__.close()",
    "without descriptors": "os.closerange(1, 3)",
    "wrapped anew": "sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8')",
    "wrapped, too": "sys.stdout, sys.stderr = map(io.TextIOWrapper, "
    "(sys.stdout.buffer, sys.stderr.buffer))",
}
"""What a handler may do to the streams of its process."""


@pytest.mark.parametrize("taken", TAKEN)
@pytest.mark.parametrize("kind", ["async def", "def"])
def test_a_worker_whose_streams_a_handler_has_taken_ends_well(
    town: CommandLine, taken: str, kind: str
) -> None:
    body = f"import io, os, sys\n{JOBS}    {TAKEN[taken]}\n".replace("    return 1\n", "")
    (town.folder / "taken.py").write_text(body.replace("async def", kind))
    done = shell(town.folder, f"{COMMAND} worker --jobs taken.py --until-idle")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize(
    "taken", ["absent", "closed", "another, and closed", "wrapped anew", "wrapped, too"]
)
@pytest.mark.parametrize("kind", ["async def", "def"])
def test_a_run_here_that_has_taken_the_streams_is_told_all_the_same(
    town: CommandLine, taken: str, kind: str
) -> None:
    body = f"import io, os, sys\n{JOBS}    {TAKEN[taken]}\n".replace("    return 1\n", "")
    (town.folder / "taken.py").write_text(body.replace("async def", kind))
    done = shell(town.folder, f"{COMMAND} run davis --here --jobs taken.py")
    assert (done.returncode, "davis ok in" in done.stdout, done.stderr) == (0, True, "")


WRAPPED = f"""
import io, sys, threading, time
{JOBS}
sys.stdout = io.TextIOWrapper(sys.stdout.WAY, encoding="utf-8")
threading.Thread(target=time.sleep, args=(600,)).start()
"""


@pytest.mark.parametrize("way", ["detach()", "buffer"])
def test_the_answer_is_written_to_a_stream_that_a_module_of_jobs_has_wrapped_anew(
    town: CommandLine, way: str
) -> None:
    """Also where a thread that the module has started does not let Python end."""
    town.write(WRAPPED.replace("WAY", way), "jobs.py")
    line = f"{COMMAND} run davis --here --jobs jobs.py"
    done = shell(town.folder, line)
    assert (done.returncode, done.stdout[:12], done.stderr) == (0, "davis ok in ", "")
    done = shell(town.folder, f"{line} > /dev/full")
    assert (done.returncode, done.stderr.startswith(FULL)) == (2, True)


@pytest.mark.parametrize("closed", ["1>&-", "1>/dev/full", "2>&-", "2>/dev/full", "1>&- 2>&-"])
def test_a_server_goes_on_where_nothing_takes_its_address(town: CommandLine, closed: str) -> None:
    """And ends as it is asked to: that its address was not taken is no failure."""
    port = free_port()
    line = f"exec {COMMAND} serve --listen {port} {closed}"
    with subprocess.Popen(
        ["sh", "-c", line], cwd=town.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as server:
        eventually(lambda: server.poll() is not None or answers(port), "it serves")
        server.send_signal(signal.SIGINT)
        assert server.stdout is not None
        assert b"Traceback" not in server.stdout.read()
    assert server.returncode == 0


def test_the_exit_code_stays_where_errors_cannot_be_written(town: CommandLine) -> None:
    assert shell(town.folder, f"{COMMAND} show nope 2> /dev/full").returncode == 2


def test_an_encoding_without_a_character_is_said(town: CommandLine) -> None:
    town("add", "town-\N{SLIGHTLY SMILING FACE}", "--type", "hello")
    done = shell(town.folder, f"{COMMAND} show", PYTHONIOENCODING="latin-1")
    assert done.returncode == 2
    assert done.stderr.startswith("blackboard: the output cannot be written in latin-1")


@pytest.mark.parametrize("encoding", ["latin-1", "shift_jis"])
def test_declarations_are_written_in_utf8_whatever_the_locale(
    town: CommandLine, encoding: str
) -> None:
    town("add", "Zürich", "東京", "--type", "hello")
    town.write("# Zürich\n0 3 * * * true\n", "crontab")
    written = f"{COMMAND} export > all.toml && {COMMAND} import-crontab crontab > one.toml"
    done = shell(town.folder, written, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    names = [
        [item["id"] for item in tomllib.loads((town.folder / file).read_text("utf-8"))["items"]]
        for file in ("all.toml", "one.toml")
    ]
    assert names == [["Zürich", "davis", "東京"], ["zürich"]]


def test_a_folder_that_is_gone_is_said(town: CommandLine) -> None:
    line = f"mkdir gone; cd gone; rmdir ../gone; {COMMAND} --store {town.folder}/{town.store} show"
    done = shell(town.folder, line)
    assert done.returncode == 2
    assert done.stderr.startswith("blackboard: folder: the current one cannot be used")


@pytest.mark.parametrize("limit", ["-n 8", "-n 9", "-n 10", "-v 40000"])
def test_a_worker_that_is_given_too_little_says_so_in_a_line(town: CommandLine, limit: str) -> None:
    """Where it needs less than that, it does its work."""
    town.write(JOBS, "jobs.py")
    line = f"ulimit {limit}; exec {COMMAND} --store {town.store} worker --until-idle --jobs jobs.py"
    done = shell(town.folder, line)
    assert done.returncode in {0, 2}
    if done.returncode == 2:
        assert done.stderr.startswith("blackboard: ")
        assert done.stderr.count("\n") == 1
