"""A model behind HTTP: an API for programs, and a page on which b is a slider.

Everything here needs the extra ``serve`` (FastAPI and uvicorn), and is imported by ``deql serve`` alone.
"""
