"""Missing numbers in tables, filled by the family's predictions."""

try:
    from deql.impute.imputer import LinearImputer
except ImportError as error:
    if not (error.name or "").startswith("sklearn"):
        raise
    from deql.impute.absent import LinearImputer  # type: ignore[assignment]

__all__ = ["LinearImputer"]
