/* manual.h - man pages and shell completions, made of the table of commands.
 *
 * packaging/manual.sh writes them into a folder; `bellhop help man` and `bellhop help completion`
 * print one. */
#pragma once
#include "cli/cli.h"

/* Appends the man page bellhop-<name>(1), as roff. */
void manual_page(const struct command *c, struct buf *out);
/* Appends the completions for bash, zsh or fish.  False: there is no such shell. */
bool manual_completion(const char *shell, struct buf *out);
