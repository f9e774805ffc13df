"""Options of the commands: frozen objects shared by command line, Python and estimators."""
