"""The documentation site: the pages of `docs/`, and what is made for it from the package (`make docs-site`)."""
