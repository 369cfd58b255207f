/* archive.c - see archive.h. */
#include "cli/archive.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/crypto.h"
#include "base/file.h"

enum { BLOCK = 512, PIECE = 1 << 16 };

struct head { /* ustar; all text, numbers in octal */
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100], magic[6],
        version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct head) == BLOCK, "a head is one block");

static enum bh_err failed(char *ret_why, const char *what)
{
    return bh_err_why(BH_UNAVAILABLE, ret_why, "%.180s: %s", what, strerror(errno));
}

static bool read_all(int fd, void *p, size_t n)
{
    for (char *at = p; n > 0;) {
        ssize_t got = read(fd, at, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        n -= (size_t)got;
    }
    return true;
}

static unsigned sum_of(const struct head *h)
{
    struct head copy = *h;
    unsigned sum = 0;

    memset(copy.sum, ' ', sizeof copy.sum);
    for (size_t i = 0; i < sizeof copy; i++)
        sum += ((const unsigned char *)&copy)[i];
    return sum;
}

/* ---- writing ---- */

static enum bh_err opened(struct archive *a, int fd, const char *path, char *ret_why)
{
    *a = (struct archive){.fd = fd};
    if (fd < 0)
        return failed(ret_why, path);
    a->sum = digest_new();
    return BH_OK;
}

enum bh_err archive_create(struct archive *a, const char *path, char *ret_why)
{
    return opened(a, open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), path, ret_why);
}

static void head_make(struct head *h, const char *name, char type, uint64_t bytes)
{
    size_t n = strlen(name);

    memset(h, 0, sizeof *h);
    memcpy(h->name, name, n < sizeof h->name ? n : sizeof h->name - 1);
    memcpy(h->mode, "0000600", 8);
    memcpy(h->uid, "0000000", 8);
    memcpy(h->gid, "0000000", 8);
    memcpy(h->mtime, "00000000000", 12);
    if (bytes < UINT64_C(1) << 33) {
        snprintf(h->size, sizeof h->size, "%011llo", (unsigned long long)bytes);
    } else { /* over 8 GiB, as GNU tar does: binary, with the top bit set */
        for (int i = 0; i < 8; i++)
            h->size[11 - i] = (char)(bytes >> (8 * i));
        h->size[0] = (char)0x80;
    }
    h->type = type;
    memcpy(h->magic, "ustar", 6);
    memcpy(h->version, "00", 2);
    snprintf(h->sum, sizeof h->sum, "%06o", sum_of(h));
    h->sum[7] = ' ';
}

/* Writes a long name as a member of its own before the head, as GNU tar does. */
static bool write_head(int fd, const char *name, uint64_t bytes)
{
    char text[ARCHIVE_NAME] = "";
    struct head h;
    size_t n = strlen(name) + 1;

    if (n > sizeof text) {
        errno = ENAMETOOLONG;
        return false;
    }
    if (n > sizeof h.name) {
        memcpy(text, name, n);
        head_make(&h, "././@LongLink", 'L', n);
        if (!file_write(fd, str_make(&h, sizeof h), FILE_END) ||
            !file_write(fd, str_make(text, n + (BLOCK - n % BLOCK) % BLOCK), FILE_END))
            return false;
    }
    head_make(&h, name, '0', bytes);
    return file_write(fd, str_make(&h, sizeof h), FILE_END);
}

static bool copy_bytes(int from, int to, uint64_t n, struct digest *sum)
{
    char piece[PIECE];

    while (n > 0) {
        size_t want = n < sizeof piece ? (size_t)n : sizeof piece;
        if (!read_all(from, piece, want) || !file_write(to, str_make(piece, want), FILE_END))
            return false;
        digest_add(sum, str_make(piece, want));
        n -= want;
    }
    return true;
}

