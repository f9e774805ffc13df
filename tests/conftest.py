"""What holds for all tests."""

import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def without_waiting_for_the_disk():
    """Let nothing wait until contents have reached the disk: no test cuts the power.

    That files and folders are synced, and when, is tested by recorded calls. Commands that tests start wait.
    """
    before = os.fsync
    os.fsync = lambda handle: None
    yield
    os.fsync = before
