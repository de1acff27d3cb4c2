#!/bin/sh
# Everything from a fresh checkout, with nothing installed but Python 3.11 and its venv module:
#   ./bb demo           the main job, on one SQLite file
#   ./bb test [ARGS]    lint and all tests; with ARGS only pytest ARGS, as in ./bb test -n 2 --cov
#   ./bb lint           format, lint, types
#   ./bb chaos [ARGS]   real trouble for real workers, for many minutes: the long forms of the tests
#                       in tests/chaos, and their figures; ARGS go to pytest
#   ./bb ARGS           blackboard ARGS
# The environment is .venv, made on first use and again when what it is made of changes.
set -eu

home=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
venv=$home/.venv
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

check_python() {
    version=$("$python" -c 'import platform; print(platform.python_version())' 2>/dev/null) ||
        fail "no Python found as '$python'; install Python 3.11 or newer, or name one: PYTHON=/path/to/python3 ./bb"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "'$python' is Python $version, and 3.11 or newer is needed; name another: PYTHON=/path/to/python3 ./bb"
}

install_with_uv() {
    uv venv --quiet --python "$python" "$venv" &&
        uv pip install --python "$venv" --require-hashes -r "$home/requirements.lock" &&
        uv pip install --python "$venv" --no-deps --no-build-isolation -e "$home"
}

install_with_pip() {
    "$python" -m venv "$venv" &&
        "$venv/bin/python" -m pip install --require-hashes -r "$home/requirements.lock" &&
        "$venv/bin/python" -m pip install --no-deps --no-build-isolation -e "$home"
}

need_venv() {
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "'$python' has no venv module; on Debian or Ubuntu: apt-get install python3-venv"
}

set_up() {
    check_python
    echo "bb: setting up .venv, once" >&2
    log=$home/.venv.log
    rm -rf "$venv"
    if ! command -v uv >/dev/null || ! install_with_uv >"$log" 2>&1; then
        need_venv
        rm -rf "$venv"
        install_with_pip >"$log" 2>&1 || explain
    fi
    mv "$log" "$venv/setup.log"
    recipe >"$venv/.recipe"
}

explain() {
    if grep -Eqi 'connect|certificate|resolution|timed out|unreachable|proxy|versions: none' "$log"; then
        fail "cannot fetch the packages; check the network or proxy and run it again (details: .venv.log)"
    fi
    fail "cannot install the packages: $(grep -i error "$log" | tail -n 1) (details: .venv.log)"
}

lint() {
    "$venv/bin/ruff" format --check .
    "$venv/bin/ruff" check .
    "$venv/bin/mypy"
}

is_set_up() {
    [ -x "$venv/bin/python" ] && recipe | cmp -s - "$venv/.recipe"
}

is_set_up || set_up

case ${1:-} in
lint)
    cd "$home"
    lint
    ;;
test)
    shift
    cd "$home"
    if [ $# -eq 0 ]; then
        lint
        set -- -n 2 --dist worksteal
    fi
    exec "$venv/bin/python" -m pytest "$@"
    ;;
chaos)
    shift
    cd "$home"
    BLACKBOARD_CHAOS=full exec "$venv/bin/python" -m pytest tests/chaos -rA "$@"
    ;;
*)
    BLACKBOARD_PROG=$0 exec "$venv/bin/blackboard" "$@"
    ;;
esac
