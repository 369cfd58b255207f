/* erase_route.c - POST /admin/erase: deletes everything kept about one tenant or one person.
 *
 *      {"tenant", "dryRun"?}            -> {"instances", "keys", "waiting", "chats", "messages",
 *                                           "people", "mails", "outgoing", "questions", "replies",
 *                                           "wakes", "media", "skills", "data", "routes",
 *                                           "pairing"}
 *      {"platform", "user", "dryRun"?}  -> {"messages", "names", "media", "chats", "people",
 *                                           "mails", "waiting", "quoted", "outgoing", "questions",
 *                                           "links", "allowLists", "pairing"}
 *
 * Each module erases its own records (store/erasure.h); this file decides the order.  A tenant's
 * instances end and its keys are revoked first, so that nothing new arrives during the erasure. */
#include <assert.h>
#include "base/jw.h"
#include "base/mem.h"
#include "data/data.h"
#include "dispatch/dispatch.h"
#include "host/host.h"
#include "http/dashboard.h"
#include "http/v1.h"
#include "media/media.h"
#include "relay/relay.h"
#include "skills/skills.h"
#include "store/erasure.h"
#include "store/journal_disk.h"
#include "tenancy/facts.h"
#include "tenancy/grants.h"
#include "tenancy/keys.h"
#include "tenancy/pairing.h"

struct erase_request { /* an erasure that somebody waits for */
    struct op_call *c; /* borrowed */
    struct platform_erase platforms;
};

static uint64_t forget_file(void *ctx, struct str id, bool dry)
{
    const struct front *f = ctx;

    if (f->media == NULL)
        return 0;
    return dry ? media_find(f->media, id) != NULL : media_forget(f->media, id);
}

static struct platform *nth_platform(void *ctx, size_t i)
{
    const struct front *f = ctx;

    return i < host_n_platforms(f->host) ? host_nth_platform(f->host, i) : NULL;
}

static void on_erased(void *ctx, struct erasure *e, const char *failed)
{
    struct erase_request *a = ctx;
    const struct erase_subject *s = erasure_subject(e);
    struct jw w = op_begin(a->c);

    v1_check_keys(a->c->f);
    if (!s->dry && s->tenant.p != NULL)
        dashboard_forget(a->c->f->dashboard, s->tenant);
    jw_obj(&w);
    erasure_write(e, &w);
    jw_end_obj(&w);
    if (!s->dry && s->tenant.p != NULL)
        buf_printf(&a->c->note, "a tenant was erased: tenant=%.*s", STR_FMT(s->tenant));
    else if (!s->dry)
        buf_printf(&a->c->note, "a person was erased: platform=%.*s", STR_FMT(s->platform));
    op_done(a->c, failed != NULL ? BH_UNAVAILABLE : BH_OK, failed);
}

static void erase(struct op_call *c)
{
    struct erase_subject s = {.tenant = op_text(c, "tenant"),
                              .platform = op_text(c, "platform"),
                              .user = op_text(c, "user"),
                              .dry = op_flag(c, "dryRun")};

    if (!facts_name_ok(s.tenant))
        s.tenant = STR_NULL;
    if (s.tenant.p == NULL && (!grant_id_ok(s.user) || platform_find(s.platform) == NULL)) {
        op_error(c, 400, "malformed",
                 "Whom? A tenant, or platform and user, and the platform must be one that this "
                 "server knows.");
        return;
    }
    struct front *f = c->f;
    struct erase_request *a = xcalloc(1, sizeof *a);
    const struct erase_with first[] = {{&relay_eraser, f->relay},
                                       {&facts_eraser, f->facts},
                                       {&keys_eraser, f->keys},
                                       {&relay_chats_eraser, f->relay}};
    const struct erase_with then[] = {
        {&relay_private_eraser, f->relay}, {&platforms_eraser, &a->platforms},
        {&dispatch_eraser, f->dispatch},   {&skills_eraser, f->skills},
        {&data_eraser, f->data},           {&media_eraser, f->media},
        {&journal_eraser, f->journal},     {&pairing_eraser, f->pairing},
        {&audit_eraser, f->audit}};
    struct erase_with here[ERASERS_MAX];
    size_t n = ARRAY_LEN(first);
    memcpy(here, first, sizeof first);
    for (const struct platform_ops *const *p = platforms; *p != NULL; p++)
        if ((*p)->eraser != NULL) {
            assert(n + ARRAY_LEN(then) < ERASERS_MAX);
            here[n++] = (struct erase_with){(*p)->eraser, &a->platforms};
        }
    for (size_t i = 0; i < ARRAY_LEN(then); i++)
        if (then[i].ctx != NULL) /* files and the journal may be off */
            here[n++] = then[i];
    *a = (struct erase_request){c, {nth_platform, forget_file, f}};
    if (!s.dry)
        journal_forget(relay_journal(f->relay),
                       &(struct journal_subject){s.tenant, s.platform, s.user}, false);
    erasure_start(f->store, &s, here, n, on_erased, a);
}

const struct op ops_erase[] = {
    {"erase", "POST", "/admin/erase", MAY_OPERATOR, erase,
     "Delete everything kept about one tenant or one person.",
     .args =
         (const struct op_arg[]){{"tenant", IN_BODY, OP_TEXT, .what = "This tenant; or:"},
                                 {"platform", IN_BODY, OP_TEXT, .what = "The person's platform."},
                                 {"user", IN_BODY, OP_TEXT, .what = "Their id there."},
                                 {"dryRun", IN_BODY, OP_BOOL, .what = "Only count."},
                                 {0}},
     .answer = "object", .answer_what = "How many of each kind of record.",
     .errors = "malformed (400), unavailable (503)"},
    {0},
};
