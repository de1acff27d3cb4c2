"""Views of a board: reading what they show, columns, tables that fit a terminal, TOML."""
