"""Commands: arguments in, exit status out. Everything they do is in the rooms below."""
