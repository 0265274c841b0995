"""Settings of Sphinx for the documentation site; `build.py` beside this file starts it."""

project = "Magnetar"
extensions = ["myst_parser"]
root_doc = "index"

# Anchors as a code host gives them to headings, so that one link works in both places.
myst_heading_anchors = 6

# A block without a language is output or a drawing: Sphinx would take it for Python.
highlight_language = "none"
nitpicky = True

html_theme = "furo"
html_title = "Magnetar"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_favicon = "static/favicon.svg"
html_copy_source = False
html_show_sphinx = False
html_permalinks_icon = "#"
# The excerpts below search results are fetched, which browsers refuse for pages opened from a folder.
html_show_search_summary = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b57a4", "color-brand-content": "#0b57a4"},
    "dark_css_variables": {"color-brand-primary": "#7db8f5", "color-brand-content": "#7db8f5"},
}
