"""The steps of `bigmc fit`: search, compare on unseen rows, measure, train on all rows, save."""
