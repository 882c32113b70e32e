"""Makes SQL catalogs whose metadata files are asked for as a table's other files are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog as OpenSqlCatalog

from safewrite.iceberg.catalog.metadata_files import MetadataFiles

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import IcebergTables
    from pyiceberg.table import Table


class SqlCatalog(MetadataFiles, OpenSqlCatalog):
    """PyIceberg's, with metadata files by requests of our own."""

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        location, name = orm_table.metadata_location, orm_table.table_name
        found = None
        if location and name and orm_table.table_namespace:
            found = self.known_table(
                (*Catalog.identifier_to_tuple(orm_table.table_namespace), name), location
            )
        return super()._convert_orm_to_iceberg(orm_table) if found is None else found
