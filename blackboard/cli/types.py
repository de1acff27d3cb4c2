"""`blackboard types`: the types of the jobs, with their defaults and params."""

import click
import msgspec

from blackboard.cli.options import Chosen, cli_command, jobs_option
from blackboard.cli.output import JSON, emit, prints_to_stderr, wrapped
from blackboard.cli.session import Session
from blackboard.display.escaping import shown
from blackboard.display.toml_text import lines_of
from blackboard.handlers.manifest import TypeEntry, described, manifest_of
from blackboard.handlers.params import Params
from blackboard.handlers.registry import shipped
from blackboard.model import replace


@cli_command("""\
Examples:
  blackboard types
  blackboard types --jobs calendars --json
  blackboard types --check
""")
@jobs_option("Instead of those of [board] jobs.")
@click.option(
    "--check", is_flag=True, help="Import the jobs here, and show what they print and raise."
)
def types_command(*, chosen: Chosen, jobs: tuple[str, ...], check: bool) -> int:
    """List the types of the jobs: defaults, params (* must be given), where they are defined."""
    session = Session.start(chosen)
    entries, base = session.entries(jobs)
    with prints_to_stderr(when=chosen.json):
        manifest = described(entries, base) if check else manifest_of(entries, base)
    replace(session, handlers=manifest.handlers).warn_misspelt()
    if chosen.json:
        emit([_record(entry) for entry in manifest.types])
    else:
        nothing = f"no jobs: name some with --jobs or [board] jobs; shipped: {', '.join(shipped())}"
        click.echo("\n\n".join(map(_text, manifest.types)) or nothing)
    return 0


def _record(entry: TypeEntry) -> JSON:
    return {
        "type": entry.type,
        "runs": _runner(entry),
        "defaults": _defaults(entry),
        "params": entry.schema,
        "defined": entry.place,
    }


def _runner(entry: TypeEntry) -> str:
    kind = "a coroutine" if entry.is_async else "in a child process"
    return f"a pump, {kind}" if entry.pump else kind


def _defaults(entry: TypeEntry) -> JSON:
    defaults: JSON = msgspec.to_builtins(entry.spec)
    if entry.pump:  # its partitions have no schedule
        defaults.pop("every", None)
    more = {
        "slots": entry.slots,
        "concurrency": entry.concurrency,
        "key": entry.key,
        "fenced": entry.fenced or None,
        "first": entry.first,
    }
    return defaults | {name: value for name, value in more.items() if value is not None}


def _text(entry: TypeEntry) -> str:
    facts = {
        "runs": _runner(entry),
        "defaults": ", ".join(lines_of(_defaults(entry))),
        "params": ", ".join(Params(schema=entry.schema).summary()) if entry.schema else "",
        "defined": entry.place,
    }
    lines = [wrapped(shown(fact), first=f"  {name:<8}  ") for name, fact in facts.items() if fact]
    return "\n".join([wrapped(shown(entry.type)), *lines])
