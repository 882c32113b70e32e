import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.Year;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Map;

import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;

import oracle.sql.CharacterSet;

import io.debezium.config.CommonConnectorConfig.BinaryHandlingMode;
import io.debezium.config.CommonConnectorConfig.EventConvertingFailureHandlingMode;
import io.debezium.config.Configuration;
import io.debezium.connector.mysql.MySqlConnectorConfig;
import io.debezium.connector.mysql.antlr.MySqlAntlrDdlParser;
import io.debezium.connector.mysql.charset.MySqlCharsetRegistry;
import io.debezium.connector.mysql.charset.MySqlCharsetRegistryServiceProvider;
import io.debezium.connector.mysql.jdbc.MySqlValueConverters;
import io.debezium.connector.oracle.OracleConnection;
import io.debezium.connector.oracle.OracleConnectorConfig;
import io.debezium.connector.oracle.OracleValueConverters;
import io.debezium.connector.oracle.antlr.OracleDdlParser;
import io.debezium.connector.sqlserver.SqlServerConnectorConfig;
import io.debezium.connector.sqlserver.SqlServerValueConverters;
import io.debezium.jdbc.JdbcValueConverters.BigIntUnsignedMode;
import io.debezium.jdbc.JdbcValueConverters.DecimalMode;
import io.debezium.jdbc.TemporalPrecisionMode;
import io.debezium.relational.Column;
import io.debezium.relational.CustomConverterRegistry;
import io.debezium.relational.RelationalDatabaseConnectorConfig;
import io.debezium.relational.Table;
import io.debezium.relational.TableId;
import io.debezium.relational.TableSchema;
import io.debezium.relational.TableSchemaBuilder;
import io.debezium.relational.Tables;
import io.debezium.relational.ValueConverterProvider;
import io.debezium.schema.DefaultTopicNamingStrategy;
import io.debezium.schema.FieldNameSelector;
import io.debezium.schema.SchemaNameAdjuster;

/**
 * Writes one event of each database and mode, as Debezium's own converters make it of the values that its connector reads: of MySQL
 * those of the binlog, of SQL Server those of JDBC, of Oracle the texts of LogMiner. No database is asked.
 *
 * <pre>
 * mvn -f tests/cdc/debezium dependency:copy-dependencies -DoutputDirectory=target/lib
 * java -cp "tests/cdc/debezium/target/lib/*" tests/cdc/debezium/Events.java events.jsonl
 * gzip -n -9 events.jsonl
 * </pre>
 */
public class Events {
    private static final EventConvertingFailureHandlingMode FAIL = EventConvertingFailureHandlingMode.FAIL;
    private static final long AT_MS = 1772366400123L;
    private final List<String> lines = new ArrayList<>();
    private final JsonConverter json = new JsonConverter();

    public static void main(String[] args) throws Exception {
        Events events = new Events();
        events.json.configure(Map.of("schemas.enable", "true"), false);
        for (DecimalMode decimals : DecimalMode.values()) {
            events.mysql(TemporalPrecisionMode.ADAPTIVE_TIME_MICROSECONDS, decimals, BigIntUnsignedMode.LONG, BinaryHandlingMode.BYTES);
        }
        for (TemporalPrecisionMode mode : TemporalPrecisionMode.values()) {
            if (mode != TemporalPrecisionMode.ADAPTIVE) {
                events.mysql(mode, DecimalMode.PRECISE, BigIntUnsignedMode.PRECISE, BinaryHandlingMode.BASE64);
            }
            events.sqlserver(mode, DecimalMode.PRECISE);
            events.oracle(mode, DecimalMode.PRECISE);
        }
        for (DecimalMode decimals : List.of(DecimalMode.STRING, DecimalMode.DOUBLE)) {
            events.sqlserver(TemporalPrecisionMode.ADAPTIVE, decimals);
            events.oracle(TemporalPrecisionMode.ADAPTIVE, decimals);
        }
        Files.write(Path.of(args[0]), events.lines);
    }

