"""What is shown of a board: how it is read for that, columns, tables that fit a terminal, TOML."""
