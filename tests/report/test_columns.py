"""Tables from declared columns: the CSV file and the page out of one frame, against the csv module and by hand."""

import csv
import io

from geomix.report.columns import Column, Table, fixed, thousands

COLUMNS = (
    Column("arm", lambda row: row[0]),
    Column("params", lambda row: row[1], "parameters", thousands),
    Column("wer", lambda row: row[2], "WER %", fixed(2), fixed(2)),
    Column("note", lambda row: row[3]),
)
ROWS = [("a|b", 26_958_472, 9.876, 'said "so", twice'), ("none", None, None, ""), ("nan", 5, float("nan"), "x")]


def test_a_csv_file_keeps_values_whole_and_quotes_as_the_csv_module_does():
    expected = io.StringIO()
    writer = csv.writer(expected, lineterminator="\n")
    writer.writerow(["arm", "params", "wer", "note"])
    for arm, params, wer, note in ROWS:
        writer.writerow([arm, params, "9.88" if wer == 9.876 else "", note])
    assert Table.of(COLUMNS, ROWS).csv() == expected.getvalue()


def test_a_page_shows_titles_and_forms_in_the_order_that_is_picked():
    table = Table.of(COLUMNS, ROWS[:1]).pick("wer", "params", "arm")
    assert table.markdown().splitlines() == [
        "| WER % | parameters | arm |",
        "| ---: | ---: | --- |",
        "| 9.88 | 26,958,472 | a\\|b |",
    ]
    assert table.text()[-1] == " 9.88  26,958,472  a|b"


def test_a_table_without_rows_is_false_and_has_its_header():
    empty = Table.of(COLUMNS, [])
    assert not empty and empty.csv() == "arm,params,wer,note\n"
