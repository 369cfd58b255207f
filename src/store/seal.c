/* seal.c - the master key, and sealing what must not lie in the database as it is.
 *
 * A passphrase is stretched with scrypt.  Its salt is fixed: the key must come out the same on
 * every start and every machine, and there is exactly one passphrase per installation to attack. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "base/rand.h"
#include "store/store.h"

#define MIN_PASSPHRASE_BYTES 16
#define SCRYPT_N (1u << 15) /* with r = 8: 32 MiB and about a tenth of a second, once per start */
#define SCRYPT_R 8
#define SCRYPT_P 1
#define CHECK_NS "seal"
#define CHECK_KEY STR("check")
#define CHECK_TEXT STR("bellhop")

struct seal {
    uint8_t key[SEAL_KEY_BYTES];
};

static enum bh_err refuse(char *ret_why, const char *path, const char *why)
{
    snprintf(ret_why, 256, "the key file %.120s %s", path, why);
    return BH_REFUSED;
}

static enum bh_err key_from_text(struct str text, uint8_t key[SEAL_KEY_BYTES], char *ret_why)
{
    static const char salt[] = "bellhop master key";

    if (hex_decode(text, key, SEAL_KEY_BYTES))
        return BH_OK;
    if (text.n < MIN_PASSPHRASE_BYTES) {
        snprintf(ret_why, 256,
                 "the master key is too short: give 64 hex digits or a passphrase of %d bytes or "
                 "more",
                 MIN_PASSPHRASE_BYTES);
        return BH_REFUSED;
    }
    if (EVP_PBE_scrypt(text.p, text.n, (const unsigned char *)salt, sizeof salt - 1, SCRYPT_N,
                       SCRYPT_R, SCRYPT_P, 64u << 20, key, SEAL_KEY_BYTES) != 1) {
        snprintf(ret_why, 256, "cannot stretch the master key: out of memory");
        return BH_UNAVAILABLE;
    }
    return BH_OK;
}

/* ---- the key file ---- */

static bool sync_folder(const char *path)
{
    char *copy = xstrdup(path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(copy);
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return ok;
}

/* All of it, on disk, under @path; whatever was there is replaced. */
static bool write_draft(const char *path, struct str text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, text.p, text.n) == (ssize_t)text.n &&
              fsync(fd) == 0;

    if (fd >= 0)
        close(fd);
    return ok;
}

/* A key that is lost in a crash takes every sealed secret with it: on disk first, then used.  It
 * gets its name in one step, so half a key is never found under it. */
static enum bh_err file_create(const char *path, uint8_t key[SEAL_KEY_BYTES], char *ret_why)
{
    struct rand r = RAND_SYSTEM;
    struct buf text = BUF_INIT, draft = BUF_INIT;

    rand_bytes(&r, key, SEAL_KEY_BYTES);
    hex_add(&text, key, SEAL_KEY_BYTES);
    buf_add_c(&text, '\n');
    buf_printf(&draft, "%s.new", path);
    bool ok = write_draft(buf_z(&draft), buf_str(&text)) && rename(buf_z(&draft), path) == 0 &&
              sync_folder(path);
    int why = errno;
    buf_wipe(&text);
    if (!ok)
        unlink(buf_z(&draft));
    buf_done(&draft);
    return ok ? BH_OK : refuse(ret_why, path, strerror(why));
}

static enum bh_err file_read(int fd, const char *path, uint8_t key[SEAL_KEY_BYTES], char *ret_why)
{
    char text[SEAL_KEY_BYTES * 2 + 8];
    struct stat s;

