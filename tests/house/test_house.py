"""`./bb` and `.ci/run` on machines that have, or lack, this and that; and what no file may hold.

The scripts run in copies, in a PATH of their own that holds stand-ins and the few tools they need.
"""

import ast
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
TOOLS = (
    *(
        "cat",
        "cmp",
        "cp",
        "date",
        "dirname",
        "env",
        "grep",
        "id",
        "mv",
        "rm",
        "sh",
        "sleep",
        "tail",
    ),
)
"""All that the scripts ask of a machine besides Python."""

LOCKS = ("requirements.lock", "requirements-test.lock")
SETTING_UP = re.compile(r"bb: installing \d+ packages into \.venv, once \.* \d+ s")

# Written with brackets, so that this file does not find itself.
REGISTRIES = r"(py[p]i|python[h]osted|npm[j]s)\.(org|com)|(deb|security)\.[d]ebian\.org"
THIS_MACHINE = r"(?<![\w.-])/([w]ork|[r]oot|[f]arm|tmp/[p]robe)/"

STAND_IN_UV = """
import os, pathlib, sys
print("uv", *sys.argv[1:])
if sys.argv[1] == "venv":
    programs = pathlib.Path(sys.argv[-1], "bin")
    programs.mkdir(parents=True)
    for name in ("blackboard", "mypy", "python", "ruff"):
        told = f'echo {name} "$@"; $ASKED >&2; test "$FAILING" != "{name}"'
        (programs / name).write_text(f"#!/bin/sh\\n{told}\\n")
        (programs / name).chmod(0o755)
"""


@dataclass(frozen=True)
class Running:
    stdout: IO[str]
    stderr: IO[str]
    wait: Callable[[], int]


