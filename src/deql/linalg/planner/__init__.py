"""What a fit takes, before it is begun: engine, memory, disk and time."""

from deql.linalg.planner.planner import Plan, choose_engine, memory_budget, plan
from deql.linalg.planner.units import parse_bytes

__all__ = ["Plan", "choose_engine", "memory_budget", "parse_bytes", "plan"]
