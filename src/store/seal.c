/* seal.c - opens the master key, and encrypts secrets in the database.  (seal.h has the contract.)
 *
 * A passphrase is stretched with scrypt.  The key must come out the same on every start and every
 * machine, so its salt is in the database. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "net/loop.h"
#include "store/store.h"

#define SEAL_NS "seal"          /* records about the key, all of this namespace */
#define SEAL_CHECK STR("check") /* sealed: tells whether a key fits */
#define SEAL_SALT STR("salt")   /* of a passphrase; made with the database */
#define SEAL_MAC STR("mac")     /* sealed: the root of fingerprints; absent: the key itself */
#define SEAL_NEXT STR("next")   /* while the key is being changed: the check of the next one */
#define SEAL_NEXT_SALT STR("next_salt")
#define SEAL_CHECK_TEXT STR("bellhop")

struct seal {
    uint8_t key[SEAL_KEY_BYTES];
    uint8_t mac_key[SEAL_KEY_BYTES];
};

struct seal_records { /* as they are in the store; failed() or empty: not there */
    struct buf check, salt, mac, next, next_salt;
};

#define MIN_PASSPHRASE_BYTES 16
#define SCRYPT_N (1u << 15) /* with r = 8: 32 MiB and about a tenth of a second, once per start */
#define SCRYPT_R 8
#define SCRYPT_P 1

static enum bh_err refuse(char *ret_why, const char *path, const char *why)
{
    return bh_err_why(BH_REFUSED, ret_why, "the key file %.120s %s", path, why);
}

static enum bh_err key_from_text(struct str text, struct str salt, uint8_t key[SEAL_KEY_BYTES],
                                 char *ret_why)
{
    if (hex_decode(text, key, SEAL_KEY_BYTES))
        return BH_OK;
    if (text.n < MIN_PASSPHRASE_BYTES)
        return bh_err_why(
            BH_REFUSED, ret_why,
            "the master key is too short: give 64 hex digits or a passphrase of %d bytes or "
            "more",
            MIN_PASSPHRASE_BYTES);
    if (salt.n == 0)
        return bh_err_why(BH_REFUSED, ret_why,
                          "the database has no salt for a passphrase: it is damaged");
    if (EVP_PBE_scrypt(text.p, text.n, (const unsigned char *)salt.p, salt.n, SCRYPT_N, SCRYPT_R,
                       SCRYPT_P, 64u << 20, key, SEAL_KEY_BYTES) != 1)
        return bh_err_why(BH_UNAVAILABLE, ret_why, "cannot stretch the master key: out of memory");
    return BH_OK;
}

/* ---- the key file ---- */

/* Creates a key file.  The key is synced before it is used, because losing it in a crash would
 * lose every sealed secret.  The complete file gets its name in one step, so half a key is never
 * read. */
static enum bh_err file_create(const char *path, uint8_t key[SEAL_KEY_BYTES], char *ret_why)
{
    struct rand r = RAND_SYSTEM;
    struct buf text = BUF_INIT, draft = BUF_INIT;

    rand_bytes(&r, key, SEAL_KEY_BYTES);
    hex_add(&text, key, SEAL_KEY_BYTES);
    buf_add_c(&text, '\n');
    buf_printf(&draft, "%s.new", path);
    bool ok = file_put(buf_z(&draft), O_TRUNC, buf_str(&text)) &&
              rename(buf_z(&draft), path) == 0 && file_sync_folder_of(path);
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
    if (path == NULL)
        return bh_err_why(BH_REFUSED, ret_why, "the master key is empty");
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return file_create(path, key, ret_why);
    if (fd < 0)
        return refuse(ret_why, path, strerror(errno));
    enum bh_err err = read_key(fd, path, key, ret_why);
    close(fd);
    return err;
}

enum bh_err seal_open_master(struct str text, struct str salt, const char *path,
                             struct seal **ret_seal, char *ret_why)
{
    struct seal *s = xcalloc(1, sizeof *s);

    text = str_trim(text); /* a file often ends with a newline */
    enum bh_err err = str_is_empty(text) ? key_from_file(path, s->key, ret_why)
                                         : key_from_text(text, salt, s->key, ret_why);
    memcpy(s->mac_key, s->key, sizeof s->mac_key);
    if (err == BH_OK)
        *ret_seal = s;
    else
        seal_free(s);
    return err;
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
    uint8_t key[SHA256_BYTES]; /* derived per use, so that sealing and signing share no key */

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

static bool seal_records_load(struct store *st, struct seal_records *ret)
{
    *ret = (struct seal_records){0};
    return st->ops->load_records(st, SEAL_NS, STR(""), on_record, ret) == BH_OK;
}

static void seal_records_done(struct seal_records *r)
{
    buf_done(&r->check);
    buf_done(&r->salt);
    buf_done(&r->mac);
    buf_done(&r->next);
    buf_done(&r->next_salt);
}

static bool seal_fits(const struct seal *s, struct str check)
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
    store_put(st, &item, 1, true, NULL, NULL); /* queued before any secret */
    buf_done(&sealed);
}

