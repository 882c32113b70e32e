"""Times a process's first appends, as a Lambda function makes them, and what they import.

A script for any environment, run by its path: it imports nothing but what it measures.
Configuration as JSON on stdin; prints one line of JSON.
"""

import sys
import time

_began = time.monotonic()


def main() -> None:
    """Import, make a frame, append twice; note time and modules after each."""
    library = sys.argv[1]
    if "no pandas" in sys.argv:  # as in the Lambda layer: where pandas is installed pyarrow imports it
        sys.meta_path.insert(0, _NoPandas)
    marks = [("start", _began, len(sys.modules))]

    def mark(name: str) -> None:
        marks.append((name, time.monotonic(), len(sys.modules)))

    __import__(library)
    mark("import")
    if len(sys.argv) > 2:  # the name of an arm
        append = _first_append(sys.argv[2], mark)
        append()
        mark("first append")
        append()
        mark("second append")
    import json

    steps = {
        name: {"s": at - before, "modules": modules}
        for (_, before, _), (name, at, modules) in zip(marks, marks[1:], strict=False)  # noqa: RUF007 - as few imports as can be
    }
    with open("/proc/self/status") as status:  # noqa: PTH123 - as few imports as can be
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    whole = {"began": marks[0][1], "ended": marks[-1][1], "modules": marks[0][2], "steps": steps}
    print(json.dumps({**whole, "peak_kib": peak}))


class _NoPandas:
    """Finds no pandas, as where it is not installed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)


def _first_append(arm, mark):
    import pyarrow as pa

    schema = pa.schema([("id", pa.int64()), ("value", pa.float64())])
    frame = pa.table({"id": list(range(100)), "value": [i / 7 for i in range(100)]}, schema=schema)
    mark("frame")
    import json

    place = json.load(sys.stdin)
    options = place["storage_options"]
    if arm == "deltalake":
        import deltalake

        return lambda: deltalake.write_deltalake(place["uri"], frame, mode="append", storage_options=options)
    import safewrite

    settings = {"arbiter": "object-store"} if "object-store" in arm else {"lock_table": place["lock_table"]}
    return lambda: safewrite.open(place["uri"], storage_options=options, **settings).append(frame)


main()