    if (fstat(fd, &s) != 0)
        return refuse(ret_why, path, strerror(errno));
    if (!S_ISREG(s.st_mode))
        return refuse(ret_why, path, "is not a file");
    if ((s.st_mode & 077) != 0)
        return refuse(ret_why, path, "is open to other users: chmod 600 it");
    ssize_t n = read(fd, text, sizeof text);
    if (n < 0)
        return refuse(ret_why, path, strerror(errno));
    bool ok = hex_decode(str_trim(str_make(text, (size_t)n)), key, SEAL_KEY_BYTES);
    secret_wipe(text, sizeof text);
    return ok ? BH_OK : refuse(ret_why, path, "does not hold 64 hex digits");
}

static enum bh_err key_from_file(const char *path, uint8_t key[SEAL_KEY_BYTES], char *ret_why)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return file_create(path, key, ret_why);
    if (fd < 0)
        return refuse(ret_why, path, strerror(errno));
    enum bh_err err = file_read(fd, path, key, ret_why);
    close(fd);
    return err;
}

enum bh_err seal_open_master(struct str text, const char *path, struct seal **ret_seal,
                             char *ret_why)
{
    struct seal *s = xcalloc(1, sizeof *s);
    text = str_trim(text); /* a line of a file often brings its newline */
    enum bh_err err = str_is_empty(text) ? key_from_file(path, s->key, ret_why)
                                         : key_from_text(text, s->key, ret_why);
    if (err == BH_OK)
        *ret_seal = s;
    else
        seal_free(s);
    return err;
}

void seal_free(struct seal *s)
{
    if (s != NULL)
        secret_wipe(s->key, sizeof s->key);
    free(s);
}

/* ---- sealing ---- */

void seal_secret(const struct seal *s, struct str name, struct str plain, struct buf *out)
{
    struct buf sealed = BUF_INIT;
    seal_add(s->key, name, plain, &sealed);
    base64_add(out, sealed.p, sealed.n);
    buf_done(&sealed);
}

bool unseal_secret(const struct seal *s, struct str name, struct str sealed, struct buf *out)
{
    struct buf bytes = BUF_INIT;
    bool ok = base64_decode(sealed, &bytes) && seal_open(s->key, name, buf_str(&bytes), out);
    buf_done(&bytes);
    return ok;
}

void seal_mac(const struct seal *s, struct str name, struct str text, uint8_t ret_mac[32])
{
    uint8_t key[SHA256_BYTES]; /* of this use alone, so that sealing and signing share no key */

    hmac_sha256(str_make(s->key, sizeof s->key), name, key);
    hmac_sha256(str_make(key, sizeof key), text, ret_mac);
    secret_wipe(key, sizeof key);
}

/* ---- does this key belong to this database? ---- */

struct check {
    const struct seal *seal; /* borrowed */
    bool found, opens;
};

static void on_check(void *ctx, struct str key, struct str value)
{
    struct check *c = ctx;
    struct buf plain = BUF_INIT;

    if (!str_eq(key, CHECK_KEY))
        return;
    c->found = true;
    c->opens =
        unseal_secret(c->seal, CHECK_KEY, value, &plain) && str_eq(buf_str(&plain), CHECK_TEXT);
    buf_done(&plain);
}

static void write_check(const struct seal *s, struct store *st)
{
    struct buf sealed = BUF_INIT;
    seal_secret(s, CHECK_KEY, CHECK_TEXT, &sealed);
    struct store_kv item = {.verb = KV_PUT,
                            .ns = CHECK_NS,
                            .key = CHECK_KEY,
                            .value = buf_str(&sealed)};
    store_put(st, &item, 1, true, NULL, NULL); /* ahead of every secret that may follow */
    buf_done(&sealed);
}

bool seal_check(const struct seal *s, struct store *st, char *ret_why)
{
    struct check c = {.seal = s};

    if (st->ops->load_records(st, CHECK_NS, on_check, &c) != BH_OK) {
        snprintf(ret_why, 256, "cannot read the database");
        return false;
    }
    if (c.found && !c.opens) {
        snprintf(ret_why, 256,
                 "the master key does not fit the database: it was sealed with another one");
        return false;
    }
    if (!c.found)
        write_check(s, st);
    return true;
}
