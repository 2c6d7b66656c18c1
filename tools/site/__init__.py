"""The documentation site: the pages of `docs/`, and pages generated from the package (`make docs-site`)."""
