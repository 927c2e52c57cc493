"""Show type checkers and editors the package that `pip install -e` installs by an import hook, which they cannot run.

The folder `src` of the virtual environment that runs this gets links to the sources, under the names that they are
imported by, and the environment a .pth file that names the folder. A module that is new at the top is linked by the
next `make install`.
"""

import shutil
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INSIDE = ("benchmarks", "tasks", "zoo")  # as setup.py says


def main() -> None:
    """Make the links anew."""
    folder = Path(sys.prefix) / "src"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "polyagents").mkdir(parents=True)
    for source in (*(ROOT / "polyagents").iterdir(), *(ROOT / name for name in INSIDE)):
        if source.name != "__pycache__":
            (folder / "polyagents" / source.name).symlink_to(source)
    Path(sysconfig.get_path("purelib"), "polyagents.pth").write_text(f"{folder}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
