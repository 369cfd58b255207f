/* seal.c - the master key, and sealing what must not lie in the database as it is.
 *
 * A passphrase is stretched with scrypt.  The key must come out the same on every start and every
 * machine, so its salt is in the database; the oldest databases have none and use a fixed one. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "store/seal_priv.h"
#include "store/store.h"

#define MIN_PASSPHRASE_BYTES 16
#define SCRYPT_N (1u << 15) /* with r = 8: 32 MiB and about a tenth of a second, once per start */
#define SCRYPT_R 8
#define SCRYPT_P 1

static enum bh_err refuse(char *ret_why, const char *path, const char *why)
{
    snprintf(ret_why, 256, "the key file %.120s %s", path, why);
    return BH_REFUSED;
}

static enum bh_err key_from_text(struct str text, struct str salt, uint8_t key[SEAL_KEY_BYTES],
                                 char *ret_why)
{
    if (hex_decode(text, key, SEAL_KEY_BYTES))
        return BH_OK;
    if (text.n < MIN_PASSPHRASE_BYTES) {
        snprintf(ret_why, 256,
                 "the master key is too short: give 64 hex digits or a passphrase of %d bytes or "
                 "more",
                 MIN_PASSPHRASE_BYTES);
        return BH_REFUSED;
    }
    if (salt.n == 0)
        salt = STR("bellhop master key");
    if (EVP_PBE_scrypt(text.p, text.n, (const unsigned char *)salt.p, salt.n, SCRYPT_N, SCRYPT_R,
                       SCRYPT_P, 64u << 20, key, SEAL_KEY_BYTES) != 1) {
        snprintf(ret_why, 256, "cannot stretch the master key: out of memory");
        return BH_UNAVAILABLE;
    }
    return BH_OK;
}

/* ---- the key file ---- */

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
              file_sync_folder_of(path);
    int why = errno;
    buf_wipe(&text);
    if (!ok)
        unlink(buf_z(&draft));
    buf_done(&draft);
    return ok ? BH_OK : refuse(ret_why, path, strerror(why));
}

static enum bh_err read_key(int fd, const char *path, uint8_t key[SEAL_KEY_BYTES], char *ret_why)
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
    enum bh_err err = read_key(fd, path, key, ret_why);
    close(fd);
    return err;
}

enum bh_err seal_key(struct str text, struct str salt, const char *path, struct seal **ret_seal,
                     char *ret_why)
{
    struct seal *s = xcalloc(1, sizeof *s);

    text = str_trim(text); /* a line of a file often brings its newline */
    enum bh_err err = str_is_empty(text) ? key_from_file(path, s->key, ret_why)
                                         : key_from_text(text, salt, s->key, ret_why);
    memcpy(s->mac_key, s->key, sizeof s->mac_key);
    if (err == BH_OK)
        *ret_seal = s;
    else
        seal_free(s);
    return err;
}

enum bh_err seal_open_master(struct str text, const char *path, struct seal **ret_seal,
                             char *ret_why)
{
    return seal_key(text, STR(""), path, ret_seal, ret_why);
}

void seal_free(struct seal *s)
{
    if (s != NULL)
        secret_wipe(s, sizeof *s);
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

    hmac_sha256(str_make(s->mac_key, sizeof s->mac_key), name, key);
    hmac_sha256(str_make(key, sizeof key), text, ret_mac);
    secret_wipe(key, sizeof key);
}

/* ---- does this key belong to this database? ---- */

static void on_record(void *ctx, struct str key, struct str value)
{
    struct seal_records *r = ctx;
    const struct {
        struct str key;
        struct buf *to;
    } all[] = {{SEAL_CHECK, &r->check},
               {SEAL_SALT, &r->salt},
               {SEAL_MAC, &r->mac},
               {SEAL_NEXT, &r->next},
               {SEAL_NEXT_SALT, &r->next_salt}};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (str_eq(key, all[i].key))
            buf_add_str(all[i].to, value);
}

bool seal_records_load(struct store *st, struct seal_records *ret)
{
    *ret = (struct seal_records){0};
    return st->ops->load_records(st, SEAL_NS, on_record, ret) == BH_OK;
}

void seal_records_done(struct seal_records *r)
{
    buf_done(&r->check);
    buf_done(&r->salt);
    buf_done(&r->mac);
    buf_done(&r->next);
    buf_done(&r->next_salt);
}

bool seal_fits(const struct seal *s, struct str check)
{
    struct buf plain = BUF_INIT;
    bool fits =
        unseal_secret(s, SEAL_CHECK, check, &plain) && str_eq(buf_str(&plain), SEAL_CHECK_TEXT);

    buf_done(&plain);
    return fits;
}

