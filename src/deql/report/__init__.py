"""Results for readers: tables in text, Markdown and LaTeX, and pages in HTML."""
