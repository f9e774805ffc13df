"""Options of the commands: frozen objects that command line, Python and estimators share."""