static void write_check(const struct seal *s, struct store *st)
{
    struct buf sealed = BUF_INIT;
    seal_secret(s, SEAL_CHECK, SEAL_CHECK_TEXT, &sealed);
    struct store_kv item = {.verb = KV_INSERT,
                            .ns = SEAL_NS,
                            .key = SEAL_CHECK,
                            .value = buf_str(&sealed)};
    store_put(st, &item, 1, true, NULL, NULL); /* ahead of every secret that may follow */
    buf_done(&sealed);
}

static bool check_with(const struct seal *s, struct store *st, const struct seal_records *r,
                       char *ret_why)
{
    if (r->check.n > 0 && !seal_fits(s, buf_str(&r->check))) {
        snprintf(ret_why, 256,
                 "the master key does not fit the database: it was sealed with another one");
        return false;
    }
    if (r->check.n == 0)
        write_check(s, st);
    return true;
}

bool seal_check(const struct seal *s, struct store *st, char *ret_why)
{
    struct seal_records r;
    bool ok = seal_records_load(st, &r);

    if (!ok)
        snprintf(ret_why, 256, "cannot read the database");
    ok = ok && check_with(s, st, &r, ret_why);
    seal_records_done(&r);
    return ok;
}

/* ---- the key of a database ---- */

void seal_next_path(struct buf *out, const char *path)
{
    buf_printf(out, "%s.next", path);
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool seal_keep_old(const char *path, struct buf *ret_name)
{
    struct buf name = BUF_INIT;
    bool ok = false;

    for (int n = 1; !ok && n < 1000; n++) {
        buf_reset(&name);
        buf_printf(&name, n == 1 ? "%s.old" : "%s.old.%d", path, n);
        ok = link(path, buf_z(&name)) == 0 || is_same_file(path, buf_z(&name));
        if (!ok && errno != EEXIST)
            break;
    }
    if (ok && ret_name != NULL)
        buf_add_str(ret_name, buf_str(&name));
    buf_done(&name);
    return ok;
}

/* The change of the key was over but for the name of its file. */
static bool finish_change(struct seal **s, const struct seal_records *r, const char *path)
{
    struct buf next = BUF_INIT;
    struct seal *other = NULL;
    char why[256];

    seal_next_path(&next, path);
    bool ok = access(buf_z(&next), F_OK) == 0 &&
              seal_key(STR_NULL, STR(""), buf_z(&next), &other, why) == BH_OK &&
              seal_fits(other, buf_str(&r->check)) && seal_keep_old(path, NULL) &&
              rename(buf_z(&next), path) == 0 && file_sync_folder_of(path);
    if (ok) {
        seal_free(*s);
        *s = other;
        log_info(NULL, "the change of the master key is finished");
    } else {
        seal_free(other);
    }
    buf_done(&next);
    return ok;
}

static bool take_mac_root(struct seal *s, const struct seal_records *r, char *ret_why)
{
    struct buf plain = BUF_INIT;
    bool ok = r->mac.n == 0 || (unseal_secret(s, SEAL_MAC, buf_str(&r->mac), &plain) &&
                                plain.n == sizeof s->mac_key);

    if (ok && r->mac.n > 0)
        memcpy(s->mac_key, plain.p, sizeof s->mac_key);
    if (!ok)
        snprintf(ret_why, 256, "the root of fingerprints does not open with the master key");
    buf_wipe(&plain);
    return ok;
}

static enum bh_err open_with(struct store *st, const struct seal_records *r, struct str text,
                             const char *path, struct seal **s, char *ret_why)
{
    if (r->next.n > 0) {
        snprintf(ret_why, 256,
                 "a change of the master key was interrupted: go on with: bellhop key rotate");
        return BH_REFUSED;
    }
    enum bh_err err = seal_key(text, buf_str(&r->salt), path, s, ret_why);
    if (err != BH_OK)
        return err;
    bool from_file = str_is_empty(str_trim(text));
    if (r->check.n > 0 && !seal_fits(*s, buf_str(&r->check)) && from_file)
        finish_change(s, r, path);
    return check_with(*s, st, r, ret_why) && take_mac_root(*s, r, ret_why) ? BH_OK : BH_REFUSED;
}

enum bh_err seal_open_for(struct store *st, struct str text, const char *path,
                          struct seal **ret_seal, char *ret_why)
{
    struct seal_records r;
    struct seal *s = NULL;
    enum bh_err err = BH_UNAVAILABLE;

    if (seal_records_load(st, &r))
        err = open_with(st, &r, text, path, &s, ret_why);
    else
        snprintf(ret_why, 256, "cannot read the database");
    seal_records_done(&r);
    if (err == BH_OK)
        *ret_seal = s;
    else
        seal_free(s);
    return err;
}
