/* records.c - what the mail platform keeps on disk.  (email_priv.h has the contract.)
 *
 *      email        bot US folder -> UIDVALIDITY, UID, since: how far the folder was read
 *      email_mail   bot US hash   -> one mail of either direction, and its thread
 *      email_token  bot           -> a refresh token that replaced the configured one, sealed
 *
 * The hash covers the correspondent and the Message-ID, so nobody can use up the id of somebody
 * else's mail.  Records of mails go after EMAIL_KEPT_MS. */
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "platform/email/email_priv.h"
#include "store/erasure.h"
#include "store/sweep.h"

static const struct record_field cursor_fields[] = {
    RECORD_FIELD(struct email_cursor, bot, "bot", RECORD_KEY | RECORD_NEEDED, .max = 256),
    RECORD_FIELD(struct email_cursor, folder, "folder", RECORD_KEY | RECORD_NEEDED, .max = 256),
    RECORD_FIELD(struct email_cursor, uidvalidity, "uidvalidity", RECORD_NEEDED, .max = UINT32_MAX),
    RECORD_FIELD(struct email_cursor, uid, "uid", 0, .max = UINT32_MAX),
    RECORD_FIELD(struct email_cursor, since_ms, "since", 0),
    RECORD_FIELD(struct email_cursor, last_ms, "last", 0),
    RECORD_FIELD(struct email_cursor, anew, "anew", 0),
};
const struct record_form email_cursor_form =
    RECORD_FORM("email", struct email_cursor, cursor_fields);

static const struct record_field mail_fields[] = {
    RECORD_FIELD(struct email_mail, bot, "bot", RECORD_KEY | RECORD_NEEDED, .max = 256),
    RECORD_FIELD(struct email_mail, hash, "hash", RECORD_KEY | RECORD_NEEDED, .max = 64),
    RECORD_FIELD(struct email_mail, chat, "chat", RECORD_NEEDED, .max = 256),
    RECORD_FIELD(struct email_mail, root, "root", 0, .max = 256),
    RECORD_FIELD(struct email_mail, subject, "subject", 0, .max = 1024),
    RECORD_FIELD(struct email_mail, last, "last", 0, .max = 256),
    RECORD_FIELD(struct email_mail, at_ms, "at", RECORD_NEEDED),
    RECORD_FIELD(struct email_mail, taken, "taken", 0),
    RECORD_FIELD(struct email_mail, tenant, "tenant", 0, .max = 256),
    RECORD_FIELD(struct email_mail, instance, "instance", 0, .max = 256),
    RECORD_FIELD(struct email_mail, request, "request", 0, .max = 256),
    RECORD_FIELD(struct email_mail, number, "number", 0),
};
const struct record_form email_mail_form =
    RECORD_FORM("email_mail", struct email_mail, mail_fields, .lossy = true);

const struct record_form *const email_records[] = {&email_cursor_form, &email_mail_form,
                                                   &email_token_form, NULL};

void email_mail_hash(const struct email *e, char ret[EMAIL_HASH_CHARS + 1], enum email_kind kind,
                     struct str chat, struct str id)
{
    uint8_t hash[SHA256_BYTES];
    BUF_LOCAL text = BUF_INIT, hex = BUF_INIT;

    /* An id of our own is unique, and a report that names it does not name the chat. */
    if (kind == EMAIL_THREAD || !email_is_own_id(e, id))
        buf_add_str(&text, chat);
    buf_printf(&text, "%c%s%.*s", RECORD_SEPARATOR, kind == EMAIL_THREAD ? "thread " : "",
               STR_FMT(id));
    sha256(buf_str(&text), hash);
    hex_add(&hex, hash, EMAIL_HASH_CHARS / 2);
    memcpy(ret, hex.p, EMAIL_HASH_CHARS);
    ret[EMAIL_HASH_CHARS] = '\0';
}

void email_mail_put(struct email *e, enum email_kind kind, struct str chat, struct str id,
                    struct email_mail m)
{
    char hash[EMAIL_HASH_CHARS + 1];

