"""Positions of every source order as texts as they order there."""

from __future__ import annotations

from typing import Any

import pytest

from safewrite.cdc.envelopes.debezium.positions import of_debezium
from safewrite.cdc.envelopes.dms.metadata import of_dms
from safewrite.cdc.envelopes.position import LOWEST, with_offset
from safewrite.cdc.records.change import UndecodableError

RISING: dict[str, list[tuple[dict[str, Any], dict[str, Any] | None]]] = {
    "postgresql": [
        ({"lsn": 9}, None), ({"lsn": 10}, None), ({"lsn": 10}, {"total_order": 1}), ({"lsn": 10}, {"total_order": 10}),
        ({"lsn": 2**63 - 1}, None),
    ],
    "postgresql, a transaction that began before an incremental snapshot and commits after it": [
        ({"lsn": 100, "sequence": '["80","100"]'}, None), ({"lsn": 150, "sequence": '["140","150"]', "snapshot": "incremental"}, None),
        ({"lsn": 90, "sequence": '["160","90"]'}, None), ({"lsn": 110, "sequence": '["160","110"]'}, None),
        ({"lsn": 170, "sequence": '["165","170"]'}, None),
    ],
    "postgresql, a change at the very position of a snapshot": [
        ({"lsn": 150, "sequence": '[null,"150"]', "snapshot": "last"}, None), ({"lsn": 90, "sequence": '["150","90"]', "snapshot": "false"}, None),
    ],
    "mysql": [
        ({"file": "mysql-bin.000009", "pos": 5_000, "row": 0}, None), ({"file": "mysql-bin.000010", "pos": 4, "row": 0}, None),
        ({"file": "mysql-bin.000010", "pos": 154, "row": 0}, None), ({"file": "mysql-bin.000010", "pos": 154, "row": 2}, None),
        ({"file": "mysql-bin.000010", "pos": 154, "row": 11}, None), ({"file": "mysql-bin.1000000", "pos": 4}, None),
    ],
    "sqlserver": [
        ({"commit_lsn": "00000027:00000758:0005", "change_lsn": None}, None),
        ({"commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0003", "event_serial_no": 1}, None),
        ({"commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0003", "event_serial_no": 2}, None),
        ({"commit_lsn": "00000027:00000ac0:0002", "change_lsn": "00000027:00000758:0009", "event_serial_no": 1}, None),
    ],
    "db2": [
        ({"commit_lsn": "00000000:00000000:0000000000a1b2c3", "change_lsn": None}, None),
        ({"commit_lsn": "00000000:00000000:0000000000a1b2c3", "change_lsn": "00000000:00000000:000000000000000f"}, None),
        ({"commit_lsn": "00000000:00000000:0000000000A1B2C3", "change_lsn": "00000000:00000000:0000000000000010"}, None),
        ({"commit_lsn": "00000000:00000000:0000000000b00000", "change_lsn": "00000000:00000000:0000000000000001"}, None),
        ({"commit_lsn": "00000001:00000000:0000000000000000", "change_lsn": "00000000:00000000:0000000000000001"}, None),
    ],
    "oracle": [
        ({"scn": "999", "commit_scn": None}, None),
        ({"scn": "900", "commit_scn": "1000", "rs_id": " 0x000173.00023d98.0018 ", "ssn": 0}, None),
        ({"scn": "990", "commit_scn": "1000", "rs_id": "0x000173.00023d98.0018", "ssn": 0}, None),
        ({"scn": "990", "commit_scn": "1000", "rs_id": "0x000173.00023d98.0018", "ssn": 1}, None),
        ({"scn": "990", "commit_scn": "1000", "rs_id": "0x0001a0.00000001.0000", "ssn": 0}, None),
        ({"scn": "980", "commit_scn": "1001,998", "rs_id": None, "ssn": 0}, None),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("snapshot", "is_of_snapshot"), [("true", True), ("last", True), ("incremental", True), (True, True),
                                                          ("false", False), (False, False), (None, False)])  # fmt: skip
def test_a_row_of_a_snapshot_comes_before_a_change_of_its_position(
    snapshot: Any, is_of_snapshot: bool
) -> None:
    source = {"connector": "postgresql", "lsn": 7}
    assert (of_debezium({**source, "snapshot": snapshot}, None) < of_debezium(source, None)) is is_of_snapshot


@pytest.mark.parametrize("connector", RISING)
def test_positions_of_a_connector_rise_as_texts(connector: str) -> None:
    texts = [
        of_debezium({"connector": connector.split(",", maxsplit=1)[0], **source}, transaction)
        for source, transaction in RISING[connector]
    ]
    assert texts == sorted(set(texts))
    assert len({len(text) for text in texts}) == 1


def test_positions_of_dms_rise_as_texts() -> None:
    """In PostgreSQL, MySQL, SQL Server and by plain numbers; the record's number orders within a transaction."""
    for rising in (
        ["00000002/7C007178.3.00000002/7C007178", "00000002/7C0073F8.2.00000002/7C0073F8", "0000000A/00000001.2.0000000A/00000001"],
        ["mysql-bin-changelog.000024:373", "mysql-bin-changelog.000024:1975:-1:2002:6778:mysql-bin-changelog.000024:1876", "mysql-bin-changelog.157832:4"],
        ["00000027:00000758:0005", "00000027:00000AC0:0002"],
        ["99", "100"],
    ):  # fmt: skip
        texts = [
            of_dms({"stream-position": one, "transaction-record-id": number})
            for one in rising
            for number in (1, 10)
        ]
        assert texts == sorted(set(texts))


@pytest.mark.parametrize(
    "metadata",
    [
        {"transaction-id": 87978110091475},
        {"stream-position": "10", "transaction-id": 1},
        {"stream-position": "somewhere", "transaction-record-id": 1},
        {"stream-position": "", "transaction-record-id": 1},
    ],
)
def test_dms_without_transaction_details_orders_nothing(metadata: dict[str, Any]) -> None:
    with pytest.raises(UndecodableError, match=r"IncludeTransactionDetails|not known here"):
        of_dms(metadata)


@pytest.mark.parametrize(
    "source",
    [
        {"connector": "postgresql", "lsn": None}, {"connector": "postgresql", "lsn": -1}, {"connector": "postgresql", "lsn": True},
        {"connector": "postgresql", "lsn": 1.0}, {"connector": "mysql", "file": "", "pos": 4}, {"connector": "mongodb"}, {},
        {"connector": "sqlserver", "commit_lsn": None}, {"connector": "sqlserver", "commit_lsn": "1:2"},
        {"connector": "oracle", "scn": None}, {"connector": "oracle", "scn": "1", "rs_id": "0x1.2"},
    ],
)  # fmt: skip
def test_an_event_without_a_position_is_refused(source: dict[str, Any]) -> None:
    with pytest.raises(UndecodableError):
        of_debezium(source, None)


def test_kafkas_offset_decides_last_and_a_full_load_comes_first() -> None:
    at = of_debezium({"connector": "postgresql", "lsn": 0}, None)
    rising = [
        with_offset(LOWEST, 9),
        with_offset(LOWEST, 10**18),
        with_offset(at, 0),
        with_offset(at, 9),
        with_offset(at, 10),
    ]
    assert rising == sorted(rising)
