"""Applications that use the network too much, minute by minute.

OpMon, the sample application of Gedik et al., "Elastic Scaling for Data Stream Processing" (listing 1). Try

    tidegate run examples/overusing_apps.py
"""

import narwhals as nw
from inputs.usage import usage

import tidegate as tg

THRESHOLD = 5_000.0

query = (
    tg.stream(usage(rows=20_000), time="time", name="usage")
    .key_by("appId")
    .window("60 seconds")
    .aggregate(flowAmount=tg.sum("flowAmount"))
    .filter(nw.col("flowAmount") > THRESHOLD)
)