    email_mail_hash(e, hash, kind, chat, id);
    m.bot = str_of(e->base.bot);
    m.hash = str_of(hash);
    m.chat = chat;
    m.at_ms = clock_wall_ms(e->base.env->clock);
    record_put(e->base.env->store, &email_mail_form, NULL, &m, false, NULL, NULL);
}

/* ---- the folder ---- */

static bool on_cursor(void *ctx, struct str key, void *thing)
{
    struct email *e = ctx;
    const struct email_cursor *p = thing;

    if (!str_eq(p->folder, e->in.cursor.folder))
        return true;
    e->in.cursor.uidvalidity = p->uidvalidity;
    e->in.cursor.uid = p->uid;
    e->in.cursor.since_ms = p->since_ms;
    e->in.cursor.last_ms = p->last_ms;
    e->in.cursor.anew = p->anew;
    e->in.has_place = true;
    return true;
}

bool email_cursor_load(struct email *e, char *ret_why)
{
    return record_load_like(e->base.env->store, &email_cursor_form, &e->in.cursor, 1, on_cursor, e,
                            ret_why) == BH_OK;
}

/* ---- looking up a mail ---- */

struct email_look {
    struct store_scan scan;
    struct store *store; /* borrowed */
    struct buf key;      /* owned */
    email_looked_cb *done;
    void *ctx;
    bool cancelled;
};

static void on_scanned(struct store_op *op, enum bh_err err)
{
    struct email_look *l =
        container_of(container_of(op, struct store_scan, op), struct email_look, scan);
    struct record_reader *r = record_reader_new(NULL);
    struct email_mail m;
    bool found =
        err == BH_OK && l->scan.n_records > 0 && str_eq(l->scan.records[0].key, buf_str(&l->key)) &&
        record_read(r, &email_mail_form, l->scan.records[0].key, l->scan.records[0].value, &m);

    if (!l->cancelled)
        l->done(l->ctx, found ? &m : NULL);
    record_reader_free(r);
    store_scan_free(&l->scan);
    buf_done(&l->key);
    free(l);
}

struct email_look *email_look(struct email *e, enum email_kind kind, struct str chat, struct str id,
                              email_looked_cb *done, void *ctx)
{
    struct email_look *l = xcalloc(1, sizeof *l);
    char hash[EMAIL_HASH_CHARS + 1];

    email_mail_hash(e, hash, kind, chat, id);
    struct email_mail like = {.bot = str_of(e->base.bot), .hash = str_of(hash)};
    record_write(&email_mail_form, NULL, &like, &l->key, NULL);
    *l = (struct email_look){.store = e->base.env->store, .key = l->key, .done = done, .ctx = ctx};
    l->scan = (struct store_scan){.op = {.done = on_scanned},
                                  .ns = email_mail_form.ns,
                                  .prefix = buf_str(&l->key),
                                  .limit = 1};
    store_scan(l->store, &l->scan);
    return l;
}

void email_look_cancel(struct email_look **l)
{
    struct email_look *old = *l;

    *l = NULL;
    if (old == NULL)
        return;
    old->cancelled = true;
    store_cancel(old->store, &old->scan.op);
}

/* ---- erasing ---- */

static bool is_of_person(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    const struct erase_subject *s = erasure_subject(e);

    return str_eq(s->platform, STR("email")) && str_eq(json_str(doc, "chat"), s->user);
}

static bool is_of_tenant(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    struct str bot = erase_part(&key), tenant = json_str(doc, "tenant");

    return str_eq(tenant, erasure_subject(e)->tenant) ||
           (tenant.n == 0 && erasure_owns_chat(e, bot, json_str(doc, "chat")));
}

static const struct erase_records of_tenant[] = {{"email_mail", "mails", is_of_tenant}, {0}};
static const struct erase_records of_person[] = {{"email_mail", "mails", is_of_person}, {0}};

const struct eraser email_eraser = {.of_tenant = of_tenant, .of_person = of_person};
