"""For whoever writes an algorithm: put it through the checks that the built-in ones pass."""

from etude.testing.conformance import CHECKS, Outcome, Report, check_workflow

__all__ = ["CHECKS", "Outcome", "Report", "check_workflow"]
