"""Commands leave out what pyarrow and numba would import and no command uses."""

import subprocess
import sys

import pytest

pytest.importorskip("pandas")

CONVERSION = "import sys, pyarrow as pa; pa.array([1, 2]).to_numpy(); print('pandas' in sys.modules)"


def said(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_conversions_of_a_command_do_not_import_pandas():
    leave_out = "from bigmc.cli.left_out import leave_out_unused; leave_out_unused(); "
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


COMPILED = "import sys, numba; print(numba.njit(lambda x: x + 1)(1), 'yaml' in sys.modules); import yaml"


@pytest.mark.exhaustive
def test_numba_compiles_without_settings_and_extensions(tmp_path):
    pytest.importorskip("yaml")
    (tmp_path / "extension.py").write_text("def init():\n    print('extended')\n")
    (tmp_path / "extension-1.dist-info").mkdir()
    about = tmp_path / "extension-1.dist-info"
    (about / "entry_points.txt").write_text("[numba_extensions]\ninit = extension:init\n")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: extension\nVersion: 1\n")
    installed = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
    leave_out = "from bigmc.cli.left_out import leave_out_unused; leave_out_unused(); "
    assert said(installed + COMPILED).split() == ["extended", "2", "True"]
    assert said(installed + leave_out + COMPILED).split() == ["2", "False"]
