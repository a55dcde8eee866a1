"""What the rest stands on: threads, memory, progress, checks of arguments, JSON, measurements, tables."""