@dataclass(frozen=True)
class Machine:
    """A checkout of the two scripts, and a PATH."""

    checkout: Path
    programs: Path

    def has(self, name: str, script: str) -> None:
        program = self.programs / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def has_python(self, *special: str) -> None:
        """Python as it is, but for `special`: cases of sh on its arguments."""
        cases = "\n".join(special)
        exec_real = f'exec {shlex.quote(sys.executable)} "$@"'
        self.has("python3", f'case "$*" in\n{cases}\nesac\n{exec_real}')

    def has_uv(self) -> None:
        script = self.programs.parent / "uv.py"
        script.write_text(STAND_IN_UV)
        self.has("uv", shlex.join([sys.executable, str(script)]) + ' "$@"')

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": str(self.programs), "HOME": str(self.checkout)}

    def call(self, *command: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
        env = {**self.environ, **environ}
        return subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, text=True, check=False
        )

    @contextmanager
    def started(self, *args: str) -> Iterator[Running]:
        """`./bb ARGS`, which goes on."""
        command = [str(self.checkout / "bb"), *args]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, cwd=self.checkout, env=self.environ, stdout=pipe, stderr=pipe, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            yield Running(process.stdout, process.stderr, process.wait)

    def bb(self, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return self.call(str(self.checkout / "bb"), *args, cwd=self.checkout, **environ)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """One that has Python and no uv."""
    made = Machine(tmp_path / "check out", tmp_path / "bin")
    (made.checkout / ".ci").mkdir(parents=True)
    made.programs.mkdir()
    for name in ("bb", ".ci/run", *LOCKS, "pyproject.toml"):
        shutil.copy(ROOT / name, made.checkout / name)
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (made.programs / tool).symlink_to(found)
    made.has_python()
    return made


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that tells what is wrong."""
    assert done.returncode == 1
    assert done.stdout == ""
    *before, line = done.stderr.splitlines()
    assert all(SETTING_UP.fullmatch(one) for one in before), before
    return line


def test_without_the_venv_module_one_line_says_what_to_install(machine: Machine) -> None:
    machine.has_python("*ensurepip*) exit 1 ;;")
    assert refusal(machine.bb("demo")) == (
        "bb: 'python3' has no venv module; on Debian or Ubuntu: apt-get install python3-venv"
    )


def test_an_older_python_is_refused_in_one_line_that_names_its_version(machine: Machine) -> None:
    machine.has_python("*python_version*) echo 3.9.2; exit ;;", "*version_info*) exit 1 ;;")
    assert refusal(machine.bb("demo")) == (
        "bb: 'python3' is Python 3.9.2, and 3.11 or newer is needed; "
        "name another: PYTHON=/path/to/python3 ./bb"
    )


def test_a_missing_python_is_told_in_one_line(machine: Machine) -> None:
    line = refusal(machine.bb("demo", PYTHON="python3.99"))
    assert line.startswith("bb: no Python found as 'python3.99'; install Python 3.11 or newer")


@pytest.mark.skipif(
    importlib.util.find_spec("ensurepip") is None, reason="this Python cannot make environments"
)
def test_without_a_network_one_line_says_so(machine: Machine) -> None:
    """By pip from the file that it would be installed from, where Python has that: installing it
    takes seconds.
    """
    import ensurepip

    pip = [*Path(ensurepip.__file__).with_name("_bundled").glob("pip-*.whl")]
    if pip:
        bare = f'exec {shlex.quote(sys.executable)} -m venv --without-pip "$3"'
        machine.has_python(f"'-m venv '*) {bare} ;;")
    unreachable = {
        "PYTHONPATH": os.pathsep.join(map(str, pip)),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:9/",
        "PIP_RETRIES": "0",
    }
    assert refusal(machine.bb("demo", **unreachable)) == (
        "bb: cannot fetch the packages; check the network or proxy and run it again "
        "(details: .venv.log)"
    )
    assert "127.0.0.1" in (machine.checkout / ".venv.log").read_text()


def test_uv_that_fails_leaves_the_work_and_the_last_word_to_pip(machine: Machine) -> None:
    machine.has("uv", "echo no certificate; exit 2")
    machine.has_python("'-m venv '*) echo Error: the disk is full; exit 1 ;;")
    assert "Error: the disk is full" in refusal(machine.bb("demo"))


def test_another_failure_is_told_in_the_installers_own_words(machine: Machine) -> None:
    machine.has_python("'-m venv '*) echo Error: the disk is full; exit 1 ;;")
    assert refusal(machine.bb("demo")) == (
        "bb: cannot install the packages: Error: the disk is full (details: .venv.log)"
    )


def test_the_environment_is_made_once(machine: Machine) -> None:
    machine.has_uv()
    first = machine.bb("show", "a b", "--json")
    assert first.stdout == "blackboard show a b --json\n"
    assert SETTING_UP.fullmatch(first.stderr.rstrip("\n"))
    again = machine.bb("show")
    assert (again.stdout, again.stderr) == ("blackboard show\n", "")
    log = (machine.checkout / ".venv" / "setup.log").read_text()
    assert "--no-deps --require-hashes" in log
    assert "--no-deps --no-build-isolation -e" in log


def test_the_environment_is_made_anew_when_what_it_is_made_of_changes(machine: Machine) -> None:
    machine.has_uv()
    machine.bb("show")
    with (machine.checkout / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    assert SETTING_UP.match(machine.bb("show").stderr)
    assert machine.bb("show").stderr == ""


def test_an_environment_that_was_moved_is_made_anew(machine: Machine) -> None:
    machine.has_uv()
    machine.bb("show")
    moved = Machine(machine.checkout.rename(machine.checkout.parent / "moved"), machine.programs)
    assert SETTING_UP.match(moved.bb("show").stderr)


def test_an_environment_whose_python_is_gone_is_made_anew(machine: Machine) -> None:
    machine.has_uv()
    machine.bb("show")
    (machine.checkout / ".venv" / "bin" / "python").unlink()
    assert SETTING_UP.match(machine.bb("show").stderr)


def test_a_set_up_that_was_cut_off_is_begun_again(machine: Machine) -> None:
    machine.has("uv", "exit 1")
    machine.has_python("'-m venv '*) exit 1 ;;")
    assert machine.bb("show").returncode == 1
    machine.has_uv()
    machine.has_python()
    assert machine.bb("show").stdout == "blackboard show\n"


def test_two_that_set_up_at_once_make_one_environment(machine: Machine, tmp_path: Path) -> None:
    """The second waits. It would remove what the first makes."""
    go_on = tmp_path / "go on"
    machine.has_uv()
    wait = f"while not pathlib.Path({str(go_on)!r}).exists(): time.sleep(0.01)\n"
    (tmp_path / "uv.py").write_text(f"import pathlib, time\n{wait}{STAND_IN_UV}")
    with machine.started("show") as first:
        line = first.stderr.read(len("bb: installing"))
        with machine.started("show") as second:
            waiting = second.stderr.readline()
            go_on.touch()
            assert (second.wait(), second.stdout.read()) == (0, "blackboard show\n")
            assert waiting + second.stderr.read() == (
                "bb: waiting for another ./bb, which makes .venv\n"
            )
        assert (first.wait(), first.stdout.read()) == (0, "blackboard show\n")
        assert SETTING_UP.fullmatch(line + first.stderr.read().rstrip("\n"))


def test_a_command_runs_where_it_was_called(machine: Machine, tmp_path: Path) -> None:
    machine.has_uv()
    machine.bb("show")
    program = machine.checkout / ".venv" / "bin" / "blackboard"
    program.write_text("#!/bin/sh\npwd\n")
    done = machine.call(str(machine.checkout / "bb"), "init", cwd=tmp_path)
    assert done.stdout == f"{tmp_path}\n"


TESTS = "python -m pytest -n 4 --dist worksteal --durations=20 --ignore=tests/proof"
LINT = ["ruff format --check .", "ruff check .", "mypy"]


@pytest.mark.parametrize(
    ("args", "failing", "called"),
    [
        (["lint"], "", LINT),
        (["lint"], "ruff", LINT[:1]),
        (["lint"], "mypy", LINT),
        (["test"], "", [*LINT, TESTS]),
        (["test"], "mypy", LINT),
        (["test"], "python", [*LINT, TESTS]),
        (["test", "-k", "a or b"], "", ["python -m pytest -k a or b"]),
        (["proof"], "", ["python -m tests.proof"]),
        (["proof", "--long", "-k", "x"], "python", ["python -m tests.proof --long -k x"]),
        (["show"], "blackboard", ["blackboard show"]),
    ],
)
def test_the_first_failure_ends_the_command_and_is_its_exit_code(
    machine: Machine, args: list[str], failing: str, called: list[str]
) -> None:
    machine.has_uv()
    done = machine.bb(*args, FAILING=failing)
    assert done.stdout.splitlines() == called
    assert done.returncode == (1 if failing else 0)


@pytest.mark.parametrize("command", [["test"], ["test", "-x"], ["proof"], ["bench", "--peers"]])
def test_what_tests_import_is_compiled_once_and_not_beside_the_sources(
    machine: Machine, command: list[str]
) -> None:
    machine.has_uv()
    done = machine.bb(*command, ASKED="env", PYTHONDONTWRITEBYTECODE="1")
    assert f"PYTHONPYCACHEPREFIX={machine.checkout}/.venv/compiled\n" in done.stderr
    assert "PYTHONDONTWRITEBYTECODE" not in done.stderr


def installed(machine: Machine) -> list[str]:
    """The locks of the last set-up."""
    log = (machine.checkout / ".venv" / "setup.log").read_text()
    return [name for name in LOCKS if f"-r {machine.checkout / name}" in log]


@pytest.mark.parametrize("command", ["test", "lint", "proof", "azurite"])
def test_what_tests_need_is_added_once_and_only_for_who_asks(
    machine: Machine, command: str
) -> None:
    machine.has_uv()
    machine.bb("demo")
    assert installed(machine) == [LOCKS[0]]
    added = machine.bb(command)
    assert SETTING_UP.match(added.stderr)
    assert installed(machine) == [*LOCKS]
    assert machine.bb(command).stderr == machine.bb("demo").stderr == ""


def test_both_sets_are_installed_at_once_where_nothing_is_there(machine: Machine) -> None:
    machine.has_uv()
    (line,) = machine.bb("lint").stderr.splitlines()
    texts = [(ROOT / name).read_text() for name in LOCKS]
    packages = sum(len(re.findall(r"^[\w.-]+==", text, re.MULTILINE)) for text in texts)
    assert line.startswith(f"bb: installing {packages} packages into .venv")
    assert installed(machine) == [*LOCKS]


def test_a_change_of_what_tests_need_makes_the_environment_anew_for_them_alone(
    machine: Machine,
) -> None:
    machine.has_uv()
    machine.bb("lint")
    with (machine.checkout / LOCKS[1]).open("a") as lock:
        lock.write("# changed\n")
    assert machine.bb("demo").stderr == ""
    assert SETTING_UP.match(machine.bb("lint").stderr)
    assert machine.bb("lint").stderr == ""


def test_a_package_is_in_one_of_the_sets_and_has_its_hash() -> None:
    texts = [(ROOT / name).read_text() for name in LOCKS]
    first, second = (set(re.findall(r"^([\w.-]+)==", text, re.MULTILINE)) for text in texts)
    assert first & second == set()
    assert {"hatchling", "icalendar", "rich"} <= first
    assert {"aiohttp", "mutmut", "pytest"} <= second
    for text in texts:
        entries = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
        assert all("--hash=sha256:" in entry for entry in entries)


def test_what_a_locked_package_needs_is_locked() -> None:
    """Installers do not look for it."""
    locks = "\n".join((ROOT / name).read_text() for name in LOCKS)
    pins = dict(re.findall(r"^([\w.-]+)==([\w.]+)", locks, re.MULTILINE))
    here = {canonicalize_name(one.metadata["Name"]): one for one in metadata.distributions()}
    assert len(pins.keys() & here.keys()) > 100
    missing = [
        f"{name} needs {need}"
        for name in pins.keys() & here.keys()
        for need in map(Requirement, here[name].requires or [])
        if need.marker is None or need.marker.evaluate({"extra": ""})
        if not need.specifier.contains(pins.get(canonicalize_name(need.name), "0"), True)
    ]
    assert missing == []


PACKAGES = {
    "venv": "ca-certificates python3 python3-venv",
    "git": "ca-certificates git",
    "faketime": "faketime",
    "stress-ng": "stress-ng",
    "fiu-run": "fiu-utils",
    "redis-server": "redis-server",
    "chromium": "chromium",
}
"""What brings each of the things that CI needs of a Debian machine."""


@pytest.mark.parametrize("code", [0, 1])
def test_ci_is_bb_test_and_bb_proof(machine: Machine, code: int) -> None:
    (machine.checkout / "bb").write_text(f'#!/bin/sh\necho bb "$@"; exit {code}\n')
    for name in PACKAGES.keys() - {"venv"}:
        machine.has(name, "")
    done = machine.call(str(machine.checkout / ".ci" / "run"), cwd=machine.programs)
    called = "bb test\n" if code else "bb test\nbb proof\n"
    assert (done.stdout, done.stderr, done.returncode) == (called, "", code)


@pytest.mark.parametrize("missing", PACKAGES)
def test_ci_installs_what_a_bare_debian_lacks(machine: Machine, missing: str) -> None:
    (machine.checkout / "bb").write_text('#!/bin/sh\necho bb "$@"\n')
    machine.has("apt-get", 'echo apt-get "$@"')
    machine.has("sudo", '"$@"')
    for name in PACKAGES.keys() - {missing, "venv"}:
        machine.has(name, "")
    if missing == "venv":
        machine.has_python("*ensurepip*) exit 1 ;;")
    done = machine.call(str(machine.checkout / ".ci" / "run"), cwd=machine.programs)
    lines = done.stdout.splitlines()
    update, install = [line for line in lines if line.startswith("apt-get")]
    assert update == "apt-get update -qq"
    assert install.split("--no-install-recommends ")[1] == PACKAGES[missing]
    sets_up = [] if missing in {"venv", "git"} else ["bb test --version"]
    assert [line for line in lines if line.startswith("bb")] == [*sets_up, "bb test", "bb proof"]
    assert lines[-2:] == ["bb test", "bb proof"]


def test_ci_fails_where_debian_cannot_install(machine: Machine) -> None:
    (machine.checkout / "bb").write_text('#!/bin/sh\necho bb "$@"\n')
    machine.has("git", "")
    machine.has("apt-get", "exit 100")
    machine.has("sudo", '"$@"')
    done = machine.call(str(machine.checkout / ".ci" / "run"), cwd=machine.programs)
    assert (done.stdout, done.returncode) == ("bb test --version\n", 100)


def test_ci_goes_on_where_there_is_no_apt(machine: Machine) -> None:
    """Tests that cannot do without a program say so themselves."""
    (machine.checkout / "bb").write_text('#!/bin/sh\necho bb "$@"\n')
    done = machine.call(str(machine.checkout / ".ci" / "run"), cwd=machine.programs)
    assert (done.stdout, done.stderr, done.returncode) == ("bb test\nbb proof\n", "", 0)


@pytest.mark.parametrize("script", ["bb", ".ci/run"])
def test_the_scripts_are_executable_and_plain_sh(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    assert (ROOT / script).read_text().startswith("#!/bin/sh\n")
    subprocess.run(["sh", "-n", ROOT / script], check=True)


def files() -> list[Path]:
    """All files of the project, those not yet committed too."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a checkout of git")
    return [path for name in listed.stdout.split("\0") if (path := ROOT / name).is_file()]


