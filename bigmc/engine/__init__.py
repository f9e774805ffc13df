"""Run work on parts: on threads of this process, or on a Dask cluster."""

from bigmc.engine.base import Engine, Resources, for_each
from bigmc.engine.choice import EngineLike, opened
from bigmc.engine.threads import ThreadEngine, one_ahead

__all__ = ["Engine", "EngineLike", "Resources", "ThreadEngine", "for_each", "one_ahead", "opened"]
