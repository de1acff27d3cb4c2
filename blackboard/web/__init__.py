"""The board in a browser (extra `web`): pages, their live parts, what operators do on them."""
