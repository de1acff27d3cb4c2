"""Text for people: tables that fit a terminal, the columns of a board, TOML. Pure."""
