"""Heavy customers of a phone network: who, over an hour, makes calls that are long on average, asked every minute.

The query of StreamCloud (§IV, figure 2, and §X.B), over call detail records as in its table II. Try

    tidegate explain examples/heavy_customers.py
    tidegate run examples/heavy_customers.py
"""

import narwhals as nw

import tidegate as tg
from tidegate.demo.calls import calls

THRESHOLD_SECONDS = 450

query = (
    tg.stream(calls(rows=20_000), time="ts", name="calls")
    .with_columns(duration=nw.col("end_s") - nw.col("start_s"))
    .key_by("src")
    .window("1 hour", every="1 minute")
    .aggregate(calls=tg.count(), avg_duration=tg.mean("duration"))
    .filter(nw.col("avg_duration") > THRESHOLD_SECONDS)
)
