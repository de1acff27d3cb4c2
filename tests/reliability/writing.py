"""docs/reliability.md, made of the figures that were kept, the cases and the bugs."""

import textwrap
from collections.abc import Iterator, Mapping

from tests.reliability import telling
from tests.reliability.bugs import bugs_table
from tests.reliability.measured import ROOT, Figures, Measured, kept
from tests.reliability.promises import PROMISES
from tests.reliability.shown import cases_table

PAGE = ROOT / "docs" / "reliability.md"
WIDTH = 100


def whole_page() -> str:
    """Takes some seconds: all tests are collected for the table of the cases."""
    return page(kept(), cases=cases_table(), bugs=bugs_table())


def page(measured: Mapping[str, Measured], *, cases: str, bugs: str) -> str:
    """All of it, with the two tables that are not figures."""
    figures = {part: one.figures for part, one in measured.items()}
    sources = {part: telling.source(one) for part, one in measured.items()}
    parts = [
        *opening(),
        *promises(figures["worlds"], figures["calm"]),
        *tested(),
        *simulator(figures, sources),
        *model(figures["model"], sources["model"]),
        *histories(figures["histories"], sources["histories"]),
        *chaos(figures["chaos"], sources["chaos"]),
        *mutants(figures["mutants"], sources["mutants"]),
        *again(),
        *found(bugs),
        *situations(cases),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def prose(text: str) -> str:
    """One paragraph, however it is broken here."""
    return textwrap.fill(
        " ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False
    )


def opening() -> Iterator[str]:
    yield "# Reliability"
    yield prose("""
        Whether you can trust this scheduler: what it promises, how each promise is tested, and what
        the tests came to. Nobody writes this page by hand. `python -m tests.reliability write`
        makes it of the figures that `python -m tests.reliability measure` has left, and a test
        fails when it says anything else. Figures stand with the commit that they were measured on.
    """)


def promises(worlds: Figures, calm: Figures) -> Iterator[str]:
    yield "## What is promised, and what is not"
    yield "\n".join(f"- {one.says}" for one in PROMISES)
    yield prose("""
        Not promised: that two handlers of an item never overlap. A machine that stood still wakes
        too late, and nothing can tell it so in time. `ctx.fence` is a handler's means
        against it, and a type declared `fenced=True` drops what comes late. So it is measured
        instead. In simulated worlds, where everything goes wrong all the time, and in others where
        nothing does:
    """)
    yield telling.overlap(worlds, calm)
    yield prose("""
        Nor is it promised that the machine keeps what it said it wrote. By default SQLite may lose
        the last commits when the power fails (each whole), and `?synchronous=full` waits for the
        disk. Azure itself was never asked: its tables are tested on Azurite, behind a proxy that
        does them harm; [azure.md](azure.md) says what that cannot show.
    """)


def tested() -> Iterator[str]:
    yield "## How each promise is tested"
    yield prose("""
        The simulator runs the real workers under a virtual clock over a network that fails, and
        looks at every single write; it names a violation by its kind. The model is the protocol in
        small, searched to the end; its invariants have names. Histories are what sixteen clients
        saw of a real store, held against a lock as it would be if everybody took turns. Chaos is
        real processes that are killed, stopped, starved and cut off.
    """)
    yield telling.promises()


def simulator(figures: Mapping[str, Figures], sources: Mapping[str, str]) -> Iterator[str]:
    yield "## Simulated worlds"
    yield prose("""
        Each seed is another world: one worker or a dozen, few items or many, calm networks and bad
        ones. Workers are killed, stand still for up to a hundred leases, are redeployed; clocks are
        off by years, drift and jump; requests and replies are lost, batches land late, the store
        is busy, away or cut off; people add, edit, pause, run, unlock and remove items meanwhile.
        Then troubles end, and everything that is due has to start: what is ready for a cycle and
        ten seconds at three looks in a row, and a slot is free for it, is stuck. In worlds where
        nothing goes wrong, somebody looks for that all the time.
    """)
    yield telling.worlds(figures["worlds"])
    yield telling.went_wrong(figures["worlds"])
    yield sources["worlds"]
    yield prose(f"""
        Without faults, {round(figures["calm"]["worker_hours"]):,} worker-hours had
        {len(figures["calm"]["violations"])} violations, {figures["calm"]["overrides"]} overrides
        and {figures["calm"]["overlaps"]} overlaps.
    """)
    yield sources["calm"]
    yield "### Planted bugs"
    yield prose("""
        Tests that find nothing may be blind. So the protocol is broken on purpose, in one way at a
        time, and the simulator has to find out: in small crowded worlds, where everything happens
        every few seconds. A bug counts as found in a world in which nothing is wrong with the
        protocol as it is.
    """)
    yield telling.planted_in_short(figures["planted"])
    yield telling.planted(figures["planted"])
    yield sources["planted"]


def model(figures: Figures, source: str) -> Iterator[str]:
    yield "## The model"
    yield prose("""
        All that two or three workers and one or two people can do to an item or two, in every
        order, with answers lost, batches late, workers dead and locks stale, as often as the bounds
        say. No world that can be reached breaks anything:
    """)
    yield telling.searches(figures)
    yield prose(f"""
        The protocol has {telling.CONDITIONS} conditions. With any of them left out something
        breaks, so none is there for nothing; `tests/model/conditions.py` says what each is:
    """)
    yield telling.conditions(figures)
    yield source


def histories(figures: Figures, source: str) -> Iterator[str]:
    yield "## Checked histories"
    yield prose("""
        Sixteen clients claim, renew, release, override, unlock and read; in every second history
        replies are lost. An order of all operations has to be found in which a lock with a fence
        would have answered the same. It was found for each:
    """)
    yield telling.histories(figures)
    damaged = figures["planted"]
    yield prose(f"""
        Of histories that were damaged on purpose, in {damaged["ways"]} ways, {damaged["found"]} of
        {damaged["planted"]} were found out.
    """)
    yield source


def chaos(figures: Figures, source: str) -> Iterator[str]:
    yield "## Real chaos"
    yield prose("""
        Eight real workers, to which everything happens at once: SIGKILL every other second,
        SIGSTOP for up to three leases, clocks that are an hour off and jump by a day; on Azurite a
        proxy, too, that loses replies, answers 503 and cuts them off. Then the board, its
        history and what the handlers themselves have written down have to agree. Overlaps are
        counted, not forbidden. A storm in which less than 80 % of what was due is done counts as
        failed.
    """)
    yield telling.chosen(telling.STORM, figures["storms"])
    yield prose("""
        And workers that get next to no processor, with handlers that hold the interpreter's lock:
    """)
    yield telling.chosen(telling.STARVED, figures["starved"])
    yield prose(f"""
        With the other tests of chaos (full and failing disks, stores that go away, handlers that
        cannot be stopped): {telling.tests(figures)}
    """)
    yield source


def mutants(figures: Figures, source: str) -> Iterator[str]:
    yield "## Mutants"
    yield prose(f"""
        The rules and the schedules are changed in every small way, and their tests have to notice.
        {telling.mutants(figures)}
    """)
    yield source


AGAIN = """\
./bb test                                              # what every push runs
.venv/bin/python -m tests.reliability measure          # all of this page; --only worlds for a part
.venv/bin/python -m tests.reliability measure --nightly --only histories    # in its long form
.venv/bin/python -m tests.reliability write            # this page
.venv/bin/python -c "from tests.simulator.worlds import *; print(run_worlds(SEED, 1))"
./bb simulate --workers 8 --items 200 --hours 10 --faults all --seed 1
./bb test tests/simulator/test_planted.py              # planted bugs
.venv/bin/python -m tests.model                        # what each condition is good for, as stories
./bb test tests/history --store sqlite
./bb chaos --store sqlite                              # real chaos, for many minutes
.venv/bin/python -m tests.mutants
.venv/bin/python -m tests.reliability.bugs             # brings each bug of the list back"""


def again() -> Iterator[str]:
    yield "## How to see it again"
    yield prose("""
        From a fresh clone, after `./bb test` has made the environment. Worlds need nothing but
        Python; Azurite needs Node; chaos needs `faketime`, `stress-ng` and `fiu-utils`, which
        `.ci/run` installs on Debian. A violation is told with its seed, and the same seed is the
        same world.
    """)
    yield f"```sh\n{AGAIN}\n```"


def found(bugs: str) -> Iterator[str]:
    yield "## Bugs found so far"
    yield prose("""
        Bugs of correctness, the newest first: who or what found each, the last commit that has it
        (none: it was mended before it was committed), and a test that fails when it is brought
        back, which `python -m tests.reliability.bugs NUMBER` does.
    """)
    yield bugs


def situations(cases: str) -> Iterator[str]:
    yield "## Situations"
    yield prose("""
        In these, systems of this kind have been seen to fail. Behind each stands whose tests or
        incident reports it is from; beside it the tests that show that it holds, and where they
        run.
    """)
    yield cases
