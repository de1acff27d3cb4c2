"""A test that fails says so, whatever text it has at hand."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_test_that_fails_with_half_of_a_surrogate_pair_is_reported_by_another_process(
    tmp_path: Path,
) -> None:
    odd = 'def test_odd() -> None:\n    assert "odd \\udc80" == ""\n'
    (tmp_path / "test_odd.py").write_text(odd, encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-n", "1", "-p", "tests.support.reports"),
            *("-p", "no:cacheprovider", "test_odd.py"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "INTERNALERROR" not in done.stdout
    assert r"AssertionError: assert 'odd \udc80' == ''" in done.stdout
    assert done.returncode == 1