    private void mysql(TemporalPrecisionMode temporal, DecimalMode decimals, BigIntUnsignedMode unsigned, BinaryHandlingMode binary) {
        MySqlConnectorConfig config = new MySqlConnectorConfig(Configuration.from(Map.of(
                "topic.prefix", "server", "database.server.id", "1", "database.hostname", "none", "database.user", "none")));
        config.getServiceRegistry().registerServiceProvider(new MySqlCharsetRegistryServiceProvider());
        MySqlValueConverters converters = new MySqlValueConverters(decimals, temporal, unsigned, binary, x -> x, FAIL, config.getServiceRegistry());
        MySqlAntlrDdlParser parser = new MySqlAntlrDdlParser(true, false, false, Tables.TableFilter.includeAll(), new MySqlCharsetRegistry());
        parser.setCurrentDatabase("shop");
        Tables tables = new Tables();
        parser.parse("CREATE TABLE kinds (id INT PRIMARY KEY, tiny TINYINT, flag TINYINT(1), small SMALLINT UNSIGNED, medium MEDIUMINT, big BIGINT, "
                + "huge BIGINT UNSIGNED, price DECIMAL(20,4), whole NUMERIC(30,0), ratio DOUBLE, part FLOAT, bits BIT(12), one BIT(1), born DATE, "
                + "at DATETIME, at3 DATETIME(3), at6 DATETIME(6), seen TIMESTAMP(6) NULL, clock TIME(6), span TIME, y YEAR, "
                + "name VARCHAR(20) CHARSET utf8mb4, note TEXT CHARSET utf8mb4, code BINARY(4), data BLOB, "
                + "choice ENUM('a','b'), choices SET('x','y','z'), doc JSON, place POINT, nothing INT)", tables);
        Object[] row = {
            1, (short) -5, (short) 1, 65535, -8388608, 9007199254740993L,
            -1L, new BigDecimal("1234567890123456.7891"), new BigDecimal("123456789012345678901234567890"), 0.1, 0.5f, bits(0, 11), bits(0), LocalDate.of(1969, 12, 31),
            LocalDateTime.of(2026, 3, 1, 12, 0, 1), LocalDateTime.of(2026, 3, 1, 12, 0, 0, 123_000_000), LocalDateTime.of(1969, 12, 31, 23, 59, 59, 999_999_000),
            OffsetDateTime.of(2026, 3, 1, 12, 0, 0, 123_456_000, ZoneOffset.UTC), Duration.ofSeconds(86399, 999_999_000), Duration.ofHours(temporal == TemporalPrecisionMode.ADAPTIVE_TIME_MICROSECONDS ? -100 : 3), Year.of(2026),
            "Zo\u00eb".getBytes(StandardCharsets.UTF_8), "long".getBytes(StandardCharsets.UTF_8), new byte[]{1, 2, 0, 0}, new byte[]{(byte) 0xff, 0},
            2, 5L, new byte[]{0x00, 1, 0, 12, 0, 11, 0, 1, 0, 5, 1, 0, 'a'}, point(), null,
        };
        add("mysql", temporal, decimals, config, converters, tables.forTable("shop", null, "kinds"), row);
    }

    private void sqlserver(TemporalPrecisionMode temporal, DecimalMode decimals) {
        SqlServerConnectorConfig config = new SqlServerConnectorConfig(Configuration.from(Map.of(
                "topic.prefix", "server", "database.names", "shop", "database.hostname", "none")));
        SqlServerValueConverters converters = new SqlServerValueConverters(decimals, temporal, BinaryHandlingMode.BYTES);
        Timestamp at = Timestamp.valueOf("2026-03-01 12:00:00.1234567"), before = Timestamp.valueOf("1969-12-31 23:59:59.997");
        List<Column> columns = new ArrayList<>();
        List<Object> row = new ArrayList<>();
        of(columns, row, "id", Types.INTEGER, "int", 10, 0, 1);
        of(columns, row, "tiny", Types.TINYINT, "tinyint", 3, 0, (short) 255);
        of(columns, row, "small", Types.SMALLINT, "smallint", 5, 0, (short) -3);
        of(columns, row, "big", Types.BIGINT, "bigint", 19, 0, 9007199254740993L);
        of(columns, row, "flag", Types.BIT, "bit", 1, 0, true);
        of(columns, row, "price", Types.DECIMAL, "decimal", 20, 4, new BigDecimal("1234567890123456.7891"));
        of(columns, row, "cash", Types.DECIMAL, "money", 19, 4, new BigDecimal("-922337203685477.5808"));
        of(columns, row, "coins", Types.DECIMAL, "smallmoney", 10, 4, new BigDecimal("0.0001"));
        of(columns, row, "ratio", Types.DOUBLE, "float", 53, 0, 0.1);
        of(columns, row, "part", Types.REAL, "real", 24, 0, 0.5f);
        of(columns, row, "born", Types.DATE, "date", 10, 0, java.sql.Date.valueOf("1969-12-31"));
        of(columns, row, "clock0", Types.TIME, "time", 8, 0, Timestamp.valueOf("1900-01-01 23:59:59"));
        of(columns, row, "clock6", Types.TIME, "time", 15, 6, Timestamp.valueOf("1900-01-01 23:59:59.999999"));
        of(columns, row, "clock7", Types.TIME, "time", 16, 7, Timestamp.valueOf("1900-01-01 23:59:59.9999999"));
        of(columns, row, "at_small", Types.TIMESTAMP, "smalldatetime", 16, 0, Timestamp.valueOf("2026-03-01 12:00:00"));
        of(columns, row, "at_old", Types.TIMESTAMP, "datetime", 23, 3, before);
        of(columns, row, "at3", Types.TIMESTAMP, "datetime2", 23, 3, before);
        of(columns, row, "at6", Types.TIMESTAMP, "datetime2", 26, 6, Timestamp.valueOf("2026-03-01 12:00:00.123456"));
        of(columns, row, "at7", Types.TIMESTAMP, "datetime2", 27, 7, at);
        of(columns, row, "zoned", microsoft.sql.Types.DATETIMEOFFSET, "datetimeoffset", 34, 7,
                microsoft.sql.DateTimeOffset.valueOf(at, 120));
        of(columns, row, "name", Types.NVARCHAR, "nvarchar", 20, null, "Zo\u00eb");
        of(columns, row, "note", Types.LONGVARCHAR, "text", 2147483647, null, "long");
        of(columns, row, "doc", Types.LONGNVARCHAR, "xml", 0, null, "<a>1</a>");
        of(columns, row, "uid", Types.CHAR, "uniqueidentifier", 36, null, "6F9619FF-8B86-D011-B42D-00C04FC964FF");
        of(columns, row, "code", Types.BINARY, "binary", 4, null, new byte[]{1, 2, 0, 0});
        of(columns, row, "data", Types.VARBINARY, "varbinary", 8000, null, new byte[]{(byte) 0xff, 0});
        of(columns, row, "version", Types.BINARY, "timestamp", 8, null, new byte[]{0, 0, 0, 0, 0, 0, 7, (byte) 0xd1});
        of(columns, row, "nothing", Types.INTEGER, "int", 10, 0, null);
        add("sqlserver", temporal, decimals, config, converters, table(new TableId("shop", "dbo", "kinds"), columns), row.toArray());
    }

