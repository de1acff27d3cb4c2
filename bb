#!/bin/sh
# Everything from a fresh checkout, with nothing installed but Python 3.11 and its venv module:
#   ./bb demo           the main job, on one SQLite file
#   ./bb test [ARGS]    format, lint, types, and all tests but the proof; with ARGS only pytest ARGS,
#                       as in ./bb test -n 2 --cov
#   ./bb proof [ARGS]   the proof of docs/reliability.md in its short form; --long takes hours, --record
#                       writes the figures into the page, --only PARTS runs some; the rest goes to pytest
#   ./bb lint           format, lint, types
#   ./bb bench --peers  the figures of docs/performance.md, in ten minutes: --record writes them there
#   ./bb ARGS           blackboard ARGS
# The environment is .venv, made on first use and again when what it is made of changes: of
# requirements.lock, and once tests, linters or the emulator are wanted, of requirements-test.lock too.
set -eu

home=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
venv=$home/.venv
log=$home/.venv.log
python=${PYTHON:-python3}

fail() {
    echo "bb: $1" >&2
    exit 1
}

# What the environment is made of. Its place counts: scripts in it name their own path.
recipe() {
    echo "$home"
    cat "$home/requirements.lock" "$home/pyproject.toml"
}

is_set_up() {
    [ -x "$venv/bin/python" ] && recipe | cmp -s - "$venv/.recipe"
}

has_tests() {
    cmp -s "$home/requirements-test.lock" "$venv/.recipe-test"
}

check_python() {
    version=$("$python" -c 'import platform; print(platform.python_version())' 2>/dev/null) ||
        fail "no Python found as '$python'; install Python 3.11 or newer, or name one: PYTHON=/path/to/python3 ./bb"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "'$python' is Python $version, and 3.11 or newer is needed; name another: PYTHON=/path/to/python3 ./bb"
}

need_venv() {
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "'$python' has no venv module; on Debian or Ubuntu: apt-get install python3-venv"
}

# Says what is done, a dot every second while it is done, and how long it took.
timed() {
    printf 'bb: %s ' "$1" >&2
    shift
    begun=$(date +%s)
    (while sleep 1 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do printf . >&2; done) 9>&- & # they hold no lock
    dots=$!
    code=0
    "$@" >"$log" 2>&1 || code=$?
    kill "$dots" 2>/dev/null || true
    wait "$dots" 2>/dev/null || true
    echo " $(($(date +%s) - begun)) s" >&2
    return "$code"
}

packages() {
    echo "installing $(cat "$@" | grep -c ==) packages into .venv, once"
}

# The locks name all packages there are to install. Without --no-deps pip would look for some of what
# they need by itself: it does not see that `coverage[toml]` is the `coverage` that is locked. As with
# uv, Python compiles a module when it is first imported.
make_with_uv() {
    uv venv --quiet --python "$python" "$venv" &&
        uv pip install --python "$venv" --no-deps --require-hashes -r "$home/requirements.lock" "$@" &&
        uv pip install --python "$venv" --no-deps --no-build-isolation -e "$home"
}

make_with_pip() {
    rm -rf "$venv"
    "$python" -m venv "$venv" &&
        "$venv/bin/python" -m pip install --no-compile --no-deps --require-hashes \
            -r "$home/requirements.lock" "$@" &&
        "$venv/bin/python" -m pip install --no-deps --no-build-isolation -e "$home"
}

# With `-r FILE`, what is in there too.
set_up() {
    check_python
    command -v uv >/dev/null || need_venv
    rm -rf "$venv"
    line=$(packages "$home/requirements.lock" ${2:+"$2"})
    if ! command -v uv >/dev/null || ! timed "$line" make_with_uv "$@"; then
        need_venv
        timed "$line" make_with_pip "$@" || explain
    fi
    mv "$log" "$venv/setup.log"
    recipe >"$venv/.recipe"
}

add_tests() {
    timed "$(packages "$home/requirements-test.lock")" install_tests || explain
    mv "$log" "$venv/setup.log"
}

install_tests() {
    set -- --no-deps --require-hashes -r "$home/requirements.lock" -r "$home/requirements-test.lock"
    if [ -x "$venv/bin/pip" ]; then
        "$venv/bin/python" -m pip install --no-compile "$@"
    else
        uv pip install --python "$venv" "$@"
    fi
}

explain() {
    if grep -Eqi 'connect|certificate|name resolution|timed out|unreachable|proxy|versions: none' "$log"; then
        fail "cannot fetch the packages; check the network or proxy and run it again (details: .venv.log)"
    fi
    fail "cannot install the packages: $(grep -i error "$log" | tail -n 1) (details: .venv.log)"
}

# One after the other: a second `./bb` waits, and finds the environment made. A lock that a process
# holds, not a file that it leaves: it ends with the process.
begin_setup() {
    exec 9>"$home/.venv.lock"
    "$python" -c '
import fcntl
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("bb: waiting for another ./bb, which makes .venv", flush=True)
    fcntl.flock(9, fcntl.LOCK_EX)' >&2 2>/dev/null || true # what is wrong with Python, set_up says
}

end_setup() {
    exec 9>&-
}

need_demo() {
    is_set_up && return
    begin_setup
    is_set_up || set_up
    end_setup
}

need_tests() {
    is_set_up && has_tests && return
    begin_setup
    if ! is_set_up || { ! has_tests && [ -e "$venv/.recipe-test" ]; }; then
        set_up -r "$home/requirements-test.lock"
    elif ! has_tests; then
        add_tests
    fi
    has_tests || cp "$home/requirements-test.lock" "$venv/.recipe-test"
    end_setup
}

# The tests start some thousand processes. Each would compile all that it imports where the environment
# forbids to write that down: it is kept beside the packages, not beside the sources.
keep_compiled() {
    unset PYTHONDONTWRITEBYTECODE
    export PYTHONPYCACHEPREFIX="$venv/compiled"
}

lint() {
    "$venv/bin/ruff" format --check . && "$venv/bin/ruff" check . && "$venv/bin/mypy"
}

# What the tests import is compiled once, on the processor that the lint leaves free: each process that
# they are shared out to would compile all of it. Its errors are shown when the tests run.
lint_and_compile() {
    "$venv/bin/python" -m pytest --collect-only -q "$@" >/dev/null 2>&1 &
    linted=0
    lint || linted=$?
    wait
    return "$linted"
}

case ${1:-} in
lint)
    need_tests
    cd "$home"
    lint
    ;;
test)
    need_tests
    keep_compiled
    shift
    cd "$home"
    if [ $# -eq 0 ]; then
        lint_and_compile --ignore=tests/proof
        set -- -n 4 --dist worksteal --durations=20 --ignore=tests/proof
    fi
    exec "$venv/bin/python" -m pytest "$@"
    ;;
proof)
    need_tests
    keep_compiled
    shift
    cd "$home"
    exec "$venv/bin/python" -m tests.proof "$@"
    ;;
bench)
    case " $* " in
    *" --peers "*)
        need_tests
        keep_compiled
        shift
        cd "$home"
        exec "$venv/bin/python" -m benchmarks.performance "$@"
        ;;
    esac
    need_demo
    BLACKBOARD_PROG=$0 exec "$venv/bin/blackboard" "$@"
    ;;
azurite)
    need_tests
    BLACKBOARD_PROG=$0 exec "$venv/bin/blackboard" "$@"
    ;;
*)
    need_demo
    BLACKBOARD_PROG=$0 exec "$venv/bin/blackboard" "$@"
    ;;
esac
