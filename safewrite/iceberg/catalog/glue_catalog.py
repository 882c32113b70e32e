"""Makes Glue catalogs that share a client, and whose metadata files are asked for as a table's other files are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import ICEBERG, METADATA_LOCATION, TABLE_TYPE
from pyiceberg.catalog.glue import GlueCatalog as OpenGlueCatalog

from safewrite.iceberg.catalog.metadata_files import MetadataFiles, write
from safewrite.stores.clients import kept_client

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata


class GlueCatalog(MetadataFiles, OpenGlueCatalog):
    """PyIceberg's, with a client for all catalogs of the same properties, and metadata files by requests of our own."""

    def __init__(self, name: str, client: Any = None, **properties: Any) -> None:
        def make() -> Any:
            return OpenGlueCatalog(name, **properties).glue

        super().__init__(name, client=client or kept_client("glue", properties, make), **properties)

    def forget(self) -> None:
        """Know no file, and of no database whether it is one of S3 Tables."""
        super().forget()
        self._of_s3tables: dict[str, bool | None] = {}
        """By database with a table that was read: whether it is one of S3 Tables, once that is known."""

    def _convert_glue_to_iceberg(self, glue_table: Any) -> Table:
        database, name = glue_table.get("DatabaseName"), glue_table.get("Name")
        parameters = glue_table.get("Parameters") or {}
        location, kind = parameters.get(METADATA_LOCATION), parameters.get(TABLE_TYPE, "")
        found = None
        if database and name and location and kind.lower() == ICEBERG:
            found = self.known_table((database, name), location)
            self._of_s3tables.setdefault(database, None)
        return super()._convert_glue_to_iceberg(glue_table) if found is None else found

    def _is_s3tables_database(self, database_name: str) -> bool:
        found = self._of_s3tables.get(database_name)
        if found is None:
            ask = getattr(super(), "_is_s3tables_database", None)  # PyIceberg before 0.12 has none
            found = ask is not None and bool(ask(database_name))
            if database_name in self._of_s3tables:
                self._of_s3tables[database_name] = found
        return found

    @staticmethod
    def _write_metadata_no_exist_check(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        """As PyIceberg's, which S3 Tables needs, of any format version."""
        write(metadata, io.new_output(metadata_path), overwrite=True)
