"""`magnetar completion SHELL`: prints a script that completes commands, groups of `magnetar admin`, and their commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magnetar.admin.table import commands
from magnetar.commands.metadata_command import ACTIONS
from magnetar.process.shared_options import CommandParser

OF_THE_STORE = ("snapshot", "audit")
"""Words of `magnetar admin` in the place of a group: its commands on the metadata store."""
_BASH = """\
_magnetar() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" words=""
  case $COMP_CWORD in
    1) words="{names}" ;;
    2) case "${{COMP_WORDS[1]}}" in admin) words="{groups}" ;; metadata) words="{metadata}" ;; esac ;;
    3) [ "${{COMP_WORDS[1]}}" = admin ] && case "${{COMP_WORDS[2]}}" in
{cases}
    esac ;;
  esac
  if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$cur")); else COMPREPLY=($(compgen -f -- "$cur")); fi
}}
complete -o filenames -F _magnetar magnetar
"""
_ZSH = "#compdef magnetar\nautoload -U +X bashcompinit && bashcompinit\n"


def main(argv: Sequence[str]) -> int:
    """Prints the script. Returns 0."""
    parser = CommandParser(
        "magnetar completion",
        description="Print a completion script. bash, zsh: source <(magnetar completion bash); fish: … | source",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    shell = parser.parse_args(argv).shell
    groups = {
        group: [name for name, command in found.items() if command.built]
        for group, found in commands().items()
        if any(command.built for command in found.values())
    }
    # Imported here, because that module imports this one when the command runs.
    from magnetar.__main__ import COMMANDS

    names = [*COMMANDS]
    print(
        _fish(names, groups) if shell == "fish" else (_ZSH if shell == "zsh" else "") + _bash(names, groups),
        end="",
    )
    return 0


def _bash(names: Sequence[str], groups: Mapping[str, Sequence[str]]) -> str:
    cases = "\n".join(f'      {group}) words="{" ".join(found)}" ;;' for group, found in groups.items())
    return _BASH.format(
        names=" ".join(names),
        groups=" ".join([*groups, *OF_THE_STORE]),
        metadata=" ".join(ACTIONS),
        cases=cases,
    )


def _fish(names: Sequence[str], groups: Mapping[str, Sequence[str]]) -> str:
    seen = "__fish_seen_subcommand_from"
    lines = [f"complete -c magnetar -n __fish_use_subcommand -f -a '{' '.join(names)}'"]
    every = " ".join([*groups, *OF_THE_STORE])
    lines.append(f"complete -c magnetar -n '{seen} admin; and not {seen} {every}' -f -a '{every}'")
    actions = " ".join(ACTIONS)
    lines.append(f"complete -c magnetar -n '{seen} metadata; and not {seen} {actions}' -f -a '{actions}'")
    for group, found in groups.items():
        lines.append(f"complete -c magnetar -n '{seen} admin; and {seen} {group}' -f -a '{' '.join(found)}'")
    return "\n".join(lines) + "\n"
