/* reply.c - messages that go out through an interaction's token.  (discord_priv.h has the calls.)
 *
 * The first one edits the "thinking ..." the person sees, later ones follow it.  The token is read
 * from the vault when the request is made and lives in that request's path, nowhere else. */
#include <inttypes.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "edge/vault.h"
#include "platform/discord/discord_priv.h"

struct discord_reply {
    struct discord *d; /* borrowed */
    struct vault_ref ref;
    bool first; /* the original is still to be edited, and that is ours to do */
};

void discord_reply_place(const struct discord *d, uint64_t channel_id, struct buf *out)
{
    buf_printf(out, "%s\x1f%" PRIu64, d->base.bot, channel_id);
}

static struct discord_reply *reply_new(struct discord *d, struct vault_ref ref, bool first)
{
    struct discord_reply *h = xcalloc(1, sizeof *h);

    *h = (struct discord_reply){.d = d, .ref = ref, .first = first};
    return h;
}

struct discord_reply *discord_reply_for_send(struct discord *d, const struct action_from *from,
                                             uint64_t channel_id, struct str user)
{
    struct buf place = BUF_INIT;
    struct vault_ref ref;

    discord_reply_place(d, channel_id, &place);
    bool found = vault_take_place(d->env->vault, from->tenant, from->instance,
                                  STR(DISCORD_TOKEN_KIND), buf_str(&place), user, &ref);
    buf_done(&place);
    return found ? reply_new(d, ref, true) : NULL;
}

/* app, channel and token, as webhook.c put them together. */
static bool open_value(const struct discord_reply *h, struct buf *plain, struct str ret[3])
{
    if (!vault_open_value(h->d->env->vault, h->ref, plain))
        return false;
    struct str rest = buf_str(plain);
    return str_split(&rest, '\x1f', &ret[0]) && str_split(&rest, '\x1f', &ret[1]) &&
           (ret[2] = rest).n > 0;
}

struct discord_reply *discord_reply_for_follow_up(struct discord *d, const struct action_from *from,
                                                  const struct action *a, uint64_t *ret_channel)
{
    struct vault_ref ref;
    struct buf plain = BUF_INIT;
    struct str parts[3];
    bool first;

    if (!str_eq(a->kind, STR(DISCORD_TOKEN_KIND)) ||
        !vault_take(d->env->vault, from->tenant, a->session_key, a->kind, &ref, &first))
        return NULL;
    struct discord_reply *h = reply_new(d, ref, first);
    *ret_channel = open_value(h, &plain, parts) ? snowflake(parts[1]) : 0;
    buf_wipe(&plain);
    if (*ret_channel != 0)
        return h;
    discord_reply_free(h);
    return NULL;
}

bool discord_reply_edits(const struct discord_reply *h, size_t part)
{
    return h->first && part == 0;
}

bool discord_reply_path(const struct discord_reply *h, size_t part, struct buf *out)
{
    struct buf plain = BUF_INIT;
    struct str parts[3];
    bool ok = open_value(h, &plain, parts);

    if (ok)
        buf_printf(out, "/webhooks/%.*s/%.*s%s", STR_FMT(parts[0]), STR_FMT(parts[2]),
                   discord_reply_edits(h, part) ? "/messages/@original" : "?wait=true");
    buf_wipe(&plain);
    return ok;
}

void discord_reply_used(struct discord_reply *h)
{
    if (!h->first)
        return;
    vault_used(h->d->env->vault, h->ref);
    h->first = false;
}

void discord_reply_free(struct discord_reply *h)
{
    if (h == NULL)
        return;
    if (h->first)
        vault_give_back(h->d->env->vault, h->ref);
    free(h);
}
