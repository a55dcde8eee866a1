"""What every other package stands on: threads, memory, progress, checks, measurements, tables."""