    private void oracle(TemporalPrecisionMode temporal, DecimalMode decimals) {
        Map<String, String> given = Map.of(
                "topic.prefix", "server", "database.dbname", "SHOP", "database.hostname", "none", "decimal.handling.mode", decimals.name().toLowerCase(),
                "time.precision.mode", temporal.getValue(), "lob.enabled", "true");
        OracleConnectorConfig config = new OracleConnectorConfig(Configuration.from(given));
        OracleValueConverters converters = new OracleValueConverters(config, new Unconnected(config));
        OracleDdlParser parser = new OracleDdlParser(converters);
        parser.setCurrentDatabase("SHOP");
        parser.setCurrentSchema("APP");
        Tables tables = new Tables();
        parser.parse("CREATE TABLE \"APP\".\"KINDS\" ("
                + "\"ID\" NUMBER(9,0) NOT NULL, \"FLAG\" NUMBER(1,0), \"LARGE\" NUMBER(18,0), \"HUGE\" NUMBER(38,0), \"PRICE\" NUMBER(20,4), "
                + "\"ROUNDED\" NUMBER(5,-2), \"ANY_NUMBER\" NUMBER, \"ANY_FLOAT\" FLOAT(126), \"RATIO\" BINARY_DOUBLE, \"PART\" BINARY_FLOAT, "
                + "\"NAME\" VARCHAR2(20), \"WIDE\" NVARCHAR2(20), \"FIXED\" CHAR(5), \"NOTE\" CLOB, \"PAYLOAD\" BLOB, "
                + "\"CODE\" RAW(4), \"BORN\" DATE, \"AT3\" TIMESTAMP(3), \"AT6\" TIMESTAMP(6), \"AT9\" TIMESTAMP(9), "
                + "\"ZONED\" TIMESTAMP(6) WITH TIME ZONE, \"LOCAL_AT\" TIMESTAMP(6) WITH LOCAL TIME ZONE, \"SPAN\" INTERVAL DAY(3) TO SECOND(2), \"YEARS\" INTERVAL YEAR(2) TO MONTH, \"PLACE\" ROWID, "
                + "\"NOTHING\" NUMBER(9,0), PRIMARY KEY (\"ID\"))", tables);
        Object[] row = {
            "1", "1", "900719925474099300", "12345678901234567890123456789012345678", "1234567890123456.7891",
            "12300", "1.5", "0.1", "0.1", "0.5",
            "Zo\u00eb", "wide", "abc  ", "long", new byte[]{(byte) 0xff, 0}, "HEXTORAW('01020000')",
            "TO_DATE('1969-12-31 23:59:59', 'YYYY-MM-DD HH24:MI:SS')", "TO_TIMESTAMP('1969-12-31 23:59:59.997')",
            "TO_TIMESTAMP('2026-03-01 12:00:00.123456')", "TO_TIMESTAMP('2026-03-01 12:00:00.123456789')",
            "TO_TIMESTAMP_TZ('2026-03-01 12:00:00.123456 +02:00')", "TO_TIMESTAMP_TZ('2026-03-01 12:00:00.123456 +00:00')",
            "TO_DSINTERVAL('-003 02:13:51.04')", "TO_YMINTERVAL('-03-06')", "AAAR3sAAEAAAACXAAA", null,
        };
        add("oracle", temporal, decimals, config, converters, tables.forTable("SHOP", "APP", "KINDS"), row);
    }

