/* erase.c - erases the mail and the known chats of a tenant or a person.  (relay.h has the
 * contract, store/erasure.h the engine.) */
#include "relay/relay.h"
#include "relay/in/allowance.h"
#include "relay/out/guard.h"
#include "store/erasure.h"

/* ---- of a tenant ---- */

/* Purges the mailbox.  The instance's record stays: instance.c owns it. */
static bool empty_mailbox(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    const struct erase_subject *s = erasure_subject(e);
    struct instance_view v = {0};

    if (!str_eq(erase_part(&key), s->tenant))
        return false;
    if (s->dry)
        relay_instance(ctx, s->tenant, key, &v);
    erasure_count(e, "waiting", s->dry ? v.entries : relay_mailbox_purge(ctx, s->tenant, key));
    return true;
}

/* Runs before any chat is deleted: reports which chats belong to the tenant, and which to others.
 */
static bool note_chat(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    bool of_tenant = str_eq(erase_part(&key), erasure_subject(e)->tenant);

    erase_part(&key); /* the instance */
    erase_part(&key); /* the platform */
    erasure_chat(e, json_str(doc, "bot"), key, of_tenant);
    return of_tenant;
}

static bool forget_turns_of_tenant(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    const struct erase_subject *s = erasure_subject(e);
    struct str rest = key;

    if (!str_eq(erase_part(&rest), s->tenant))
        return false;
    if (!s->dry)
        allowance_forget(ctx, key);
    return true;
}

static const struct erase_records mail_of_tenant[] = {
    {"turns", "allowances", forget_turns_of_tenant},
    {"instance", NULL, empty_mailbox, .keep = true},
    {"chat", "chats", note_chat, .keep = true},
    {0},
};

static void tell_waiting(void *ctx, struct erasure *e)
{
    erasure_count(e, "waiting", 0); /* so that the report has this line even when it is 0 */
    erasure_next(e);
}

static bool forget_chat(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    struct str tenant = erase_part(&key), instance = erase_part(&key), platform = erase_part(&key);

    if (!str_eq(tenant, erasure_subject(e)->tenant))
        return false;
    relay_forget_chat(ctx, tenant, instance, platform, key);
    return true;
}

static const struct erase_records chats_of_tenant[] = {
    {"chat", NULL, forget_chat, .only_for_real = true},
    {0},
};

/* ---- of a person ---- */

/* @reported: of the chats that an adapter has reported; else of those whose id or record tells
 * whose they are. */
static bool forget_known(void *ctx, struct erasure *e, struct str key, struct json doc,
                         bool reported)
{
    const struct erase_subject *s = erasure_subject(e);
    struct str tenant = erase_part(&key), instance = erase_part(&key), platform = erase_part(&key);
    struct str bot = json_str(doc, "bot");
    bool direct = str_eq(basis_direct(json_get(doc, "basis")), s->user);
    bool known = direct || str_eq(key, s->user);

    if (!str_eq(platform, s->platform) ||
        (reported ? known || !erasure_owns_chat(e, bot, key) : !known))
        return false;
    if (direct)
        erasure_chat(e, bot, key, true);
    if (!s->dry)
        relay_forget_chat(ctx, tenant, instance, platform, key);
    return true;
}

static bool forget_chat_with(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    return forget_known(ctx, e, key, doc, false);
}

static bool forget_private_chat(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    return forget_known(ctx, e, key, doc, true);
}

static bool forget_turns(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    const struct erase_subject *s = erasure_subject(e);
    struct str rest = key;

    erase_part(&rest);
    erase_part(&rest);
    if (!str_eq(erase_part(&rest), s->platform) || !str_eq(rest, s->user))
        return false;
    if (!s->dry)
        allowance_forget(ctx, key);
    return true;
}

static const struct erase_records private_chats[] = {{"chat", "chats", forget_private_chat}, {0}};
static const struct erase_records chats_with_person[] = {
    {"turns", "allowances", forget_turns},
    {"chat", "chats", forget_chat_with},
    {0},
};

static void on_mail_forgotten(void *ctx, enum bh_err err, const struct relay_forgot *got)
{
    struct erasure *e = ctx;

    erasure_count(e, "waiting", got->n);
    erasure_count(e, "quoted", got->quoted);
    if (err != BH_OK)
        erasure_fail(e, "The store failed in the middle: ask again.");
    else
        erasure_next(e);
}

static void forget_mail(void *ctx, struct erasure *e)
{
    const struct erase_subject *s = erasure_subject(e);

    relay_forget_mail(ctx, s->platform, s->user, s->dry, on_mail_forgotten, e);
}

const struct eraser relay_eraser = {.of_tenant = mail_of_tenant,
                                    .of_person = chats_with_person,
                                    .tenant = tell_waiting,
                                    .person = forget_mail};
const struct eraser relay_chats_eraser = {.of_tenant = chats_of_tenant};
const struct eraser relay_private_eraser = {.of_person = private_chats};
