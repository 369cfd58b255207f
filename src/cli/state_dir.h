/* state_dir.h - the directory that holds database, master key, admin socket and port. */
#pragma once
#include "base/err.h"

/* Create it (and its parents) with mode 0700 when missing; refuse what cannot be written.  @ret_why
 * has 256 bytes. */
enum bh_err state_dir_open(const char *dir, char *ret_why) BH_MUST_USE;
char *state_dir_path(const char *dir, const char *name); /* caller frees */
/* <dir>/port: the TCP port in decimal, for scripts that asked for port 0; 0 (a Unix socket) writes
 * none. */
enum bh_err state_dir_write_port(const char *dir, int port, char *ret_why) BH_MUST_USE;
void state_dir_forget(const char *dir); /* remove admin.sock and port */
