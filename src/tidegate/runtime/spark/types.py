"""Arrow types as Spark types and back, for the types a stream may carry."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame as DataFrame  # named here for signatures elsewhere: nothing else names pyspark
from pyspark.sql import SparkSession as SparkSession
from pyspark.sql import types as spark

from tidegate.errors import InternalError, QueryError
from tidegate.query.schema import TIME

_PAIRS: tuple[tuple[pa.DataType, spark.DataType], ...] = (
    (pa.bool_(), spark.BooleanType()),
    (pa.int8(), spark.ByteType()),
    (pa.int16(), spark.ShortType()),
    (pa.int32(), spark.IntegerType()),
    (pa.int64(), spark.LongType()),
    (pa.float32(), spark.FloatType()),
    (pa.float64(), spark.DoubleType()),
    (pa.string(), spark.StringType()),
    (pa.binary(), spark.BinaryType()),
    (pa.date32(), spark.DateType()),
    (TIME, spark.TimestampType()),
    (pa.timestamp("us"), spark.TimestampNTZType()),
)


def spark_type(kind: pa.DataType) -> spark.DataType:
    """The Spark type that holds an Arrow type."""
    if pa.types.is_list(kind):
        return spark.ArrayType(spark_type(kind.value_type))
    if pa.types.is_map(kind):
        return spark.MapType(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_decimal(kind):
        return spark.DecimalType(kind.precision, kind.scale)
    if pa.types.is_struct(kind):
        return spark.StructType([spark.StructField(field.name, spark_type(field.type)) for field in kind])
    for arrow, known in _PAIRS:
        if arrow == kind:
            return known
    raise InternalError(f"no Spark type for {kind}")


def arrow_type(kind: spark.DataType, column: str) -> pa.DataType:
    """The Arrow type of a Spark column."""
    if isinstance(kind, spark.ArrayType):
        return pa.list_(arrow_type(kind.elementType, column))
    if isinstance(kind, spark.StructType):
        return pa.struct([pa.field(field.name, arrow_type(field.dataType, column)) for field in kind])
    if isinstance(kind, spark.MapType):
        return pa.map_(arrow_type(kind.keyType, column), arrow_type(kind.valueType, column))
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    for arrow, known in _PAIRS:
        if type(known) is type(kind):
            return arrow
    raise QueryError(
        f"column '{column}' has the Spark type {kind.simpleString()}, which tidegate does not carry; cast it, or drop it "
        "with df.drop(...) before tg.stream"
    )


def spark_schema(schema: pa.Schema) -> spark.StructType:
    """The Spark schema that holds an Arrow schema."""
    return spark.StructType([spark.StructField(field.name, spark_type(field.type)) for field in schema])


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """The Arrow schema of a Spark schema."""
    return pa.schema([(field.name, arrow_type(field.dataType, field.name)) for field in schema])
