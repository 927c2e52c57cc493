"""Your own data: a table with the columns context, label and, where an example has its own, candidates.

`-t polyagents.tasks.table --table-path F` reads CSV (or TSV), JSON lines and Parquet. Files are read where they lie and
a block at a time, so that their size does not matter. An example, as a CSV file and as a JSON line:

    context,label
    where is my parcel ?,it left our house on monday .

    {"context": ["hi", "hello , how can i help ?", "where is my parcel ?"], "label": "it left our house on monday ."}

In valid and test, an example without candidates ranks all labels of train and valid if these are at most 1,000; else
its own and the labels of 19 other examples.
"""

from polyagents.tasks import teachers_of

__all__ = ["DefaultTeacher"]
__getattr__ = teachers_of(__name__, __all__)
