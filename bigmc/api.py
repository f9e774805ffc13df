"""The commands as plain functions: what the command line and a notebook both call."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigmc import budget
from bigmc.engine import Engine, ThreadEngine
from bigmc.errors import DataError, ModelError
from bigmc.progress import ProgressCallback, silent

if TYPE_CHECKING:
    from bigmc.model import Model
    from bigmc.store.dataset import Dataset