static bool check_with(const struct seal *s, struct store *st, const struct seal_records *r,
                       char *ret_why)
{
    if (r->check.n > 0 && !seal_fits(s, buf_str(&r->check)))
        return bh_why(ret_why,
                      "the master key does not fit the database: it was sealed with another one%s",
                      st->shared
                          ? "; every node needs the same one (master_key, or a copy of the file "
                            "master.key)"
                          : "");
    if (r->check.n == 0)
        write_check(s, st);
    return true;
}

/* ---- the key of a database ---- */

static void seal_next_path(struct buf *out, const char *path)
{
    buf_printf(out, "%s.next", path);
}

static bool seal_keep_old(const char *path, struct buf *ret_name)
{
    struct buf name = BUF_INIT;
    struct stat now, old;
    bool ok = false;

    for (int n = 1; !ok && n < 1000; n++) {
        buf_reset(&name);
        buf_printf(&name, n == 1 ? "%s.old" : "%s.old.%d", path, n);
        ok = link(path, buf_z(&name)) == 0 ||
             (stat(path, &now) == 0 && stat(buf_z(&name), &old) == 0 && now.st_dev == old.st_dev &&
              now.st_ino == old.st_ino);
        if (!ok && errno != EEXIST)
            break;
    }
    if (ok && ret_name != NULL)
        buf_add_str(ret_name, buf_str(&name));
    buf_done(&name);
    return ok;
}

