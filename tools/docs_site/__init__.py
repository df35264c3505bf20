"""The documents as a site: MkDocs calls `hooks`; `links` and `options` write Markdown."""
