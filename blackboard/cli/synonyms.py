"""What people type who know other tools, and the command or the option that they mean."""

_COMMANDS = {
    "add": ("create", "new"),
    "apply": ("sync",),
    "cancel": ("kill", "stop"),
    "check": ("healthcheck", "probe"),
    "edit": ("change", "modify", "set", "update"),
    "log": ("history", "logs", "runs", "tail"),
    "next": ("schedule", "schedules", "upcoming"),
    "rm": ("del", "delete", "remove"),
    "run": ("exec", "execute", "trigger"),
    "serve": ("dashboard", "server", "ui", "web"),
    "show": ("items", "jobs", "list", "ls", "ps"),
    "types": ("handlers",),
    "why": ("describe", "explain"),
    "worker": ("start", "up", "work"),
}
_OPTIONS = {
    "--at": ("--once", "--when"),
    "--every": ("--interval", "--schedule"),
    "--jobs": ("--handlers", "--module"),
    "--listen": ("--address", "--bind", "--host", "--port"),
    "--processes": ("--workers",),
    "--set": ("--arg", "--args", "--param", "--params"),
    "--slots": ("--concurrency", "--threads"),
    "--stale-after": ("--lease", "--ttl"),
    "--store": ("--database", "--db", "--url"),
    "--tags": ("--labels", "--tag"),
}
MEANT = {word: name for table in (_COMMANDS, _OPTIONS) for name in table for word in table[name]}