@pytest.mark.parametrize("pattern", [REGISTRIES, THIS_MACHINE])
def test_no_file_names_a_registry_or_a_path_of_a_machine(pattern: str) -> None:
    found = files()
    assert ROOT / "bb" in found
    assert [path for path in found if re.search(pattern, path.read_text(errors="replace"))] == []


def test_no_file_has_the_marks_of_a_merge_that_was_not_finished() -> None:
    marks = re.compile("^(<{7}|>{7}) ", re.MULTILINE)
    assert [path for path in files() if marks.search(path.read_text(errors="replace"))] == []


def test_every_rule_of_the_linter_that_is_ignored_says_why() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    section = text[text.index("[tool.ruff.lint]") : text.index("[tool.ruff.lint.pydocstyle]")]
    ignored = re.findall(r'^ {4}"[A-Z]+[0-9]*",.*$', section, re.MULTILINE)
    assert len(ignored) > 20
    assert [line for line in ignored if not re.search(r",\s+# \w", line)] == []


def test_commands_in_messages_are_quoted_for_the_shell() -> None:
    """A name may be any text: `phrases.command` quotes it. The name of a board is a word, and so is
    a number of shards.
    """
    unquoted = []
    for path in [one for top in ("blackboard", "jobs") for one in (ROOT / top).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.JoinedStr) or path.name == "phrases.py":
                continue
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
            commands = re.findall(r"`(?:blackboard|\{\}) [^`]+`", text)
            words = [re.sub(r"^`\{\}|--(board|shards) \{\}", "", one) for one in commands]
            unquoted += [f"{path}:{node.lineno}: {one}" for one in words if "{}" in one]
    assert unquoted == []


def test_no_two_public_classes_of_the_package_have_one_name() -> None:
    """A name is one concept."""
    homes = defaultdict[str, list[str]](list)
    for path in sorted((ROOT / "blackboard").rglob("*.py")):
        for name in re.findall(r"^ *class ([^\W_]\w*)[(:\[]", path.read_text(), re.MULTILINE):
            homes[name].append(str(path.relative_to(ROOT)))
    assert homes["Item"] == ["blackboard/model.py"]
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
