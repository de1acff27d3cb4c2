"""`import-crontab`: lines of crontabs as items, scheduled as Debian's cron runs them."""

import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from functools import cache
from time import process_time
from types import SimpleNamespace
from typing import Any

import pytest

from blackboard import crontab
from blackboard.cli import import_crontab
from blackboard.cli.export import item_text
from blackboard.handlers.context import unescaped
from blackboard.schedule.schedule import make_schedule, next_due
from tests.cli.command_line import CommandLine, blackboard, piped

__all__ = ["blackboard"]

pytestmark = pytest.mark.of_one_store("lines become items above the store")

START = datetime(2027, 2, 20, tzinfo=UTC)
DAYS = 16
"""From a February into a March, so that months and their ends are among them."""

EXPRESSIONS = """
* * * * *
*/5 * * * *
*/7 * * * *
0 * * * *
17 * * * *
0 3 * * *
30 2 * * *
05 04 * * *
0 0 * * *
59 23 * * *
0 */2 * * *
0 1-23/2 * * *
15,45 * * * *
0,30 9-17 * * *
0 9-17/4 * * *
*/10 8-18 * * 1-5
*/15 9-17 * * mon-fri
0 9 * * MON
0 9 * * 0
0 9 * * 7
0 9 * * sun
0 6 * * 6,7
0 6 * * 5-7
0 12 * * 1,3,5
0 0 1 * *
0 0 28 * *
0 0 1,15 * *
30 4 1-7 * *
0 5 */3 * *
0 5 2-30/7 * *
0 9 1 * 1
0 9 1,15 * 5
0 9 * * 1-5/2
0 9 */2 * 1
0 9 1 * */2
0 0 1 3 *
0 0 1 mar *
0 0 * feb *
0 0 * 2-3 *
0 0 * JAN,FEB mon
0 0 29 2 *
12 3 27 feb sat
0-5 4 * * *
0-30/10 4 * * *
5-59/20 6 * * *
1,2,3,5-9,20-40/5 7 * * *
@hourly
@daily
@midnight
@weekly
@monthly
""".strip().splitlines()


def test_there_are_fifty_shapes() -> None:
    assert len(set(EXPRESSIONS)) >= 50


WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MONTHS = ("", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
NAMES = {name: n for names in (WEEKDAYS, MONTHS) for n, name in enumerate(names)}
MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
}


def numbers(text: str, low: int, high: int) -> set[int]:
    """A field, as crontab(5) says."""

    def number(word: str) -> int:
        return NAMES[word.lower()] if word.lower() in NAMES else int(word)

    found: set[int] = set()
    for part in text.split(","):
        area, _, step = part.partition("/")
        first, dash, last = area.partition("-")
        if area == "*":
            begin, end = low, high
        else:
            begin = number(first)
            end = number(last) if dash else high if step else begin
        found |= set(range(begin, end + 1, int(step or 1)))
    return found


@cache
def all_minutes() -> list[datetime]:
    return [START + timedelta(minutes=minute) for minute in range(1, DAYS * 24 * 60)]


def runs_by_the_manual(expression: str) -> list[datetime]:
    """Minute by minute."""
    texts = MACROS.get(expression, expression).split()
    lows, highs = (0, 0, 1, 1, 0), (59, 23, 31, 12, 7)
    minutes, hours, days, months, weekdays = map(numbers, texts, lows, highs)
    weekdays = {one % 7 for one in weekdays}
    either = not (texts[2].startswith("*") or texts[4].startswith("*"))
    found = []
    for now in all_minutes():
        if now.minute not in minutes or now.hour not in hours or now.month not in months:
            continue
        fits = now.day in days, now.isoweekday() % 7 in weekdays
        if any(fits) if either else all(fits):
            found.append(now)
    return found