enum bh_err archive_add(struct archive *a, const char *name, const char *file, char *ret_why)
{
    static const char zeros[BLOCK];
    struct stat st;
    int fd = open(file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    bool ok = fd >= 0 && fstat(fd, &st) == 0;
    if (ok) {
        uint64_t bytes = (uint64_t)st.st_size, pad = (BLOCK - bytes % BLOCK) % BLOCK;
        digest_add(a->sum, str_make(name, strlen(name) + 1));
        ok = write_head(a->fd, name, bytes) && copy_bytes(fd, a->fd, bytes, a->sum) &&
             file_write(a->fd, str_make(zeros, (size_t)pad), FILE_END);
    }
    enum bh_err err = ok ? BH_OK : failed(ret_why, file);
    if (fd >= 0)
        close(fd);
    return err;
}

enum { SUM_BYTES = 2 * SHA256_BYTES + 1 }; /* hex digits and a newline */

static void sum_text(const struct archive *a, char ret_text[SUM_BYTES + 1])
{
    uint8_t hash[SHA256_BYTES];
    struct buf hex = BUF_INIT;

    digest_look(a->sum, hash);
    hex_add(&hex, hash, sizeof hash);
    snprintf(ret_text, SUM_BYTES + 1, "%s\n", buf_z(&hex));
    buf_done(&hex);
}

enum bh_err archive_finish(struct archive *a, char *ret_why)
{
    static const char zeros[2 * BLOCK];
    char text[BLOCK] = "";

    sum_text(a, text);
    if (write_head(a->fd, ARCHIVE_SUM, SUM_BYTES) &&
        file_write(a->fd, str_make(text, sizeof text), FILE_END) &&
        file_write(a->fd, str_make(zeros, sizeof zeros), FILE_END) && fsync(a->fd) == 0)
        return BH_OK;
    return failed(ret_why, "the backup");
}

/* ---- reading ---- */

enum bh_err archive_open(struct archive *a, const char *path, char *ret_why)
{
    return opened(a, open(path, O_RDONLY | O_CLOEXEC), path, ret_why);
}

static bool size_of(const struct head *h, uint64_t *ret_bytes)
{
    uint64_t n = 0;

    if (((unsigned char)h->size[0] & 0x80) != 0) {
        for (int i = 4; i < 12; i++)
            n = n << 8 | (unsigned char)h->size[i];
        *ret_bytes = n;
        return n < UINT64_C(1) << 50;
    }
    for (int i = 0; i < 11; i++) {
        if (h->size[i] < '0' || h->size[i] > '7')
            return false;
        n = n << 3 | (uint64_t)(h->size[i] - '0');
    }
    *ret_bytes = n;
    return true;
}

/* True when the name is relative and has no ".." part. */
static bool name_is_fine(const char *name)
{
    struct str rest = str_of(name), part;

    if (name[0] == '\0' || name[0] == '/')
        return false;
    for (int depth = 0; str_split(&rest, '/', &part); depth++)
        if (part.n == 0 || part.p[0] == '.' || depth > 8)
            return false;
    return true;
}

static enum bh_err no_backup(char *ret_why)
{
    return bh_err_why(BH_MALFORMED, ret_why,
                      "this is not a backup that bellhop made, or it is damaged");
}

/* Reads the next head and checks it.  BH_NOT_FOUND: the end of the archive. */
static enum bh_err read_head(struct archive *a, struct head *h, char *ret_why)
{
    char sum[8];

