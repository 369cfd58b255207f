/* fileset.c - see fileset.h.
 *
 * The signals of the terminal are blocked while files change their names, so that Ctrl-C falls
 * before or behind all of them. */
#include "cli/fileset.h"
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/crypto.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

static char *folder_of(const char *path)
{
    char *copy = xstrdup(path), *folder = xstrdup(dirname(copy));

    free(copy);
    return folder;
}

/* True: the file has this text already, and a secret is one. */
static bool is_there(const char *path, struct str text, unsigned mode)
{
    BUF_SECRET now = BUF_INIT;
    struct stat st;

    return stat(path, &st) == 0 && (mode != 0600 || (st.st_mode & 07777 & ~mode) == 0) &&
           file_read(path, text.n + 1, &now) && str_eq(buf_str(&now), text);
}

void fileset_add(struct fileset *d, const char *name, struct str text, unsigned mode)
{
    char *path = realpath(name, NULL); /* the file behind a symbolic link changes, not the link */
    struct fileset_file *f = NULL;

    if (path == NULL)
        path = xstrdup(name);
    for (size_t i = 0; i < d->n; i++)
        if (strcmp(d->files[i].path, path) == 0)
            f = &d->files[i];
    if (f == NULL && is_there(path, text, mode)) {
        free(path);
        return;
    }
    if (f == NULL && d->n == FILESET_FILES)
        abort(); /* the caller has a fixed number of files */
    if (f == NULL) {
        f = &d->files[d->n++];
        *f = (struct fileset_file){.path = path};
    } else {
        free(path);
        secret_wipe(f->text, strlen(f->text));
        free(f->text);
    }
    f->text = str_dup(text);
    f->mode = mode;
}

/* Makes the folder of @path if it is missing; its parent exists.  As root the folder belongs to the
 * owner of its parent, and a folder of secrets to the user that the service runs as. */
static bool make_folder(struct fileset *d, const char *path, bool secret)
{
    char *folder = folder_of(path), *parent = folder_of(folder);
    struct stat st;
    bool made = mkdir(folder, secret ? 0700 : 0755) == 0, ok = made || errno == EEXIST;

    if (made) {
        const struct passwd *service = secret && geteuid() == 0 ? getpwnam("bellhop") : NULL;
        ok = stat(parent, &st) == 0;
        if (ok && geteuid() == 0)
            ok = chown(folder, service != NULL ? service->pw_uid : st.st_uid,
                       service != NULL ? service->pw_gid : st.st_gid) == 0;
        d->folders[d->n_folders++] = folder;
    } else {
        free(folder);
    }
    free(parent);
    return ok;
}

/* Writes the new text under another name. */
static bool write_fresh(struct fileset_file *f)
{
    struct buf name = BUF_INIT;
    struct stat st;
    bool existed = stat(f->path, &st) == 0;

    if (existed && !S_ISREG(st.st_mode)) {
        errno = EINVAL;
        return false;
    }
    buf_printf(&name, "%s.new-%d", f->path, (int)getpid());
    f->fresh = buf_take(&name);
    if (!file_put(f->fresh, O_EXCL, str_of(f->text)))
        return false;
    if (!existed) {
        char *folder = folder_of(f->path);
        bool found = stat(folder, &st) == 0;
        free(folder);
        if (!found)
            return false;
    }
    /* A secret stays one, whatever its older file allowed. */
    unsigned mode = existed && f->mode != 0600 ? st.st_mode & 07777 : f->mode;
    return chmod(f->fresh, mode) == 0 &&
           (geteuid() != 0 || chown(f->fresh, st.st_uid, st.st_gid) == 0);
}

/* Moves the older file aside and the new one to its place. */
static bool place(struct fileset_file *f)
{
    struct buf name = BUF_INIT;

    if (access(f->path, F_OK) == 0) {
        buf_printf(&name, "%s.old-%d", f->path, (int)getpid());
        f->older = buf_take(&name);
        if (link(f->path, f->older) != 0) {
            free(f->older);
            f->older = NULL;
            return false;
        }
    }
    if (rename(f->fresh, f->path) != 0)
        return false;
    f->placed = true;
    free(f->fresh);
    f->fresh = NULL;
    return true;
}

static void block(bool on)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(on ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

bool fileset_write(struct fileset *d, char *ret_why)
{
    const char *at = "";
    bool ok = true;

    block(true);
    for (size_t i = 0; i < d->n && ok; i++) {
        at = d->files[i].path;
        ok = make_folder(d, at, d->files[i].mode == 0600) && write_fresh(&d->files[i]);
    }
    for (size_t i = 0; i < d->n && ok; i++) {
        at = d->files[i].path;
        ok = place(&d->files[i]) && file_sync_folder_of(at);
    }
    if (!ok) {
        int err = errno;
        fileset_undo(d);
        snprintf(ret_why, 256, "%.160s: %s", at, strerror(err));
    }
    block(false);
    return ok;
}

void fileset_undo(struct fileset *d)
{
    for (size_t i = d->n; i-- > 0;) {
        struct fileset_file *f = &d->files[i];
        if (f->fresh != NULL)
            unlink(f->fresh);
        if (f->older != NULL)
            rename(f->older, f->path);
        else if (f->placed)
            unlink(f->path);
        free(f->fresh);
        free(f->older);
        f->fresh = f->older = NULL;
        f->placed = false;
    }
    while (d->n_folders > 0) {
        rmdir(d->folders[--d->n_folders]);
        free(d->folders[d->n_folders]);
    }
}

void fileset_keep(struct fileset *d)
{
    for (size_t i = 0; i < d->n; i++) {
        struct fileset_file *f = &d->files[i];
        if (f->older != NULL)
            unlink(f->older);
        free(f->older);
        f->older = NULL;
        f->placed = false;
    }
}

void fileset_done(struct fileset *d)
{
    for (size_t i = 0; i < d->n; i++) {
        struct fileset_file *f = &d->files[i];
        secret_wipe(f->text, strlen(f->text));
        free(f->path);
        free(f->text);
        free(f->fresh);
        free(f->older);
    }
    for (size_t i = 0; i < d->n_folders; i++)
        free(d->folders[i]);
    *d = (struct fileset){.n = 0};
}
