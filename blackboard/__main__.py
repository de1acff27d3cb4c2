"""`python -m blackboard`: the command, for whoever has the package but not its script."""

from blackboard.cli import main

main()
