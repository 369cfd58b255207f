/* confine.h - a process gives up what it will not need again, so that an attacker who takes it
 * over gains little: files by Landlock, system calls by seccomp.
 *
 *      start: read settings -> confine_files() -> threads, database, sockets -> confine_calls()
 *
 * Neither can be undone, and children inherit both.  Where the kernel lacks one, the process goes
 * on without it, and struct confined says so.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

enum confine_access {
    CONFINE_READ,  /* files below it, and lists of them */
    CONFINE_WRITE, /* that, and making, changing and removing them */
    CONFINE_SOCK,  /* sockets in it are made and removed */
    CONFINE_RUN,   /* that of CONFINE_READ, and programs */
};

struct confine_path {
    const char *path; /* a directory, or a file; one that does not exist grants nothing */
    enum confine_access access;
};

struct confine_files {
    const struct confine_path *paths;
    size_t n;
    int port; /* the one TCP port that may be bound; 0: any free one; -1: none */
};

struct confined {    /* what holds, for status and doctor; zeroed: nothing */
    bool off;        /* the operator said so */
    int landlock;    /* version of it; 0: the kernel has none that will do */
    int seccomp;     /* 1: on; 0: not to be had here, or not yet */
    unsigned n_read; /* how many places can be read, written */
    unsigned n_write;
};

/* Before the first thread is made: those that exist already would keep their freedom.  A kernel
 * without it is fine, everything else is BH_REFUSED with @ret_why (256 bytes). */
enum bh_err confine_files(const struct confine_files *f, struct confined *ret,
                          char *ret_why) BH_MUST_USE;

enum { CONFINE_SANITIZER = 1 }; /* let a sanitizer trace this process and run its symbolizer */
/* Every thread that there is.  Refused calls fail with EPERM, such as the kernel learnt after this
 * was written with ENOSYS.  What is left: files, sockets, threads, time and memory; not: programs,
 * other processes, memory that is written and then run, devices, mounts, keys, the clock. */
enum bh_err confine_calls(unsigned flags, struct confined *ret, char *ret_why) BH_MUST_USE;

/* "files (Landlock 7), calls (seccomp)", or what is missing and why. */
void confine_describe(const struct confined *c, char *ret_text, size_t size);
