/* confine.h - drops access to files (Landlock) and system calls (seccomp) that the process no
 * longer needs, so that an attacker who takes it over gains little.
 *
 *      start: read settings -> confine_files() -> threads, database, sockets -> confine_calls()
 *
 * Neither can be undone, and children inherit both.  If the kernel lacks one, the process continues
 * without it, and struct confined reports that.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

enum confine_access {
    CONFINE_READ,  /* read files and list directories below the path */
    CONFINE_WRITE, /* CONFINE_READ, and create, change and remove files */
    CONFINE_SOCK,  /* create and remove Unix sockets */
    CONFINE_RUN,   /* CONFINE_READ, and run programs */
};

struct confine_path {
    const char *path; /* a directory or a file; a missing path grants nothing */
    enum confine_access access;
};

struct confine_files {
    const struct confine_path *paths;
    size_t n;
    int port; /* the only TCP port that may be bound; 0: any free port; -1: none */
};

struct confined { /* the active confinement, for status and doctor; zeroed: none */
    bool off;     /* switched off by the operator */
    int landlock; /* its version; 0: not available, or too old */
    int seccomp;  /* 1: on; 0: not available, or not yet on */
};

/* Call before the first thread exists: existing threads would stay unconfined.  A kernel without
 * Landlock is BH_OK; any other failure is BH_REFUSED with @ret_why (256 bytes). */
enum bh_err confine_files(const struct confine_files *f, struct confined *ret,
                          char *ret_why) BH_MUST_USE;

enum { CONFINE_SANITIZER = 1 }; /* let a sanitizer trace this process and run its symbolizer */
/* Applies to all existing threads.  Refused calls fail with EPERM; calls newer than the list fail
 * with ENOSYS.  Allowed: files, sockets, threads, time and memory.  Refused: programs, other
 * processes, memory that is both writable and executable, devices, mounts, keys, setting the
 * clock. */
enum bh_err confine_calls(unsigned flags, struct confined *ret, char *ret_why) BH_MUST_USE;

/* Formats "files (Landlock 7), calls (seccomp)", or what is missing and why. */
void confine_describe(const struct confined *c, char *ret_text, size_t size);