/* Completes a change of the key that only lacks the rename of its file. */
static bool finish_change(struct seal **s, const struct seal_records *r, const char *path)
{
    struct buf next = BUF_INIT;
    struct seal *other = NULL;
    char why[256];

    seal_next_path(&next, path);
    bool ok = access(buf_z(&next), F_OK) == 0 &&
              seal_open_master(STR_NULL, STR(""), buf_z(&next), &other, why) == BH_OK &&
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
    if (r->next.n > 0)
        return bh_err_why(
            BH_REFUSED, ret_why,
            "a change of the master key was interrupted: go on with: bellhop key rotate");
    enum bh_err err = seal_open_master(text, buf_str(&r->salt), path, s, ret_why);
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

/* ---- changing the key ---- */

enum { PAGE = 256, SALT_BYTES = 16 };

struct turning { /* one call of seal_change() */
    struct seal_change *c;
    struct seal_records r;
    struct seal *old, *next;                /* owned */
    struct record_reader *as_old, *as_next; /* owned */
    char *why;                              /* borrowed, 256 bytes */
};

/* ---- waiting for the store ---- */

struct waiting {
    union {
        struct store_op op;
        struct store_scan scan;
        struct store_tx tx;
    };
    bool done;
    enum bh_err err;
};

static void on_done(struct store_op *op, enum bh_err err)
{
    struct waiting *w = container_of(op, struct waiting, op);

    w->done = true;
    w->err = err;
}

static enum bh_err wait_for(struct turning *ch, struct waiting *w)
{
    while (!w->done)
        loop_turn(ch->c->loop, 1000);
    if (w->err != BH_OK)
        snprintf(ch->why, 256, "the store failed: %s", bh_err_word(w->err));
    return w->err;
}

static enum bh_err write_now(struct turning *ch, const struct store_kv *items, size_t n)
{
    struct waiting w = {.tx = {.op.done = on_done, .items = items, .n = n}};

    store_tx(ch->c->store, &w.tx, true);
    return wait_for(ch, &w);
}

/* ---- the two keys ---- */

static bool is_text(struct str s)
{
    return !str_is_empty(str_trim(s));
}

/* The old key as the database knows it, the next one made or found. */
static enum bh_err open_keys(struct turning *ch)
{
    struct seal_change *c = ch->c;
    struct buf file = BUF_INIT;

    seal_next_path(&file, c->path != NULL ? c->path : "");
    enum bh_err err = seal_open_master(c->from, buf_str(&ch->r.salt), c->path, &ch->old, ch->why);
    if (err == BH_OK && !seal_fits(ch->old, buf_str(&ch->r.check))) {
        snprintf(ch->why, 256, "the master key does not fit the database");
        err = BH_REFUSED;
    }
    if (err == BH_OK && !take_mac_root(ch->old, &ch->r, ch->why))
        err = BH_REFUSED;
    if (err == BH_OK)
        err = seal_open_master(c->to, buf_str(&ch->r.next_salt), buf_z(&file), &ch->next, ch->why);
    buf_done(&file);
    return err;
}

/* From now on no server starts until the change is over. */
static enum bh_err announce(struct turning *ch)
{
    struct buf check = BUF_INIT;

    seal_secret(ch->next, SEAL_CHECK, SEAL_CHECK_TEXT, &check);
    struct store_kv items[] = {
        {KV_PUT, SEAL_NS, SEAL_NEXT, buf_str(&check)},
        {KV_PUT, SEAL_NS, SEAL_NEXT_SALT, buf_str(&ch->r.next_salt)},
    };
    enum bh_err err = write_now(ch, items, ARRAY_LEN(items));
    buf_add_str(&ch->r.next, buf_str(&check));
    buf_done(&check);
    return err;
}

/* Was all of this done already, but for the names of the files?  The database has the key it was to
 * get then. */
static bool is_done(struct turning *ch)
{
    const struct seal_change *c = ch->c;
    struct str check = buf_str(&ch->r.check), salt = buf_str(&ch->r.salt);
    struct buf file = BUF_INIT;
    struct seal *old = NULL, *next = NULL;

    seal_next_path(&file, c->path != NULL ? c->path : "");
    bool made = is_text(c->to) || access(buf_z(&file), F_OK) == 0; /* else it would be made */
    bool done = made && seal_open_master(c->from, salt, c->path, &old, ch->why) == BH_OK &&
                !seal_fits(old, check) &&
                seal_open_master(c->to, salt, buf_z(&file), &next, ch->why) == BH_OK &&
                seal_fits(next, check);
    seal_free(old);
    seal_free(next);
    buf_done(&file);
    return done;
}

static enum bh_err prepare(struct turning *ch)
{
    struct rand rand = RAND_SYSTEM;
    char salt[SALT_BYTES];
    bool goes_on = ch->r.next.n > 0;

    if (ch->r.check.n == 0)
        return bh_err_why(BH_REFUSED, ch->why, "nothing was ever sealed in this database");
    if (!goes_on) {
        rand_bytes(&rand, salt, sizeof salt);
        buf_add(&ch->r.next_salt, salt, sizeof salt);
    }
    enum bh_err err = BH_OK;
    if (!goes_on) { /* an earlier change to a file may have been over but for its name */
        struct seal *s = NULL;
        err = seal_open_for(ch->c->store, ch->c->from, ch->c->path, &s, ch->why);
        seal_free(s);
    }
    if (err == BH_OK)
        err = open_keys(ch);
    if (err != BH_OK || !goes_on)
        return err == BH_OK ? announce(ch) : err;
    if (seal_fits(ch->next, buf_str(&ch->r.next)))
        return BH_OK;
    return bh_err_why(BH_REFUSED, ch->why,
                      "the change that was interrupted was to another key: give that one");
}

/* ---- one record ---- */

/* 0: it opens with neither key; 1: it is sealed with the next key already; 2: it is now. */
static int turn_record(const struct turning *ch, const struct record_form *form, void *thing,
                       const struct store_record *rec, struct buf *out)
{
    int how = 0;

    if (record_read(ch->as_next, form, rec->key, rec->value, thing)) {
        how = 1;
    } else if (record_read(ch->as_old, form, rec->key, rec->value, thing)) {
        record_write(form, ch->next, thing, NULL, out);
        how = 2;
    }
    record_done(form, thing);
    return how;
}

/* ---- a page of records ---- */

struct page {
    struct store_kv items[PAGE];
    struct buf values[PAGE];
    size_t n;
};

static enum bh_err turn_page(struct turning *ch, const struct record_form *form,
                             const struct store_scan *scan, struct page *g)
{
    void *thing = xcalloc(1, form->size);

    g->n = 0;
    for (size_t i = 0; i < scan->n_records; i++) {
        const struct store_record *rec = &scan->records[i];
        struct buf *value = &g->values[g->n];
        buf_reset(value);
        int how = turn_record(ch, form, thing, rec, value);
        if (how == 0) {
            snprintf(ch->why, 256, "a sealed record opens with neither key: %.200s",
                     record_why(ch->as_old));
            free(thing);
            return BH_REFUSED;
        }
        if (how == 2)
            g->items[g->n++] = (struct store_kv){KV_PUT, form->ns, rec->key, buf_str(value)};
    }
    free(thing);
    ch->c->records += scan->n_records;
    ch->c->sealed += g->n;
    return g->n > 0 ? write_now(ch, g->items, g->n) : BH_OK;
}

static enum bh_err turn_form(struct turning *ch, const struct record_form *form, struct page *g)
{
    struct buf after = BUF_INIT;
    enum bh_err err;
    bool more;

    do {
        struct waiting w = {.scan = {.op.done = on_done, .ns = form->ns, .limit = PAGE}};
        if (after.n > 0)
            w.scan.after = buf_str(&after);
        store_scan(ch->c->store, &w.scan);
        err = wait_for(ch, &w);
        more = err == BH_OK && w.scan.more;
        if (err == BH_OK)
            err = turn_page(ch, form, &w.scan, g);
        if (more) {
            buf_reset(&after);
            buf_add_str(&after, w.scan.records[w.scan.n_records - 1].key);
        }
        store_scan_free(&w.scan);
        if (ch->c->each != NULL)
            ch->c->each(ch->c->ctx, ch->c->records);
    } while (err == BH_OK && more);
    buf_done(&after);
    return err;
}

static enum bh_err turn_all(struct turning *ch)
{
    struct page *g = xcalloc(1, sizeof *g);
    enum bh_err err = BH_OK;

    ch->as_old = record_reader_new(ch->old);
    ch->as_next = record_reader_new(ch->next);
    for (size_t i = 0; err == BH_OK && ch->c->forms[i] != NULL; i++)
        if (record_has_sealed(ch->c->forms[i]))
            err = turn_form(ch, ch->c->forms[i], g);
    record_reader_free(ch->as_old);
    record_reader_free(ch->as_next);
    for (size_t i = 0; i < PAGE; i++)
        buf_wipe(&g->values[i]);
    free(g);
    return err;
}

/* ---- the end ---- */

static enum bh_err finish(struct turning *ch)
{
    struct buf check = BUF_INIT, mac = BUF_INIT;
    struct str root = str_make(ch->old->mac_key, sizeof ch->old->mac_key);

    seal_secret(ch->next, SEAL_CHECK, SEAL_CHECK_TEXT, &check);
    seal_secret(ch->next, SEAL_MAC, root, &mac);
    struct store_kv items[] = {
        {KV_PUT, SEAL_NS, SEAL_CHECK, buf_str(&check)},
        {KV_PUT, SEAL_NS, SEAL_MAC, buf_str(&mac)},
        {KV_PUT, SEAL_NS, SEAL_SALT, buf_str(&ch->r.next_salt)},
        {KV_DELETE, SEAL_NS, SEAL_NEXT},
        {KV_DELETE, SEAL_NS, SEAL_NEXT_SALT},
    };
    enum bh_err err = write_now(ch, items, ARRAY_LEN(items));
    buf_done(&check);
    buf_done(&mac);
    return err;
}

/* The database has the next key already: what is left are names. */
static enum bh_err rename_files(struct turning *ch)
{
    struct seal_change *c = ch->c;
    struct buf next = BUF_INIT;
    bool ok = is_text(c->from) || seal_keep_old(c->path, &c->old);

    seal_next_path(&next, c->path);
    if (ok && !is_text(c->to))
        ok = rename(buf_z(&next), c->path) == 0;
    else if (ok && !is_text(c->from))
        ok = unlink(c->path) == 0;
    if (ok && !(is_text(c->from) && is_text(c->to)))
        ok = file_sync_folder_of(c->path);
    if (!ok)
        snprintf(ch->why, 256, "the key is changed, but not the name of its file %.100s: %s",
                 c->path, strerror(errno));
    buf_done(&next);
    return ok ? BH_OK : BH_UNAVAILABLE;
}

enum bh_err seal_change(struct seal_change *c, char *ret_why)
{
    struct turning ch = {.c = c, .why = ret_why};
    enum bh_err err = BH_UNAVAILABLE;

    if (!seal_records_load(c->store, &ch.r))
        snprintf(ret_why, 256, "cannot read the database");
    else if (ch.r.next.n == 0 && ch.r.check.n > 0 && is_done(&ch))
        err = rename_files(&ch);
    else if ((err = prepare(&ch)) == BH_OK && (err = turn_all(&ch)) == BH_OK &&
             (err = finish(&ch)) == BH_OK)
        err = rename_files(&ch);
    seal_free(ch.old);
    seal_free(ch.next);
    seal_records_done(&ch.r);
    return err;
}
