"""Which engine a fit uses, and what it takes, before it is begun: memory, disk and time."""

from deql.linalg.planner.planner import Plan, plan

__all__ = ["Plan", "plan"]
