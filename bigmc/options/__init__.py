"""What commands may be asked for: frozen objects that command line, Python and estimators share."""
