"""Commands do not import pandas, though pyarrow would."""

import subprocess
import sys

import pytest

pytest.importorskip("pandas")

CONVERSION = "import sys, pyarrow as pa; pa.array([1, 2]).to_numpy(); print('pandas' in sys.modules)"


def said(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_conversions_of_a_command_do_not_import_pandas():
    leave_out = "from bigmc.cli.without_pandas import leave_out_pandas; leave_out_pandas(); "
    assert said(CONVERSION) == "True"
    assert said(leave_out + CONVERSION) == "False"


def test_a_command_works_without_pandas(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nred apple,fruit\ngreen leaf,tree\n" * 20)
    watched = (
        "import atexit, runpy, sys;"
        "atexit.register(lambda: print('pandas' in sys.modules));"
        f"sys.argv = ['bigmc', 'ingest', r'{tmp_path / 'a.csv'}', '--to', r'{tmp_path / 'a.bigmc'}',"
        "'--text', 'text', '--label', 'label', '--quiet'];"
        "runpy.run_module('bigmc', run_name='__main__')"
    )
    assert said(watched).splitlines()[-1] == "False"