    if (!read_all(a->fd, h, sizeof *h))
        return no_backup(ret_why);
    if (h->name[0] == '\0' && sum_of(h) == 8 * ' ')
        return BH_NOT_FOUND;
    snprintf(sum, sizeof sum, "%06o", sum_of(h));
    if (memcmp(sum, h->sum, 6) != 0 || memcmp(h->magic, "ustar", 5) != 0 || h->prefix[0] != '\0' ||
        !size_of(h, &a->left))
        return no_backup(ret_why);
    a->pad = (BLOCK - a->left % BLOCK) % BLOCK;
    return BH_OK;
}

/* Reads a long name, and the head that follows it. */
static enum bh_err read_long(struct archive *a, struct head *h, char ret_name[ARCHIVE_NAME],
                             char *ret_why)
{
    char text[ARCHIVE_NAME] = "";
    size_t n = (size_t)a->left;

    if (a->left == 0 || a->left > sizeof text || !read_all(a->fd, text, (size_t)(n + a->pad)) ||
        text[n - 1] != '\0')
        return no_backup(ret_why);
    memcpy(ret_name, text, n);
    enum bh_err err = read_head(a, h, ret_why);
    return err == BH_NOT_FOUND ? no_backup(ret_why) : err;
}

/* Reads the rest of a member that was not extracted: the checksum covers it too. */
static bool pass_over(struct archive *a)
{
    char piece[PIECE];

    for (size_t n; a->left > 0; a->left -= n) {
        n = a->left < sizeof piece ? (size_t)a->left : sizeof piece;
        if (!read_all(a->fd, piece, n))
            return false;
        digest_add(a->sum, str_make(piece, n));
    }
    return true;
}

/* Verifies the checksum, which is the last member: only the end may follow. */
static enum bh_err read_sum(struct archive *a, char *ret_why)
{
    char text[BLOCK], want[SUM_BYTES + 1];
    struct head h;

    sum_text(a, want);
    if (a->left != SUM_BYTES || !read_all(a->fd, text, sizeof text))
        return no_backup(ret_why);
    if (memcmp(text, want, SUM_BYTES) != 0)
        return bh_err_why(BH_MALFORMED, ret_why,
                          "it is damaged: what is in it is not what was written");
    enum bh_err err = read_head(a, &h, ret_why);
    return err == BH_OK ? no_backup(ret_why) : err;
}

enum bh_err archive_next(struct archive *a, char ret_name[ARCHIVE_NAME], uint64_t *ret_bytes,
                         char *ret_why)
{
    struct head h;

    if (!pass_over(a) || lseek(a->fd, (off_t)a->pad, SEEK_CUR) < 0)
        return no_backup(ret_why);
    a->left = a->pad = 0;
    enum bh_err err = read_head(a, &h, ret_why);
    snprintf(ret_name, ARCHIVE_NAME, "%.*s", (int)sizeof h.name, h.name);
    if (err == BH_OK && h.type == 'L')
        err = read_long(a, &h, ret_name, ret_why);
    if (err == BH_OK && (h.type != '0' || !name_is_fine(ret_name)))
        err = no_backup(ret_why);
    if (err == BH_OK && strcmp(ret_name, ARCHIVE_SUM) == 0)
        return read_sum(a, ret_why);
    if (err == BH_OK)
        digest_add(a->sum, str_make(ret_name, strlen(ret_name) + 1));
    *ret_bytes = a->left;
    return err;
}

enum bh_err archive_extract(struct archive *a, const char *file, char *ret_why)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && copy_bytes(a->fd, fd, a->left, a->sum) && fsync(fd) == 0;
    enum bh_err err = ok ? BH_OK : failed(ret_why, file);

    a->left = 0;
    if (fd >= 0)
        close(fd);
    return err;
}

void archive_close(struct archive *a)
{
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
    digest_free(a->sum);
    a->sum = NULL;
}

/* ---- progress ---- */

enum { WIDTH = 30, EVERY_MS = 100 };

void progress_begin(struct progress *p, const char *what)
{
    *p = (struct progress){.what = what, .tty = isatty(STDERR_FILENO) == 1};
}

void progress_show(struct progress *p, uint64_t done, uint64_t all)
{
    int64_t now = clock_os_us(CLOCK_MONOTONIC) / 1000;

    if (!p->tty || now < p->shown_ms + EVERY_MS)
        return;
    p->shown_ms = now;
    unsigned part = all > 0 ? (unsigned)((double)done / (double)all * 100) : 100;
    unsigned filled = part * WIDTH / 100;
    fprintf(stderr, "\r%-24.24s [", p->what);
    for (unsigned i = 0; i < WIDTH; i++)
        fputc(i < filled ? '#' : '.', stderr);
    fprintf(stderr, "] %3u%%", part);
    fflush(stderr);
}

void progress_end(struct progress *p)
{
    if (p->tty && p->shown_ms != 0)
        fputs("\r\033[K", stderr);
}
