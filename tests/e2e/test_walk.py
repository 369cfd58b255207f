"""One message runs through no more files and functions than tests/walk/limits allows (./dev walk shows them)."""
import subprocess
import sys

import pytest

from conftest import ROOT


@pytest.mark.skipif(not (ROOT / "build/walk/bellhop").exists(), reason="./dev build walk")
def test_a_message_runs_through_no_more_code_than_the_limits_allow():
    done = subprocess.run([sys.executable, ROOT / "tests/walk/walk.py", ROOT / "build/walk"], text=True,
                          capture_output=True, timeout=120)
    assert done.returncode == 0, "\n".join([*done.stdout.splitlines()[-3:], done.stderr])
