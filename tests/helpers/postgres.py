"""A PostgreSQL server of the tests' own: another user's process, a folder in /tmp, a socket and no port."""

import contextlib
import glob
import os
import pwd
import shutil
import subprocess
import tempfile

import psycopg

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
    found = shutil.which("pg_ctl")
    return os.path.dirname(found) if found else max(glob.glob("/usr/lib/postgresql/*/bin"), default=None)


@contextlib.contextmanager
def server():
    """The socket's folder of a running server."""
    folder = tempfile.mkdtemp(prefix="pg", dir="/tmp")  # pytest's own folders are closed to other users
    user = USER if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    shutil.chown(folder, user)
    data = f"{folder}/data"

    def call(program, *arguments):
        command = (f"{binaries()}/{program}", "-D", data, *arguments)
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


def new_database(folder, name):
    """The URL of an empty database."""
    with psycopg.connect(f"host={folder} user={USER} dbname=postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgresql://{USER}@/{name}?host={folder}"
