"""``deql data``: look at tables, convert, clean and split them; one file a command."""