    // --- what the databases have in common ----------------------------------------------------------------
    private void add(String database, TemporalPrecisionMode temporal, DecimalMode decimals, RelationalDatabaseConnectorConfig config,
                     ValueConverterProvider converters, Table table, Object[] row) {
        Schema source = config.getSourceInfoStructMaker().schema();
        TableSchemaBuilder builder = new TableSchemaBuilder(converters, SchemaNameAdjuster.NO_OP, new CustomConverterRegistry(null), source,
                SchemaBuilder.struct().optional().name("event.block").field("id", Schema.STRING_SCHEMA).build(),
                FieldNameSelector.defaultSelector(SchemaNameAdjuster.NO_OP), false, FAIL);
        TableSchema schema = builder.create(DefaultTopicNamingStrategy.create(config), table, null, null, null);
        Struct after = schema.valueFromColumnData(row);
        Struct event = schema.getEnvelopeSchema().create(after, filled(source, database, table.id()), Instant.ofEpochMilli(AT_MS));
        String value = new String(json.fromConnectData("topic", event.schema(), event), StandardCharsets.UTF_8);
        Struct key = schema.keyFromColumnData(row);
        String keyed = new String(json.fromConnectData("topic", key.schema(), key), StandardCharsets.UTF_8);
        lines.add("{\"database\":\"" + database + "\",\"temporal\":\"" + temporal.getValue() + "\",\"decimals\":\"" + decimals.name().toLowerCase()
                + "\",\"key\":" + keyed + ",\"value\":" + value + "}");
    }

    private static Struct filled(Schema schema, String database, TableId id) {
        Map<String, Object> known = Map.ofEntries(
                Map.entry("version", "3.6.1.Final"), Map.entry("connector", database), Map.entry("name", "server"), Map.entry("snapshot", "false"),
                Map.entry("db", id.catalog()), Map.entry("schema", id.schema() == null ? "" : id.schema()), Map.entry("table", id.table()),
                Map.entry("file", "binlog.000003"), Map.entry("pos", 154L), Map.entry("row", 0), Map.entry("server_id", 1L),
                Map.entry("change_lsn", "00000027:00000758:0003"), Map.entry("commit_lsn", "00000027:00000758:0005"), Map.entry("event_serial_no", 1L),
                Map.entry("scn", "2868540"), Map.entry("commit_scn", "2868545"), Map.entry("rs_id", "0x000001.00000002.0003"), Map.entry("ssn", 0L),
                Map.entry("redo_thread", 1), Map.entry("txId", "05000a00b1020000"));
        Struct found = new Struct(schema);
        for (Field field : schema.fields()) {
            Object value = known.get(field.name());
            if (field.name().startsWith("ts_")) {
                long unit = field.name().equals("ts_ms") ? 1 : field.name().equals("ts_us") ? 1000 : 1_000_000;
                value = AT_MS * unit;
            }
            if (value != null) {
                found.put(field, value);
            }
        }
        return found;
    }

    private static Table table(TableId id, List<Column> columns) {
        return Table.editor().tableId(id).addColumns(columns).setPrimaryKeyNames("id").create();
    }

    private static void of(List<Column> columns, List<Object> row, String name, int jdbcType, String type, int length, Integer scale, Object value) {
        columns.add(Column.editor().name(name).jdbcType(jdbcType).type(type).length(length).scale(scale).optional(!name.equals("id")).create());
        row.add(value);
    }

    /** A connection that is not made: the converters ask it for the character sets alone. */
    private static class Unconnected extends OracleConnection {
        Unconnected(OracleConnectorConfig config) {
            super(config, config.getJdbcConfig(), false);
        }

        @Override
        public CharacterSet getDatabaseCharacterSet() {
            return CharacterSet.make(CharacterSet.AL32UTF8_CHARSET);
        }

        @Override
        public CharacterSet getNationalCharacterSet() {
            return CharacterSet.make(CharacterSet.AL16UTF16_CHARSET);
        }
    }

    private static BitSet bits(int... places) {
        BitSet found = new BitSet();
        for (int place : places) {
            found.set(place);
        }
        return found;
    }

    private static byte[] point() {
        java.nio.ByteBuffer found = java.nio.ByteBuffer.allocate(25).order(java.nio.ByteOrder.LITTLE_ENDIAN);
        return found.putInt(4326).put((byte) 1).putInt(1).putDouble(1.5).putDouble(-2.25).array();
    }
}
