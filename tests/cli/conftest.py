"""Commands run in the process of the test."""

import sys

import pytest

from bigmc import cli


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs a command in this process and gives status, stdout and stderr."""

    def call(command: str | list[str]) -> tuple[int, str, str]:
        words = command.split() if isinstance(command, str) else command
        monkeypatch.setattr(sys, "argv", ["bigmc", *map(str, words)])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return int(exit_.value.code or 0), said.out, said.err

    return call
