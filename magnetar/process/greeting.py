"""The text for a person who starts a broker: its addresses, and commands to try it with."""

from __future__ import annotations

from urllib.parse import urlsplit

from magnetar import __version__

_TEXT = """
Magnetar {version} is ready.

  clients   {url}
  console   {admin}/ in a browser
  admin     {admin}/admin/v2/clusters
  metrics   {admin}/metrics
  manual    docs/README.md

In another terminal:

{commands}

Ctrl-C drains and stops.
"""


def greeting(url: str, admin: str) -> str:
    """Returns the text. Its commands name the addresses where the ports are not those that commands use by themselves."""
    usual = (urlsplit(url).port, urlsplit(admin).port) == (6650, 8080)
    to = "" if usual else f" --url {url}"
    demo = "" if usual else f' ARGS="--url {url} --admin-url {admin}"'
    commands = {
        f"make demo{demo}": "a producer and two subscriptions at work",
        f".venv/bin/magnetar consume my-topic -s my-sub -n 0{to}": "waits for messages",
        f".venv/bin/magnetar produce my-topic -m hello{to}": "sends one",
    }
    width = max(map(len, commands))
    lines = "\n".join(f"  {command:<{width}}   {what}" for command, what in commands.items())
    return _TEXT.format(version=__version__, url=url, admin=admin, commands=lines)
