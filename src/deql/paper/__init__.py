"""The paper's tables and figures, made again: on the data sets that are there, and always on the bundled one."""
