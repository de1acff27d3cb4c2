"""Looks at every row of a board, reports what is wrong, and repairs what is safe to repair.

`examination.py` has the steps, `cases.py` reads the rows of each item, `diagnosis.py` finds what is
wrong with an item, `repair.py` mends it, `board_rows.py` finds what is wrong with all other rows.
"""

from blackboard.doctor.cases import Examination
from blackboard.doctor.examination import LARGEST_SKEW, DoctorReport, examine, unopened

__all__ = ["LARGEST_SKEW", "DoctorReport", "Examination", "examine", "unopened"]
