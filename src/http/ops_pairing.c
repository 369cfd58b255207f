/* ops_pairing.c - `bellhop pairing`: people who wrote to a bot and whom no instance hears.
 *
 * A tenant's dashboard sees and decides about people on the bots that belong to the tenant alone.
 * Everybody else's entries answer as if they did not exist. */
#include <stdlib.h>
#include "base/clock.h"
#include "base/mem.h"
#include "core/event.h"
#include "http/admin.h"
#include "net/loop.h"
#include "tenancy/pairing.h"

enum { PAGE_ROWS = 500, PAGE_LOOKS = 4000 };
#define NOBODY "Nobody in the queue has this id; the list may be old."

/* ---- the list ---- */

static void write_person(struct jw *w, const struct pairing_view *v)
{
    jw_obj(w);
    jw_kstr(w, "id", str_of(v->id));
    jw_kstr(w, "platform", v->platform);
    jw_kstr(w, "bot", v->bot);
    jw_kstr_opt(w, "tenant", v->tenant);
    jw_kstr(w, "userId", v->user);
    jw_kstr(w, "userName", v->name.n > 0 ? v->name : STR_NULL);
    jw_kstr(w, "chatType", v->chat_type);
    jw_kstr(w, "state", str_of(pairing_state_word(v->state)));
    jw_ki64(w, "messages", v->messages);
    admin_time(w, "firstAt", v->first_ms);
    admin_time(w, "lastAt", v->last_ms);
    admin_time(w, "toldAt", v->told_ms);
    jw_end_obj(w);
}

static bool is_wanted(const struct op_call *c, const char *arg, struct str is)
{
    struct str wish = op_text(c, arg);

    return wish.n == 0 || str_eq(wish, is);
}

static void list_pairings(struct op_call *c)
{
    BUF_LOCAL from = BUF_INIT;
    size_t rows = 0, looks = 0, most = (size_t)op_number(c, "limit", PAGE_ROWS);
    char cursor[PAIRING_ID_CHARS + 1] = "";
    struct pairing_view v;
    bool more = true;

    if (!admin_read_cursor(c, &from))
        return;
    struct str after = buf_str(&from);
    if (after.n > 0 && !pairing_find(c->f->pairing, after, STR_NULL, &v)) {
        op_error(c, 410, "gone", ADMIN_GONE);
        return;
    }
    struct jw w = op_begin(c);
    jw_obj(&w);
    jw_ki64(&w, "now", clock_wall_ms(loop_clock(c->f->loop)));
    jw_ki64(&w, "waiting", (int64_t)pairing_waiting(c->f->pairing, op_text(c, "tenant")));
    jw_karr(&w, "people");
    for (; rows < most && looks < PAGE_LOOKS && (more = pairing_next(c->f->pairing, after, &v));
         looks++) {
        memcpy(cursor, v.id, sizeof cursor);
        after = str_of(cursor);
        if (is_wanted(c, "tenant", v.tenant) && is_wanted(c, "platform", v.platform) &&
            is_wanted(c, "bot", v.bot) &&
            is_wanted(c, "state", str_of(pairing_state_word(v.state)))) {
            write_person(&w, &v);
            rows++;
        }
    }
    jw_end_arr(&w);
    if (more && cursor[0] != '\0')
        admin_write_cursor(c, &w, str_of(cursor));
    jw_end_obj(&w);
    op_end(c);
}

/* ---- decisions ---- */

/* The person that the caller means and may decide about.  False: the error has been sent. */
static bool find_person(struct op_call *c, struct pairing_view *ret)
{
    if (pairing_find(c->f->pairing, op_text(c, "id"),
                     c->for_tenant ? op_text(c, "tenant") : STR_NULL, ret))
        return true;
    op_error(c, 404, "not_found", NOBODY);
    return false;
}

struct approving { /* an approval under way */
    struct op_call *c;
    struct pairing_link link;
    char *platform, *bot, *user, *chat; /* owned */
};

static void approving_free(void *mine)
{
    struct approving *a = mine;

    free(a->platform);
    free(a->bot);
    free(a->user);
    free(a->chat);
    free(a);
}

static void on_approved(void *ctx, enum bh_err err, const char *why)
{
    struct approving *a = ctx;
    struct op_call *c = a->c;
    const struct pairing_settings *s = pairing_settings_of(c->f->pairing);
    struct event at = {.platform = str_of(a->platform),
                       .bot = str_of(a->bot),
                       .user_id = str_of(a->user),
                       .chat_id = str_of(a->chat)};

    if (err == BH_OK) {
        struct jw w = op_begin(c);
        jw_obj(&w);
        jw_kbool(&w, "ok", true);
        jw_kbool(&w, "owner", a->link.owner);
        jw_kstr(&w, "tenant", str_of(c->tenant));
        jw_kstr(&w, "instance", str_of(c->instance));
        jw_kstr(&w, "platform", at.platform);
        jw_kstr(&w, "bot", at.bot);
        jw_kstr(&w, "userId", at.user_id);
        jw_end_obj(&w);
        relay_person_linked(c->f->relay, str_of(c->tenant), str_of(c->instance), &at,
                            s->receipt ? STR("You are let in. What you write here now goes to "
                                             "your agent.")
                                       : STR_NULL);
    }
    op_done(c, err, why);
}