def imported(line: CommandLine, text: str, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setattr("sys.stdin", piped(text))
    found: list[dict[str, Any]] = json.loads(
        line("import-crontab", "-", "--tz", "UTC", "--json").out
    )
    return found


def test_lines_run_exactly_when_debians_cron_runs_them(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\n".join(f"{one}\t/bin/true {n}" for n, one in enumerate(EXPRESSIONS))
    items = imported(blackboard, text, monkeypatch)
    assert len({one["id"] for one in items}) == len(items) == len(EXPRESSIONS)
    for expression, item in zip(EXPRESSIONS, items, strict=True):
        schedule = make_schedule(cron=item["cron"], zone=item["timezone"])
        assert schedule is not None
        found, last = [], START
        while (slot := next_due(schedule, last)) and slot < START + timedelta(days=DAYS):
            found.append(slot)
            last = slot
        assert found == runs_by_the_manual(expression), expression


CRONTAB = r"""
# Edit this file to introduce tasks to be run by cron.
#
# m h  dom mon dow   command
PATH = "/usr/bin:/bin"
MAILTO=ops@example.org
GREETING='good ${MORNING}'

# Nightly backup
#   of the database
30 2 * * * /usr/local/bin/backup.sh --all
#0 3 * * * old-job
@daily cat%Hello,%it is 100\% done
@reboot /usr/bin/start-me
CRON_TZ=America/New_York
SHELL=/bin/bash
HOME=/srv
0 9 1,15 * 1 cd /srv && FOO=bar /opt/report.sh ${HOME}
0 10 * * * /opt/report.sh
"""


def test_what_else_a_crontab_says(blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    backup, cat, report, again = imported(blackboard, CRONTAB, monkeypatch)
    assert (backup["id"], backup["description"], backup["owner"]) == (
        "nightly-backup-of-the-database",
        "Nightly backup of the database",
        "ops@example.org",
    )
    env = {
        "PATH": "/usr/bin:/bin",
        "MAILTO": "ops@example.org",
        "GREETING": "good $${MORNING}",
    }
    assert backup["params"] == {
        "command": "/usr/local/bin/backup.sh --all",
        "shell": True,
        "env": env,
    }
    done = subprocess.run(
        ["/bin/sh", "-c", unescaped(cat["params"]["command"])], capture_output=True, check=True
    )
    assert done.stdout == b"Hello,\nit is 100% done\n"
    assert (report["id"], again["id"]) == ("report", "report-2")
    assert (backup["timezone"], report["timezone"]) == ("UTC", "America/New_York")
    assert report["params"]["cwd"] == "/srv"
    assert report["params"]["command"] == [
        "/bin/bash",
        "-c",
        "cd /srv && FOO=bar /opt/report.sh $${HOME}",
    ]


def test_reboot_is_explained_and_left_out(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", piped("@reboot x\n@daily y\n"))
    said = blackboard("import-crontab", "-")
    assert "-:1: @reboot is left out: a board has no host that starts" in said.err
    assert said.out.count("[[items]]") == 1


def test_every_line_that_cannot_be_taken_is_named(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        "17 * * * * root cd / && run-parts --report /etc/cron.hourly",
        "61 * * * * x",
        "0 3 * *",
        "@daily",
        "@sometimes x",
        "CRON_TZ=Mars/Olympus",
        "0 0 30 2 * never",
        "0 3 * * * fine",
    ]
    monkeypatch.setattr("sys.stdin", piped("\n".join(lines)))
    said = blackboard("import-crontab", "-", code=2)
    assert said.out == ""
    told = said.err.splitlines()
    assert [line.partition(" -:")[2].partition(":")[0] for line in told] == list("1234567")
    assert "'root' is a user, as in /etc/crontab (take the lines of one user by --user" in told[0]


def test_what_many_lines_have_in_common_is_said_once(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["0 1 * * * root /a", "0 2 * * * www:www /b", "0 3 * * * root /c", "0 4 * * * root /d"]
    monkeypatch.setattr("sys.stdin", piped("\n".join(lines)))
    told = blackboard("import-crontab", "-", code=2).err.splitlines()
    assert [line.partition(" -:")[2].partition(" is a")[0] for line in told] == [
        "1,3,4: user: 'root'",
        "2: user: 'www:www'",
    ]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/ruby -w /srv/jobs/check_disks.rb now", "check-disks-now"),
        ("source /srv/env && cd /srv/app && python3 cleanup.py >> /log", "cleanup"),
        ("test -x /sbin/anacron || ( cd / && run-parts --report /etc/x.d )", "run-parts"),
        ('if [ -x /x ] && [ "$(date +\\%u)" -le 5 ]; then /usr/bin/scan --all; fi', "scan"),
        ("flock -n /tmp/lock timeout 60 python3 -m app.tasks.sync --full", "app-tasks-sync"),
        ("flock -n /tmp/lock /srv/backup.sh", "backup"),
        ("sudo -E -u www timeout -k 5 1h ./report.py", "report"),
        ("A=b; PATH=/bin; { ./sync; }", "sync"),
        ("(cd /srv)&&./sync", "sync"),
        ("test -f /x >/dev/null && ./sync", "sync"),
        ("for f in /srv/*; do gzip $f; done", "gzip"),
        ("node -r dotenv/config dist/report.js", "report"),
        ("python3 -W ignore report.py", "report"),
        ("nice", "nice"),
        (
            "sudo -u www A=b nice -n 19 ionice -c3 php artisan schedule:run",
            "artisan-schedule-run",
        ),
        ("bundle exec rake db:trim", "rake-db-trim"),
        ("python manage.py clearsessions", "manage-clearsessions"),
        ("certbot renew --quiet", "certbot-renew"),
        ("python3 -c 'import this'", "python3"),
        ("bash -lc 'cd /srv; make'", "bash"),
        ("cd /srv", "cd"),
        ("echo 'it is > /tmp/x", "echo"),
        ("env", "env"),
        ("(", "job"),
    ],
)
def test_an_id_is_the_name_of_what_a_command_runs(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    [item] = imported(blackboard, f"0 3 * * * {command}\n", monkeypatch)
    assert item["id"] == name


@pytest.mark.parametrize("expression", ["5/15 * * * *", "0 0 1 */2,1/2 *", "0 3 * * mon/2"])
def test_a_step_after_a_single_number_is_refused_as_by_debians_cron(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, expression: str
) -> None:
    monkeypatch.setattr("sys.stdin", piped(f"{expression} /x\n"))
    assert "a step after a single number" in blackboard("import-crontab", "-", code=2).err


@pytest.mark.parametrize(
    ("named", "linked", "written", "zone"),
    [
        (":Europe/Berlin", "Asia/Tokyo", "Asia/Seoul", "Asia/Tokyo"),
        ("EST5EDT,M3.2.0,M11.1.0", "", "Asia/Seoul", "Asia/Seoul"),
        (":Asia/Tokyo", "Asia/Tokyo", "", "Asia/Tokyo"),
        ("Europe/Berlin", "", "", "Europe/Berlin"),
        ("/usr/share/zoneinfo/Europe/Berlin", "", "", "Europe/Berlin"),
        ("\udcff", "Asia/Tokyo", "", "Asia/Tokyo"),
        ("", "Asia/Tokyo", "Asia/Seoul", "Asia/Tokyo"),
        ("", "", "Asia/Seoul\n", "Asia/Seoul"),
        ("", "", "", "UTC"),
    ],
)
def test_the_zone_is_that_of_this_host_or_a_warning_says_that_it_is_not_known(
    blackboard: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    *,
    named: str,
    linked: str,
    written: str,
    zone: str,
) -> None:
    localtime = blackboard.folder / "localtime"
    if linked:
        localtime.symlink_to(blackboard.folder / "zoneinfo" / linked)
    else:
        localtime.touch()  # as where a container is given this file alone
    monkeypatch.setenv("TZ", named)
    monkeypatch.setattr(crontab, "LOCALTIME", localtime)
    monkeypatch.setattr(crontab, "TIMEZONE", blackboard.write(written, "timezone"))
    monkeypatch.setattr("sys.stdin", piped("0 3 * * * /usr/bin/a\n"))
    said = blackboard("import-crontab", "-", "--json")
    assert said.json[0]["timezone"] == zone
    assert ("nothing here says how the zone of this host is called" in said.err) == (zone == "UTC")
    is_other = bool(named) and not named.endswith(zone)
    assert (f"cron runs in {zone}" in said.err) == is_other
    assert (f"{zone} is taken; --tz names another" in said.err) == (is_other or zone == "UTC")


@pytest.mark.parametrize(
    "named", [":{0}/localtime", "{0}/zoneinfo/Asia/Tokyo", ":Asia/Tokyo", "Japan"]
)
def test_another_name_of_the_zone_of_this_host_is_no_other_zone(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    zones, localtime = blackboard.folder / "zoneinfo", blackboard.folder / "localtime"
    (zones / "Asia").mkdir(parents=True)
    for name in ("Asia/Tokyo", "Japan"):
        (zones / name).write_bytes(b"JST-9")
    localtime.symlink_to(zones / "Asia/Tokyo")
    monkeypatch.setattr("zoneinfo.TZPATH", (str(zones),))
    monkeypatch.setenv("TZ", named.format(blackboard.folder))
    monkeypatch.setattr(crontab, "LOCALTIME", localtime)
    monkeypatch.setattr(crontab, "TIMEZONE", blackboard.folder / "timezone")
    monkeypatch.setattr("sys.stdin", piped("0 3 * * * /usr/bin/a\n"))
    said = blackboard("import-crontab", "-", "--json")
    assert (said.json[0]["timezone"], said.err) == ("Asia/Tokyo", "")


def test_a_program_with_a_user_of_its_name_is_no_user(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = [SimpleNamespace(pw_name=name) for name in ("git", "deploy")]
    monkeypatch.setattr("pwd.getpwall", lambda: users)
    monkeypatch.setattr("shutil.which", {"git": "/usr/bin/git"}.get)
    assert imported(blackboard, "0 3 * * * git pull\n", monkeypatch)[0]["id"] == "git-pull"
    monkeypatch.setattr("sys.stdin", piped("0 3 * * * deploy run.sh\n"))
    assert "'deploy' is a user" in blackboard("import-crontab", "-", code=2).err


@pytest.mark.parametrize(
    "command",
    ["if [ -x /x ]; then /x; fi", "[ -x /x ] && /x", "cd /srv && ./x", "(/x; /y)"],
)
def test_what_stands_before_a_command_of_the_shell_is_a_user_of_another_host(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("sys.stdin", piped(f"*/5 * * * * munin-node {command}\n"))
    said = blackboard("import-crontab", "-", code=2).err
    assert "'munin-node' is a user, as in /etc/crontab (take the lines of one user by" in said


def test_a_user_may_have_the_name_of_a_program(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", piped("* * * * * root /x\n0 3 * * * test /usr/bin/x\n"))
    said = blackboard("import-crontab", "-", code=2).err
    assert "'root' is a user" in said
    assert "'test' is a user" in said


WORDS_OF_SHELLS = r"""
0 3 * * * if [ -x /x ]; then /x; fi
0 3 * * * if cd /srv; then make; fi
0 3 * * * while [ -e /tmp/l ]; do sleep 1; done; /x
0 3 * * * until [ -e /x ]; do sleep 1; done
0 3 * * * command cd /srv && ./x
0 3 * * * time (/x; /y)
"""


def test_a_word_of_the_shell_is_no_user(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And makes none of what begins another line."""
    monkeypatch.setattr("shutil.which", {}.get)
    text = WORDS_OF_SHELLS + "0 4 * * * node /srv/app.js\n"
    assert len(imported(blackboard, text, monkeypatch)) == 7
    monkeypatch.setattr("sys.stdin", piped(text + "0 5 * * * root /x\n"))
    told = blackboard("import-crontab", "-", code=2).err.splitlines()
    assert [line.partition(" -:")[2].partition(":")[0] for line in told] == ["8", "9"]


SYSTEM = "17 * * * * munin /usr/bin/a\n25 6 * * * munin /usr/bin/b\n"


def test_a_file_of_the_systems_cron_has_a_user_on_every_line(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blackboard.cli.import_crontab.SYSTEM", re.compile(r".*/cron\.d/\w+"))
    (blackboard.folder / "cron.d").mkdir()
    file = blackboard.write(SYSTEM.replace("munin /usr/bin/b", "ls /tmp"), "cron.d/x")
    said = blackboard("import-crontab", str(file), code=2).err
    assert "'munin' is a user" in said
    assert "'ls' is a user" in said


@pytest.mark.parametrize("file", ["/etc/crontab", "/etc/cron.d/munin"])
def test_the_files_of_the_systems_cron_are_known_by_their_paths(file: str) -> None:
    assert import_crontab.SYSTEM.fullmatch(file)


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        (SYSTEM, True),
        (SYSTEM.replace("/usr/bin/", "ls "), True),
        (SYSTEM.replace("munin /usr/bin/b", "/usr/bin/b"), True),
        (SYSTEM.replace("munin", "ls"), False),
        (SYSTEM.replace("munin", "exec"), False),
        (SYSTEM.replace("/usr/bin/", "--all "), False),
        (SYSTEM.replace("munin /usr/bin/b", "gitlab:git /usr/bin/b"), True),
        (SYSTEM.partition("\n")[0], True),
    ],
)
def test_what_a_command_begins_with_may_be_a_user_of_another_host(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, text: str, *, warned: bool
) -> None:
    commands = {"ls": "/bin/ls"}
    monkeypatch.setattr("shutil.which", commands.get)
    monkeypatch.setattr("sys.stdin", piped(text))
    said = blackboard("import-crontab", "-").err
    may_be = "what may be a user begins a command ('munin'"
    assert (may_be in said and "if so, take the lines of one user by --user" in said) == warned


def test_one_line_with_a_user_makes_the_file_a_crontab_of_the_system(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its lines is named, also where what follows the user is of another host. A program of
    this host is a user only where all lines are alike.
    """
    monkeypatch.setattr("shutil.which", {"ls": "/bin/ls", "git": "/bin/git"}.get)
    monkeypatch.setattr("sys.stdin", piped("5 * * * * root /usr/bin/a\n5 * * * * git /usr/bin/b\n"))
    assert ":2: user: 'git' is a user" in blackboard("import-crontab", "-", code=2).err
    lines = ["root /usr/bin/a", "munin munin-cron --all", "gitlab:git /usr/bin/b", "ls /tmp", "/x"]
    monkeypatch.setattr("sys.stdin", piped("\n".join(f"5 * * * * {one}" for one in lines)))
    told = blackboard("import-crontab", "-", code=2).err.splitlines()
    assert [line.partition(" -:")[2].split()[:3] for line in told] == [
        ["1:", "user:", "'root'"],
        ["2:", "user:", "'munin'"],
        ["3:", "user:", "'gitlab:git'"],
    ]


def test_what_other_crons_know(blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "RANDOM_DELAY=45\n-*/15 * * * * -n -q /usr/bin/a\nRANDOM_DELAY=0\n@daily /usr/bin/b\n"
    a, b = imported(blackboard, text, monkeypatch)
    assert (a["cron"], a["jitter"], a["params"]) == (
        "*/15 * * * *",
        "45m",
        {"command": "/usr/bin/a", "shell": True, "env": {"RANDOM_DELAY": "45"}},
    )
    assert "jitter" not in b


def test_commands_see_the_variables_that_cron_reads(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But cron itself says who the user is, whatever the crontab says."""
    settings = "MAILTO=ops@example.org\nSHELL=/bin/sh\nLOGNAME=nobody\nUSER=me\n"
    [item] = imported(blackboard, settings + '@daily mail -s up "$MAILTO"\n', monkeypatch)
    env = {"MAILTO": "ops@example.org", "SHELL": "/bin/sh", "USER": "me"}
    assert item["params"]["env"] == env
    assert item["owner"] == env["MAILTO"]


@pytest.mark.parametrize("value", ["'", '"a', "'a\"", '"a" b', "'a' 'b'"])
def test_a_quote_of_a_variable_that_does_not_end_with_its_value_is_refused_as_by_cron(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setattr("sys.stdin", piped(f"\nWORD = {value}\n@daily /usr/bin/a\n"))
    told = blackboard("import-crontab", "-", code=2).err
    assert "-:2: line: the quote at the beginning of WORD does not end with it" in told
    [item] = imported(blackboard, f"WORD=a {value}\n@daily /usr/bin/a\n", monkeypatch)
    assert item["params"]["env"] == {"WORD": f"a {value}"}


@pytest.mark.parametrize("given", ["", "%b", '%b"', '%b" }'])
def test_a_quote_of_a_command_that_does_not_end_is_left_to_the_shell(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    [item] = imported(blackboard, f'@daily echo "a{given}\n', monkeypatch)
    done = subprocess.run(
        ["/bin/sh", "-c", unescaped(item["params"]["command"])], capture_output=True, check=False
    )
    assert done.returncode != 0
    assert done.stdout == b""


def test_a_zone_that_is_the_commands_alone_is_warned_of(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some crons take TZ as the zone of the lines below."""

    def told(text: str) -> bool:
        monkeypatch.setattr("sys.stdin", piped(f"{text}\n0 3 * * * /usr/bin/a\n"))
        said = blackboard("import-crontab", "-", "--tz", "UTC").err
        return "TZ=Asia/Tokyo is a variable of the commands" in said and "write CRON_TZ" in said

    assert told("TZ=Asia/Tokyo")
    assert not told("TZ=UTC")
    assert not told("TZ=Asia/Tokyo\nCRON_TZ=Asia/Tokyo")


ANACRONTAB = """
START_HOURS_RANGE=3-22
# period in days   delay in minutes   job-identifier   command
1\t5\tcron.daily\t\tnice run-parts /etc/cron.daily
@monthly 45\tcron.monthly\t\tnice run-parts /etc/cron.monthly
"""


def test_an_anacrontab_is_refused(blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", piped(ANACRONTAB))
    told = blackboard("import-crontab", "-", code=2).err.splitlines()
    assert [line.partition(" -:")[2].partition(":")[0] for line in told] == ["4,5"]
    assert all(
        "this is a line of an anacrontab: its second column is a delay" in one for one in told
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0 3 * * * /usr/bin/x \\\n", ":1: line: it ends in a backslash: cron joins no lines"),
        ("  --more\n", ":1: line: '--more' has no command"),
        ("0 3 * * * /x\r5 3 * * * /y\r", ":1: line: it has a carriage return"),
        ("# backup\r0 3 * * * /x\r\n", ":1: line: it has a carriage return"),
    ],
)
def test_lines_end_where_crons_lines_end(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    monkeypatch.setattr("sys.stdin", piped(text))
    assert problem in blackboard("import-crontab", "-", code=2).err


def test_an_even_number_of_backslashes_is_the_commands(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    [item] = imported(blackboard, "0 3 * * * echo \\\\\r\n", monkeypatch)
    assert item["params"]["command"] == "echo \\"


def test_a_delay_that_no_item_can_have_is_named(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", piped("RANDOM_DELAY=99999999\n@daily /usr/bin/a\n"))
    assert "-:1: RANDOM_DELAY: " in blackboard("import-crontab", "-", code=2).err


ART = """
# Example of job definition:
# .---------------- minute (0 - 59)
# |  .------------- hour (0 - 23)
# |  |
# Nightly
0 3 * * * /usr/bin/a
# ┌───────────── minute (0–59)
# │ ┌─────────── hour (0–23)
0 4 * * * /usr/bin/b
# *  *  *  *  *
0 5 * * * /usr/bin/c
# ---- backups ----
0 6 * * * /usr/bin/d
##### Reports #####
# -----------------
0 7 * * * /usr/bin/e
# vim: ft=crontab
0 8 * * * /usr/bin/f
#*/5 * * * * /usr/bin/old
0 9 * * * /usr/bin/g
"""


def test_a_drawing_is_no_description(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = imported(blackboard, ART, monkeypatch)
    assert [one["id"] for one in found] == ["nightly", "b", "c", "backups", "reports", "f", "g"]
    assert [one.get("description") for one in found[3:5]] == ["backups", "Reports"]


@pytest.mark.parametrize("from_file", [False, True])
def test_text_that_is_older_than_utf_8_is_read_in_comments_and_named_in_lines(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, *, from_file: bool
) -> None:
    def answer(data: bytes, *, code: int = 0) -> Any:
        (blackboard.folder / "old.crontab").write_bytes(data)
        monkeypatch.setattr("sys.stdin", piped(data))
        file = "old.crontab" if from_file else "-"
        return blackboard("import-crontab", file, "--json", code=code)

    found = answer(b"# caf\xe9\n@daily /usr/bin/a\n").json
    assert (found[0]["id"], found[0]["description"]) == ("caf\u00e9", "caf\u00e9")
    said = answer(b"@daily x\n@daily echo caf\xe9\n@daily echo \0\n", code=2).err.splitlines()
    assert ":2: line: it is not UTF-8 text (save the file as UTF-8)" in said[0]
    assert ":3: line: it has a NUL" in said[1]


@pytest.mark.parametrize(
    ("command", "printed"),
    [("cat <<EOF%a%EOF", b""), ("cat; cat <<'X'%b", b"b\n"), ("cat # <<X%b%X", b"b\nX\n")],
)
def test_a_here_document_of_a_command_is_empty(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str, printed: bytes
) -> None:
    """As to cron: the command is one line, and its input begins behind it."""
    [item] = imported(blackboard, f"@daily {command}\n", monkeypatch)
    done = subprocess.run(
        ["/bin/sh", "-c", unescaped(item["params"]["command"])], capture_output=True, check=True
    )
    assert done.stdout == printed


def test_a_home_that_is_empty_is_no_folder(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    [item] = imported(blackboard, "HOME=\n@daily a\n", monkeypatch)
    assert item["params"] == {"command": "a", "shell": True, "env": {"HOME": ""}}


@pytest.mark.parametrize("name", ["TZ", "CRON_TZ"])
def test_a_zone_in_the_line_of_a_command_is_refused(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Cron would take the whole line for a variable, and run nothing."""
    monkeypatch.setattr("sys.stdin", piped(f"\n{name}=Asia/Tokyo 0 3 * * * /usr/bin/a\n"))
    said = blackboard("import-crontab", "-", code=2).err
    assert f"-:2: {name}: 'Asia/Tokyo 0 3 * * * /usr/bin/a' is more than a zone" in said
    assert f"(write {name}=Asia/Tokyo in a line of its own)" in said


@pytest.mark.parametrize("shell", ["", "SHELL=/bin/bash\n", "SHELL='/bin/my shell'\n"])
def test_the_input_of_a_command_is_given_by_sh_whatever_its_shell_is(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    """A blank after a backslash is of the command, and joins no lines."""
    text = f"{shell}@daily printf '[\\%s]' \"$(cat)\" x\\ %it's\n"
    [item] = imported(blackboard, text, monkeypatch)
    command = unescaped(item["params"]["command"]).replace("'/bin/my shell'", "/bin/sh")
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=True)
    assert done.stdout == b"[it's][x ]"


BACKSLASHES = r"""
@daily printf '[\%s]' 'a\\b' 'c\\\\d' 'e\\\%f' 'g\%h'
@daily (printf '[\%s]' 'i\\j'; cat) %in\\put \\% \% \\\% x\ny
@daily printf '[\%s]' x\\%after
@daily (printf '[k]'; cat) %
@daily (printf '[k]'; cat) %a%
@daily (printf '[k]'; cat) %%
"""
BLANKS = "@daily cat; printf '[%s]' x\\  \t% a \t \n"
"""Behind the command, and in its input."""


def test_backslashes_and_the_input_of_a_command_are_as_debians_cron_has_them(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", piped(BACKSLASHES + BLANKS.replace("%s", r"\%s")))
    said = blackboard("import-crontab", "-", "--json")
    assert "-:2, 3, 4: `\\\\` in a command is a `\\`" in said.err
    printed = [
        subprocess.run(
            ["/bin/sh", "-c", unescaped(item["params"]["command"])],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        ).stdout
        for item in said.json
    ]
    assert printed == [
        rb"[a\b][c\\d][e\%f][g%h]",
        rb"[i\j]in\\put \% % \\% x\ny" + b"\n",
        rb"[x\]",
        b"[k]",
        b"[k]a\n",
        b"[k]\n",
        b" a \t \n[x ]",
    ]


@pytest.mark.parametrize("name", ["E-1", "app.mode", "19E", "A:B", "/x"])
def test_a_variable_may_have_any_name_without_blanks(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    [item] = imported(blackboard, f"{name} = x y\n@daily env\n", monkeypatch)
    assert item["params"]["env"] == {name: "x y"}
    blackboard("apply", blackboard.write(item_text(item), "made.toml").name)


def test_a_comment_may_have_what_no_label_has(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And MAILTO."""
    text = 'MAILTO="a@b,\tc\u2028"\n# back\N{RIGHT-TO-LEFT OVERRIDE}\u2028up\n@daily x\n'
    [item] = imported(blackboard, text, monkeypatch)
    assert (item["description"], item["owner"]) == ("back up", "a@b, c")
    blackboard("apply", blackboard.write(item_text(item), "made.toml").name)


def test_thousands_of_lines_of_one_program_have_ids_of_their_own(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a time that grows with their number, and not with its square."""
    lines = ["# x-3\n0 3 * * * x"] + ["0 3 * * * /usr/bin/x"] * 2_999
    begun = process_time()
    found = imported(blackboard, "\n".join(lines), monkeypatch)
    assert process_time() - begun < 1
    ids = [one["id"] for one in found]
    assert ids[:5] == ["x-3", "x", "x-2", "x-4", "x-5"]
    assert len(set(ids)) == len(lines)


def test_what_is_written_is_applied(blackboard: CommandLine) -> None:
    blackboard.write(CRONTAB, "my.crontab")
    said = blackboard("import-crontab", "my.crontab", "--tz", "Europe/Berlin").out
    file = blackboard.write(said, "crontab.toml")
    assert "4 to add" in blackboard("apply", file.name).out
    assert blackboard("apply", file.name).out == "nothing to do: 4 items as declared\n"
    backup = blackboard.item("nightly-backup-of-the-database")
    assert (backup.schedule, backup.timezone) == ("cron 30 2 * * *", "Europe/Berlin")


@pytest.mark.parametrize(
    "line",
    [
        "0 */5 * * * * /usr/bin/php artisan x",
        "* * * * * * /usr/bin/x",
        "0 0 12 1 1 ? /usr/bin/x",
        "0 30 9 * * 1-5 /usr/bin/x",
        "0 30 9 * * */2 /usr/bin/x",
        "0 30 9 * * MON-FRI /usr/bin/x",
        "0 30 9 * * 1 /usr/bin/x",
    ],
)
def test_a_line_of_six_fields_is_refused(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """Cron would run the sixth as the command: of a star, the first file of a folder."""
    monkeypatch.setattr("sys.stdin", piped(f"{line}\n0 3 * * * 7z a x\n"))
    said = blackboard("import-crontab", "-", code=2).err
    assert f"-:1: line: six fields: {line.split()[5]!r} is where the command belongs" in said
    assert "-:2:" not in said
    monkeypatch.setattr("sys.stdin", piped(line.replace(" /", " root /")))
    said = blackboard("import-crontab", "-", "--user", "root", code=2).err
    assert f"six fields: {line.split()[5]!r} is where the user belongs" in said


OF_SYSTEM = """\
SHELL=/bin/bash
# Rotate
0 0 * * * root -n newsyslog
17 * * * * operator:wheel /usr/libexec/save-entropy
# Of no one here
61 * * * * www /usr/bin/bad
@daily root:wheel /usr/bin/nightly
@reboot root /usr/bin/a
@reboot www /usr/bin/b
*/5 * * * *\tmunin\tmunin-cron --all
"""


def test_the_lines_of_one_user_are_taken_from_a_crontab_of_the_system(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", piped(OF_SYSTEM))
    answer = blackboard("import-crontab", "-", "--user", "root", "--json")
    found = {item["id"]: (item["cron"], item["params"]["command"]) for item in answer.json}
    shell = ["/bin/bash", "-c"]
    assert found == {
        "rotate": ("0 0 * * *", [*shell, "newsyslog"]),
        "nightly": ("@daily", [*shell, "/usr/bin/nightly"]),
    }
    assert "left out are 4 lines of other users (munin, operator, www)" in answer.err
    assert "-:9: @reboot" not in answer.err
    assert "-:8: @reboot" in answer.err


def test_a_user_whom_no_line_names_is_refused(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As all lines of a crontab that names none would be left out."""
    monkeypatch.setattr("sys.stdin", piped("0 3 * * * backup.sh --all\n"))
    refused = blackboard("import-crontab", "-", "--user", "root", code=2).err
    assert "user: no line of - is of 'root': the sixth words are backup.sh" in refused


def test_a_line_that_names_a_user_alone_has_no_command(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", piped("0 3 * * * root\n"))
    said = blackboard("import-crontab", "-", "--user", "root", code=2).err
    assert "-:1: line: '0 3 * * * root' has no command" in said


@pytest.mark.parametrize("line", ["0 3 * * * -n ", "@daily -q -s  ", "0 3 * * * %in", "@daily % a"])
def test_a_line_with_flags_or_input_alone_has_no_command(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr("sys.stdin", piped(f"{line}\n"))
    said = blackboard("import-crontab", "-", code=2).err
    assert f"-:1: line: {line!r} has no command" in said


@pytest.mark.parametrize(
    ("expression", "cron", "jitter"),
    [
        ("~ 5 * * *", "0 5 * * *", "59m"),
        ("10~20 * * * *", "10 * * * *", "10m"),
        ("0 2~5 * * *", "0 2 * * *", "180m"),
        ("~ ~ 1 * *", "0 0 1 * *", "1439m"),
        ("30~ ~6 * * 1", "30 0 * * 1", "389m"),
    ],
)
def test_a_time_of_chance_is_the_first_with_a_jitter(
    blackboard: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    expression: str,
    cron: str,
    jitter: str,
) -> None:
    """As OpenBSD has it."""
    [item] = imported(blackboard, f"{expression} /usr/bin/a\n", monkeypatch)
    assert (item["cron"], item["jitter"]) == (cron, jitter)
    [item] = imported(blackboard, f"RANDOM_DELAY=5\n{expression} /usr/bin/a\n", monkeypatch)
    assert item["jitter"] == f"{int(jitter[:-1]) + 5}m"


@pytest.mark.parametrize(
    "expression", ["5~70 * * * *", "9~2 * * * *", "0 5 ~ * *", "~/15 * * * *", "H/15 * * * *"]
)
def test_a_time_of_chance_that_no_jitter_is_is_refused(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, expression: str
) -> None:
    monkeypatch.setattr("sys.stdin", piped(f"{expression} /usr/bin/a\n"))
    said = blackboard("import-crontab", "-", code=2).err
    assert "-:1: cron: " in said
    assert "write a fixed number, or * before a step; jitter spreads items" in said
