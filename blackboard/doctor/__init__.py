"""Looks at every row of a board, reports what is wrong, and repairs what is safe to repair.

`examination.py` has what is done, `cases.py` what is read of each item, `diagnosis.py` what is
wrong with one, `board_rows.py` what is wrong beside the items.
"""

from blackboard.doctor.examination import (
    LARGEST_SKEW,
    DoctorReport,
    Examination,
    examine,
    unopened,
)

__all__ = ["LARGEST_SKEW", "DoctorReport", "Examination", "examine", "unopened"]
