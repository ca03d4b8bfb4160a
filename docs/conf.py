"""The one file that knows the site's builder, Sphinx with MyST: the pages are plain Markdown.

The site has the repository's own pages, `docs/` and the experiments. GitHub shows them, too, and
their links hold in both. Headings get GitHub's anchors.
"""

project = "automl-sweep"
author = copyright = "The automl-sweep contributors"  # noqa: A001  # Sphinx's own name
extensions = ["myst_nb"]  # MyST, and notebooks with the outputs that they store
nb_execution_mode = "off"
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
root_doc = "docs/contents"
include_patterns = ["*.md", "docs/**", "experiments/**"]
exclude_patterns = ["docs/pypi.md"]
html_theme = "furo"
html_title = "automl-sweep"
html_show_sourcelink = False
html_copy_source = False
myst_heading_anchors = 6
toc_object_entries = False
html_extra_path = ["site"]  # its first page, which leads to docs/index.html
