"""Which loss goes with which penalty."""

from __future__ import annotations

from dataclasses import dataclass

from bigmc.errors import BigmcError
from bigmc.objectives.losses import LOSSES, SquaredHinge
from bigmc.objectives.penalties import PENALTIES, GroupLasso

#: The pairs there are kernels for.
_PAIRS = {(SquaredHinge.name, GroupLasso.name)}


@dataclass(frozen=True)
class Objective:
    """A loss and a penalty that can be minimised together."""

    loss: SquaredHinge
    penalty: GroupLasso


def objective(loss: str, penalty: str) -> Objective:
    """Return the objective with the named loss and penalty.

    Raises
    ------
    BigmcError
        If a name is unknown or the two do not go together; the message lists what there is.
    """
    for kind, name, known in (("loss", loss, LOSSES), ("penalty", penalty, PENALTIES)):
        if name not in known:
            raise BigmcError(f"no {kind} is called {name!r}", f"use one of {', '.join(sorted(known))}")
    if (loss, penalty) not in _PAIRS:
        pairs = ", ".join(f"{a} with {b}" for a, b in sorted(_PAIRS))
        raise BigmcError(f"loss {loss} does not go with penalty {penalty}", f"use {pairs}")
    return Objective(LOSSES[loss](), PENALTIES[penalty]())
