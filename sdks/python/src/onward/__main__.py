"""The command `onward`: `python -m onward dev` starts a server, and every other command of it works, too."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path


def find() -> str:
    """Returns the program: `ONWARD_BIN`, or that of the wheel, or the first on the path."""
    if named := os.environ.get("ONWARD_BIN"):
        return named
    name = "onward.exe" if os.name == "nt" else "onward"
    # Where installers put the scripts of a wheel: of this environment, of the user, of `pip install --target`.
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user"), str(Path(__file__).parents[1] / "bin")]
    installed = (os.path.join(folder, name) for folder in folders)
    return next(filter(os.path.isfile, installed), None) or shutil.which(name) or name


def main() -> None:
    program = find()
    try:
        os.execvp(program, [program, *sys.argv[1:]])
    except OSError as error:
        print(f"error: the command `{program}` cannot be started: {error.strerror}", file=sys.stderr)
        print("hint: install the wheel for this platform, or set ONWARD_BIN to the program", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
