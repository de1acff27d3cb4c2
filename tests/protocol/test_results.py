"""What a result may say besides what its handler means by it."""

import pytest

from blackboard.protocol.results import LONGEST_WARNING, MOST_WARNINGS, report_in, warnings_in


@pytest.mark.parametrize(
    ("result", "warnings"),
    [
        ("", []),
        ('{"warnings":["a","b\\n c"]}', ["a", "b c"]),
        ('{"events":3,"warnings":["a"],"more":{"warnings":["b"]}}', ["a"]),
        ('{"more":{"warnings":["b"]}}', []),
        ('["warnings"]', []),
        ('{"warnings":"a"}', []),
        ('{"warnings":null}', []),
        ('{"warnings":[1,null,"",["x"],"a"]}', ["a"]),
        ('{"warnings":["a"', []),
        ('{"warnings":' + "[" * 100_000, []),
        ('{"warnings":["' + "x" * 9_999 + '"]}', ["x" * LONGEST_WARNING]),
        ('{"warnings":["a","b","a"]}', ["a", "b"]),
        (
            '{"warnings":[' + ",".join(f'"{n}"' for n in range(999)) + "]}",
            [str(n) for n in range(MOST_WARNINGS)],
        ),
    ],
)
def test_warnings_are_a_list_of_texts_or_none(result: str, warnings: list[str]) -> None:
    assert warnings_in(result) == warnings


@pytest.mark.parametrize(
    ("result", "report"),
    [
        ('{"report":"/out/davis.report.json"}', "/out/davis.report.json"),
        ('{"report":3}', ""),
        ('"report"', ""),
        ("", ""),
    ],
)
def test_a_report_is_a_path(result: str, report: str) -> None:
    assert report_in(result) == report
