"""A bit of everything that drivers of tests do, so that its classes are loaded; ends when the JVM has archived them.

Its JVM also compiles QuickLocalFs.java, with a compiler that Spark brings along: a machine may have none.
"""

import json
import sys
import zipfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main(folder: Path, jar: Path) -> None:
    source = folder / "source"
    source.mkdir()
    for number in range(2):
        rows = [{"k": row % 7, "v": row, "t": f"2026-01-01T00:00:{row:02}Z"} for row in range(40)]
        (source / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "ERROR").getOrCreate()
    _compile(spark, folder / "classes", jar)
    _run_queries(spark, folder, str(source))
    spark.sparkContext.parallelize(range(4), 2).mapPartitions(lambda numbers: [sum(numbers)]).collect()
    _stop(spark)


def _compile(spark: SparkSession, folder: Path, jar: Path) -> None:
    folder.mkdir()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.jvm.java
    sources = gateway.new_array(java.io.File, 1)
    sources[0] = java.io.File(str(Path(__file__).with_name("QuickLocalFs.java")))
    loader = java.lang.Thread.currentThread().getContextClassLoader()
    factories = gateway.jvm.org.codehaus.commons.compiler.CompilerFactoryFactory
    compiler = factories.getDefaultCompilerFactory(loader).newCompiler()
    compiler.setDestinationDirectory(java.io.File(str(folder)), False)
    compiler.compile(sources)
    with zipfile.ZipFile(jar, "w") as archive:
        for file in sorted(folder.rglob("*.class")):
            archive.write(file, str(file.relative_to(folder)))


def _run_queries(spark: SparkSession, folder: Path, source: str) -> None:
    rows = spark.readStream.schema("k int, v int, t timestamp").option("maxFilesPerTrigger", 1).json(source)
    timed = rows.withWatermark("t", "1 hour")
    totals = rows.groupBy("k").agg(F.sum("v").alias("s"), F.count("*").alias("n"))
    writers = {
        "totals": totals.writeStream.outputMode("update").foreachBatch(_collect),
        "rocksdb": totals.writeStream.outputMode("update").foreachBatch(_collect),
        "unique": timed.dropDuplicates(["k", "v"]).writeStream.format("json"),
        "joined": timed.alias("a").join(timed.alias("b"), F.expr("a.k = b.k and a.t = b.t")).writeStream.format("noop"),
        "copy": rows.writeStream.format("parquet"),
    }
    for name, writer in writers.items():
        if name == "rocksdb":
            spark.conf.set(PROVIDER, ROCKSDB)
        placed = writer.option("checkpointLocation", f"{folder}/{name}").option("path", f"{folder}/out-{name}")
        placed.trigger(availableNow=True).start().awaitTermination()
        spark.conf.unset(PROVIDER)
    spark.read.parquet(f"{folder}/out-copy").count()


def _collect(batch: DataFrame, _: int) -> None:
    batch.collect()


def _stop(spark: SparkSession) -> None:
    """The gateway ends when its input does, and archives what it has loaded."""
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    process.stdin.close()
    process.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
