"""How work on parts is carried out: threads here, a cluster later."""

from bigmc.engine.base import Engine
from bigmc.engine.threads import ThreadEngine

__all__ = ["Engine", "ThreadEngine"]
