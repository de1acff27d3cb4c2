"""`python -m blackboard`: the command, where the package is installed and its script is not."""

from blackboard.cli import main

main()