static void approve_pairing(struct op_call *c)
{
    struct pairing_view v;

    if (!find_person(c, &v) ||
        !admin_name_instance(c, op_text(c, "tenant"), op_text(c, "instance")))
        return;
    struct approving *a = xcalloc(1, sizeof *a);
    a->c = c;
    a->platform = str_dup(v.platform);
    a->bot = str_dup(v.bot);
    a->user = str_dup(v.user);
    a->chat = str_dup_opt(v.chat);
    op_keep(c, a, approving_free);
    buf_printf(&c->note, "person let in: tenant=%s instance=%s platform=%s bot=%s", c->tenant,
               c->instance, a->platform, a->bot);
    pairing_approve(c->f->pairing, str_of(v.id),
                    (struct grant_who){str_of(c->tenant), str_of(c->instance)}, &a->link,
                    on_approved, a);
}

static void decide(struct op_call *c, enum pairing_state state, const char *words)
{
    struct pairing_view v;

    if (!find_person(c, &v))
        return;
    buf_printf(&c->note, "person %s: platform=%.*s bot=%.*s", words, STR_FMT(v.platform),
               STR_FMT(v.bot));
    pairing_set(c->f->pairing, str_of(v.id), state, op_done, c);
}

static void deny_pairing(struct op_call *c)
{
    decide(c, PAIRING_DENIED, "denied");
}

static void block_pairing(struct op_call *c)
{
    decide(c, PAIRING_BLOCKED, "blocked");
}

static void restore_pairing(struct op_call *c)
{
    decide(c, PAIRING_WAITING, "back in the queue");
}

static void forget_pairing(struct op_call *c)
{
    struct pairing_view v;

    if (!find_person(c, &v))
        return;
    buf_printf(&c->note, "person forgotten: platform=%.*s bot=%.*s", STR_FMT(v.platform),
               STR_FMT(v.bot));
    pairing_forget(c->f->pairing, str_of(v.id), op_done, c);
}

/* ---- the table ---- */

#define DECISION \
    .tenant_view = true, .answer = "{ok: bool}", .answer_what = "The decision is on disk.", \
    .args = \
        (const struct op_arg[]){{"id", IN_BODY, OP_TEXT, .flags = OP_REQUIRED | OP_FILLED, \
                                 .what = "As the list has it."}, \
                                {"tenant", IN_BODY, OP_TEXT, .what = "Of a tenant's dashboard."}, \
                                {0}}, \
    .errors = "not_found (404), conflict (409)"

const struct op ops_pairing[] = {
    {"listPairings", "GET", "/admin/pairing", MAY_OPERATOR, list_pairings,
     "People who wrote to a bot and are linked to nobody, in pages.", .tenant_view = true,
     .args =
         (const struct op_arg[]){{"state", IN_QUERY, OP_TEXT, .one_of = "waiting|denied|blocked",
                                  .what = "Only these."},
                                 {"platform", IN_QUERY, OP_TEXT, .what = "Only of this platform."},
                                 {"bot", IN_QUERY, OP_TEXT, .what = "Only of this bot."},
                                 {"tenant", IN_QUERY, OP_TEXT,
                                  .what = "Only of bots that belong to this tenant."},
                                 {"limit", IN_QUERY, OP_WHOLE, .min = 1, .max = PAGE_ROWS,
                                  .initial = "500", .what = "At most so many in one page."},
                                 {"after", IN_QUERY, OP_TEXT, .what = "next of the last page."},
                                 {0}},
     .answer = "{now: whole, waiting: whole, people: [{id: text, platform: text, bot: text, "
               "tenant?: text, userId: text, userName: text|null, chatType: text, state: "
               "waiting|denied|blocked, messages: whole, firstAt: whole|null, lastAt: whole|null, "
               "toldAt: whole|null}], next?: text}",
     .answer_what = "Bot by bot, those who wrote last first. `waiting` counts all who wait.",
     .errors = "gone (410): after names a person who left the queue"},
    {"approvePairing", "POST", "/admin/pairing/approve", MAY_OPERATOR, approve_pairing,
     "Link a person of the queue to an instance, on the bot that the person wrote to.",
     .tenant_view = true,
     .args = (const struct op_arg[]){{"id", IN_BODY, OP_TEXT, .flags = OP_REQUIRED | OP_FILLED,
                                      .what = "As the list has it."},
                                     INSTANCE_ARGS(IN_BODY),
                                     {0}},
     .answer = "{ok: bool, owner: bool, tenant: text, instance: text, platform: text, bot: text, "
               "userId: text}",
     .answer_what = "owner: nobody was linked to the instance before.",
     .errors = "malformed (400), refused (403), not_found (404), ambiguous (409), conflict (409)"},
    {"denyPairing", "POST", "/admin/pairing/deny", MAY_OPERATOR, deny_pairing,
     "Take a person off the queue; who writes again a week later is listed again.", DECISION},
    {"blockPairing", "POST", "/admin/pairing/block", MAY_OPERATOR, block_pairing,
     "Never list a person of this bot again, and answer them nothing.", DECISION},
    {"restorePairing", "POST", "/admin/pairing/restore", MAY_OPERATOR, restore_pairing,
     "Undo a denial or a block: the person waits again.", DECISION},
    {"forgetPairing", "POST", "/admin/pairing/forget", MAY_OPERATOR, forget_pairing,
     "Delete an entry of the queue, also a block; the person is a stranger again.", DECISION},
    {0},
};
