EXPECTED = {"numpy": "8", "pandas": "{1: 1, 2: 2}", "pyarrow": "3", "parquet": "[1, 2]"}


def use() -> dict[str, str]:
    """Compute with arrays and tables, and write one to a file and back."""
    import io

    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute
    import pyarrow.parquet

    table = pa.table({"x": [1, 2]})
    file = io.BytesIO()
    pa.parquet.write_table(table, file)
    return {
        "numpy": str(round(float(np.linalg.det(np.eye(3) * 2)))),
        "pandas": str(pd.DataFrame({"x": [1, 2, 2]}).groupby("x").size().to_dict()),
        "pyarrow": str(pa.compute.sum(table["x"])),
        "parquet": str(pa.parquet.read_table(file)["x"].to_pylist()),
    }
