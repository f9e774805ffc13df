"""Pairs of a loss and a penalty of which every loss has two penalties, and every penalty two losses at least.

Kernels are compiled for a loss; the penalty is a number that they are given. So a loss that is right with
two penalties, and a penalty that is right with two losses, leave little that another pair could get wrong
alone: `test_screening` has all pairs, and so have `test_pairs`, of labels, and `test_sets`, of label sets.
"""

from itertools import product

#: The first pair of each loss is among the quick tests.
PENALTIES_OF = {
    "squared_hinge": ("l1/l2", "l1"),
    "log_loss": ("l1", "l1/l2"),
    "multitask_squared_hinge": ("sparse_group", "l1/linf"),
    "huber_hinge": ("l1/linf", "sparse_group"),
    "multilabel_ranking": ("l1/l2", "l1/linf"),
}
QUICK = {(loss, penalties[0]) for loss, penalties in PENALTIES_OF.items()}


def covered_pairs(losses):
    """Yield loss, penalty, and whether it is the second pair of the loss: every penalty has both."""
    for loss, second in product(losses, (False, True)):
        yield loss, PENALTIES_OF[loss][second], second
