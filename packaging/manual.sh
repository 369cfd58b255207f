#!/bin/sh
# manual.sh PROGRAM FOLDER - writes the man pages and the shell completions of PROGRAM into FOLDER.
set -eu
program=$1 folder=$2

mkdir -p "$folder/man" "$folder/completions"
for command in $("$program" help man); do
    "$program" help man "$command" >"$folder/man/bellhop-$command.1"
done
"$program" help completion bash >"$folder/completions/bellhop"
"$program" help completion zsh >"$folder/completions/_bellhop"
"$program" help completion fish >"$folder/completions/bellhop.fish"
