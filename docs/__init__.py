"""The documentation: Markdown pages, and the code that makes some of them (`pages`) and the site (`site`)."""
